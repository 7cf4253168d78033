//! The hosted back end: processors are threads of an ordinary process, memory is a mapping.
//!
//! # What a processor is
//! A host thread *is* a processor from its first call into this crate until it ends: it claims a free
//! [`CpuId`](crate::cpu::CpuId) and gives it back at its end. So tests run in parallel in one process, each on a
//! processor of its own, and share the physical memory and all statics as the processors of one machine do.
//!
//! # Groups
//! Processors belong to a *group*, which is what a test sees as its machine: `cpu::online()` is the group, threads
//! and balancing stay in it, and it has a clock of its own. A host thread starts as a group of one;
//! [`Machine::boot`] adds processors to the caller's group.
//!
//! # Time
//! The clock is virtual and stands still while anything runs. [`advance`] moves it. When all processors of a group
//! halt and none has an interrupt pending, it jumps to the earliest deadline: sleeping costs no real time, and what
//! happens is a function of the program. If there is no deadline, the group waits for other host threads.
//!
//! # Interrupts
//! Deadlines and IPIs are flags; they are delivered on the processor's own host thread at *safe points*: when
//! interrupts become enabled, when preemption becomes enabled, in [`crate::cpu::relax`], and in a halt. Code that
//! passes none of them is not interrupted.
//!
//! A kernel thread may continue on another host thread after a switch, so nothing here keeps the address of a
//! thread-local variable: `processor::this` is a call that the compiler cannot look through.

pub(crate) mod backtrace;
pub(crate) mod boot;
pub(crate) mod configuration_port;
pub(crate) mod console;
pub(crate) mod cpu;
pub(crate) mod debugger;
pub(crate) mod fpu;
mod group;
pub(crate) mod interrupt;
pub(crate) mod ipi;
pub(crate) mod mmu;
pub(crate) mod power;
pub(crate) mod preempt;
mod processor;
pub(crate) mod random;
pub(crate) mod symbols;
pub(crate) mod time;
pub(crate) mod uart;
pub mod user;
pub(crate) mod user_memory;
pub(crate) mod window;

pub use boot::MEMORY_BYTES;
pub use group::Machine;
pub use processor::{cpus_in_use, is_preemptible};
pub use time::advance;
