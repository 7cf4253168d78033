//! The bare-metal back end for x86-64 processors.

pub(crate) mod boot;
pub(crate) mod console;
pub(crate) mod cpu;
mod entry;
pub(crate) mod fpu;
pub mod gdt;
pub(crate) mod interrupt;
pub(crate) mod ipi;
pub(crate) mod mmu;
pub(crate) mod paging;
pub mod per_cpu;
pub(crate) mod platform;
pub(crate) mod port;
pub(crate) mod power;
pub(crate) mod preempt;
pub(crate) mod random;
pub(crate) mod register;
pub(crate) mod smap;
pub(crate) mod stacks;
pub(crate) mod start;
pub(crate) mod symbols;
pub(crate) mod time;
pub mod trap;
pub(crate) mod user_memory;
