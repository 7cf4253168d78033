//! What to do when reclaim finds nothing more.
//!
//! The policy is the personality's: it knows the processes, and ends the biggest.

use core::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

/// A `fn() -> bool`, or null. Set at start-up.
static POLICY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static INVOCATIONS: AtomicU64 = AtomicU64::new(0);
static KILLS: AtomicU64 = AtomicU64::new(0);

/// Sets what makes memory free in the end. It is called by any number of threads at once, may sleep until the memory is
/// free, and returns whether trying again makes sense.
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
    INVOCATIONS.fetch_add(1, Relaxed);
    // SAFETY: a non-null pointer was made from a `fn() -> bool` in `set_policy`, the only writer.
    let policy = unsafe { core::mem::transmute::<*mut (), fn() -> bool>(pointer) };
    let killed = policy();
    KILLS.fetch_add(u64::from(killed), Relaxed);
    killed
}

/// How often the policy found a victim.
pub fn kills() -> u64 {
    KILLS.load(Relaxed)
}
