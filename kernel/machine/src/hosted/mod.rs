//! The hosted back end: processors are threads of an ordinary process, memory is a mapping.

pub(crate) mod boot;
pub(crate) mod console;
pub(crate) mod cpu;
pub(crate) mod fpu;
pub(crate) mod interrupt;
pub(crate) mod ipi;
pub(crate) mod mmu;
pub(crate) mod power;
pub(crate) mod preempt;
pub(crate) mod random;
pub(crate) mod time;
pub mod user;
pub(crate) mod user_memory;
