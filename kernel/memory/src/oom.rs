//! What to do when reclaim finds nothing more.
//!
//! The policy is the personality's: it knows the processes, and ends the biggest. Only one processor at a time
//! consults it; the others wait by trying again.

use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A `fn() -> bool`, or null. Set at start-up.
static POLICY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Whether the policy is being consulted.
static BUSY: AtomicBool = AtomicBool::new(false);
static INVOCATIONS: AtomicU64 = AtomicU64::new(0);
static KILLS: AtomicU64 = AtomicU64::new(0);

/// Sets what makes memory free in the end. It may sleep until the memory is free, and returns whether trying again
/// makes sense.
pub fn set_policy(policy: fn() -> bool) {
    // Release: pairs with the Acquire in `invoke`.
    POLICY.store(policy as *mut (), Release);
}

/// Consults the policy; false when there is none or it has no victim left.
pub(crate) fn invoke() -> bool {
    let pointer = POLICY.load(Acquire);
    if pointer.is_null() {
        return false;
    }
    if BUSY.swap(true, Acquire) {
        machine::cpu::relax();
        return true;
    }
    INVOCATIONS.fetch_add(1, Relaxed);
    // SAFETY: a non-null pointer was made from a `fn() -> bool` in `set_policy`, the only writer.
    let policy = unsafe { core::mem::transmute::<*mut (), fn() -> bool>(pointer) };
    let killed = policy();
    KILLS.fetch_add(u64::from(killed), Relaxed);
    BUSY.store(false, Release);
    killed
}

/// How often the policy found a victim.
pub fn kills() -> u64 {
    KILLS.load(Relaxed)
}
