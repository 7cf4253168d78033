//! What to do when reclaim finds nothing more.
//!
//! The policy is the personality's: it knows the processes, and ends the biggest, or the biggest of those that pay with an account that is full.

use core::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::charge::AccountNumber;

/// What the policy came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relief {
    /// Memory came back, or will: trying again makes sense.
    Retry,
    /// The calling thread is about to end, and its memory is what is needed: it may use half of the reserve for that.
    UseReserve,
    /// There is nobody left to end.
    Hopeless,
}

/// Where memory ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// The machine has no more.
    Machine,
    /// An account has all that it may.
    Of(AccountNumber),
}

/// A `fn(Shortage) -> Relief`, or null. Set at start-up.
static POLICY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static INVOCATIONS: AtomicU64 = AtomicU64::new(0);
static KILLS: AtomicU64 = AtomicU64::new(0);

/// Sets what makes memory free in the end. It is called by any number of threads at once, may sleep until the memory is
/// free.
pub fn set_policy(policy: fn(Shortage) -> Relief) {
    // Release: pairs with the Acquire in `invoke`.
    POLICY.store(policy as *mut (), Release);
}

/// Consults the policy; hopeless when there is none.
pub(crate) fn invoke(shortage: Shortage) -> Relief {
    let pointer = POLICY.load(Acquire);
    if pointer.is_null() {
        return Relief::Hopeless;
    }
    INVOCATIONS.fetch_add(1, Relaxed);
    // SAFETY: a non-null pointer was made from a `fn(Shortage) -> Relief` in `set_policy`, the only writer.
    let policy = unsafe { core::mem::transmute::<*mut (), fn(Shortage) -> Relief>(pointer) };
    policy(shortage)
}

/// A `fn() -> bool`, or null. Set at start-up.
static DYING: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what tells whether the calling thread is marked to end: then what takes long for its own sake is given up.
pub fn set_dying_check(check: fn() -> bool) {
    // Release: pairs with the Acquire in `caller_is_dying`.
    DYING.store(check as *mut (), Release);
}

/// Whether the calling thread is marked to end.
pub(crate) fn caller_is_dying() -> bool {
    let pointer = DYING.load(Acquire);
    // SAFETY: a non-null pointer was made from a `fn() -> bool` in `set_dying_check`, the only writer.
    !pointer.is_null() && unsafe { core::mem::transmute::<*mut (), fn() -> bool>(pointer)() }
}

/// Notes that the policy killed so many processes.
pub fn note_kills(processes: u64) {
    KILLS.fetch_add(processes, Relaxed);
}

/// Processes killed for want of memory.
pub fn kills() -> u64 {
    KILLS.load(Relaxed)
}
