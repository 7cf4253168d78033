//! The machine: everything that depends on the processor and the platform, behind safe interfaces.
//!
//! Two back ends implement the same functions: `x86_64` runs on the bare machine, `hosted` lets processors be
//! threads of an ordinary process, so that the crates above can be tested natively. The modules here are the
//! portable front; each calls the back end of the target that is being compiled.
//!
//! Order of start-up on the bare machine: entry code (32-bit, PVH) → early page tables → [`boot`] information →
//! final page tables → per-processor area → interrupt controllers → clock → `kernel_main` of the binary.

#![cfg_attr(target_os = "none", no_std)]

pub mod address;
pub mod backtrace;
pub mod boot;
pub mod checksum;
pub mod configuration_port;
pub mod console;
pub mod context;
pub mod cpu;
pub mod debugger;
pub mod fault;
#[cfg(any(target_os = "none", test))]
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "the tests look at part of what is read"))]
mod firmware;
mod hook;
pub mod interrupt;
pub mod ipi;
pub mod log_ring;
pub mod mmu;
pub mod page_table;
pub mod panic;
pub mod power;
pub mod preempt;
pub mod profile;
pub mod random;
pub mod set_once;
pub mod symbols;
pub mod time;
pub mod uart;
pub mod user;
pub mod user_memory;
pub mod user_state;
pub mod vdso;
pub mod whereabouts;
pub mod window;

#[cfg(target_os = "none")]
pub use backend::trap::frame::TrapFrame;

#[cfg(not(target_os = "none"))]
pub mod hosted;
#[cfg(not(target_os = "none"))]
use hosted as backend;
#[cfg(target_os = "none")]
#[path = "x86_64/mod.rs"]
mod backend;

/// Scripts that play user programs under the hosted back end.
#[cfg(not(target_os = "none"))]
pub use backend::user as hosted_user;
