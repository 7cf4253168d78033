//! Caches that can give memory back.
//!
//! A cache registers a [`Reclaimer`] once. Two ways lead here: an allocation that finds free memory below the minimum
//! reclaims for itself ([`reclaim_now`]), and below the low mark a thread is woken ([`set_wakeup`]) that calls
//! [`reclaim_until_high`].
//!
//! Rules for reclaimers: they are called by any thread that allocates, perhaps with sleeping locks held, so they only
//! *try* to lock what an allocating thread may hold, and do not allocate. Spin locks are never held here.

use core::sync::atomic::{
    AtomicPtr, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use sync::SpinLock;

use crate::frame;

/// A cache that can give memory back.
pub trait Reclaimer: Sync {
    /// A name for statistics.
    fn name(&self) -> &'static str;

    /// Frees about `frames` frames if it can; returns how many it freed.
    fn reclaim(&self, frames: usize) -> usize;
}

/// Upper bound of caches; each is a part of the kernel that registers at start-up.
const RECLAIMERS_MAX: usize = 16;

/// Frames freed at least by a thread that comes here, so that it does not come back at once.
const GOAL_MIN: usize = 64;

static RECLAIMERS: SpinLock<[Option<&'static dyn Reclaimer>; RECLAIMERS_MAX]> =
    SpinLock::new([None; RECLAIMERS_MAX]);
/// A `fn()`, or null.
static WAKEUP: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
static DIRECT: AtomicU64 = AtomicU64::new(0);
static RECLAIMED: AtomicU64 = AtomicU64::new(0);

/// Registers a cache, at start-up.
///
/// # Panics
/// When there are more caches than the kernel has parts.
pub fn register(reclaimer: &'static dyn Reclaimer) {
    let mut reclaimers = RECLAIMERS.lock();
    let slot = reclaimers.iter_mut().find(|slot| slot.is_none()).expect("there is a slot for each cache");
    *slot = Some(reclaimer);
}

/// Sets what wakes the thread that reclaims in the background. Called in any context.
pub fn set_wakeup(wakeup: fn()) {
    // Release: pairs with the Acquire in `wake`.
    WAKEUP.store(wakeup as *mut (), Release);
}

/// Asks for reclaim in the background.
pub(crate) fn wake() {
    let pointer = WAKEUP.load(Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn()` in `set_wakeup`, the only writer.
        let wakeup = unsafe { core::mem::transmute::<*mut (), fn()>(pointer) };
        wakeup();
    }
}

/// Frees about `frames` frames; returns how many. The caller may wait.
pub fn reclaim_now(frames: usize) -> usize {
    DIRECT.fetch_add(1, Relaxed);
    reclaim(frames.max(GOAL_MIN))
}

/// Reclaims until free memory is above the high mark or nothing more is found; returns whether it is above.
pub fn reclaim_until_high() -> bool {
    loop {
        let (free, high) = {
            let pool = frame::pool::lock();
            (pool.free(), pool.marks().high)
        };
        if free >= high {
            return true;
        }
        if reclaim((high - free) as usize) == 0 {
            return false;
        }
    }
}

fn reclaim(frames: usize) -> usize {
    let reclaimers = *RECLAIMERS.lock();
    let mut freed = 0;
    for reclaimer in reclaimers.into_iter().flatten() {
        if freed >= frames {
            break;
        }
        freed += reclaimer.reclaim(frames - freed);
    }
    if freed < frames {
        freed += crate::heap::shrink();
    }
    if freed < frames {
        freed += frame::drain_all_cpus();
    }
    RECLAIMED.fetch_add(freed as u64, Relaxed);
    freed
}

/// Direct reclaims, and frames reclaimed in all.
pub(crate) fn counts() -> (u64, u64) {
    (DIRECT.load(Relaxed), RECLAIMED.load(Relaxed))
}
