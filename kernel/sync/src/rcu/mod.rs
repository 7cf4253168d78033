//! Read-copy-update: readers of shared structures neither lock nor write.
//!
//! - `grace_period`: when every CPU has been seen outside of read sections.
//! - `callback`: what waits for that, per CPU, without allocating.
//! - `pointer`: a pointer that readers follow while writers replace what it points to.
//!
//! A read section is a section with preemption off ([`read`]): it costs one increment and one
//! decrement of a per-CPU word. A CPU is *quiescent* at a context switch, in the idle loop, in user
//! mode, and wherever an interrupt finds its preemption count zero.

mod callback;
mod grace_period;
mod pointer;

pub use callback::{RcuBox, barrier, call, invoke, pending, set_request_hook};
pub use grace_period::{
    WaitHook, completed, force, idle_enter, idle_exit, quiescent, set_wait_hook, synchronize,
};
pub use pointer::Pointer;

use machine::preempt::{self, PreemptGuard};

/// A read section: what an RCU [`Pointer`] showed inside stays valid until the guard is dropped.
/// Do not sleep while holding one.
#[must_use]
pub struct RcuReadGuard {
    _preemption: PreemptGuard,
}

/// Begins a read section. Nests.
#[inline(always)]
pub fn read() -> RcuReadGuard {
    RcuReadGuard { _preemption: preempt::disable() }
}
