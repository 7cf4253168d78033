//! Caches that can give memory back.
//!
//! A cache registers a [`Reclaimer`] once. Two ways lead here: an allocation that finds free memory below the minimum
//! reclaims for itself ([`reclaim_now`]), and below the low mark a thread is woken ([`set_wakeup`]) that calls
//! [`reclaim_until_high`].
//!
//! First of all goes what waits for RCU's grace periods, which are hurried; if the caller may not wait for them, that is skipped.
//!
//! One thread at a time reclaims: caches call all CPUs, and what one thread finds is there for all. Others wait and then try
//! their allocations again. What CPUs keep in magazines and lists is fetched last; the frames in lists were free
//! before, so they are not counted as found.
//!
//! When nothing is found the thread is not woken again for `REST_NS`: below the low mark each batch asks for it.
//!
//! Rules for reclaimers: they are called by any thread that allocates, perhaps with sleeping locks held, so they only
//! *try* to lock what an allocating thread may hold, and do not allocate. Spin locks are never held here.

use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::PAGE_SIZE;
use sync::SpinLock;

use crate::charge::Whose;
use crate::frame::{Purpose, Urgency};
use crate::{address_space, file_cache, frame, heap, kstack, oom, parking, statistics};

/// A cache that can give memory back.
pub trait Reclaimer: Sync {
    /// A name for statistics.
    fn name(&self) -> &'static str;

    /// Frees about `frames` frames if it can; returns how many it freed.
    fn reclaim(&self, frames: usize) -> usize;

    /// Frees about `frames` of the frames that somebody pays for, if it can tell who pays; returns how many it freed.
    fn reclaim_from(&self, _whose: Whose, _frames: usize) -> usize {
        0
    }

    /// Lets go of what is of no use any more, however much memory is free.
    fn tidy(&self) {}
}

/// Upper bound of caches; each is a part of the kernel that registers at start-up.
const RECLAIMERS_MAX: usize = 16;

/// Frames freed at least by a thread that comes here, so that it does not come back at once.
const GOAL_MIN: usize = 64;

/// Frames above the part of the reserve that atomic allocations leave: what a large request of theirs may leave.
const FEW: u64 = 8;

/// How long the thread in the background rests when it found nothing.
const REST_NS: u64 = 50_000_000;

static RECLAIMERS: SpinLock<[Option<&'static dyn Reclaimer>; RECLAIMERS_MAX]> =
    SpinLock::new([None; RECLAIMERS_MAX]);
/// A `fn()`, or null.
static WAKEUP: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// Where the stack of the thread that reclaims lies; 0 when there is none.
static RECLAIMING: AtomicUsize = AtomicUsize::new(0);
/// Until when the thread in the background need not be woken.
static RESTS_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
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
    if machine::time::now_ns() >= RESTS_UNTIL_NS.load(Relaxed) {
        call_wakeup();
    }
}

fn call_wakeup() {
    let pointer = WAKEUP.load(Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn()` in `set_wakeup`, the only writer.
        let wakeup = unsafe { core::mem::transmute::<*mut (), fn()>(pointer) };
        wakeup();
    }
}

/// Frees about `frames` frames; returns how many, or what was asked for when another thread did it meanwhile. The caller may
/// wait.
pub fn reclaim_now(frames: usize) -> usize {
    DIRECT.fetch_add(1, Relaxed);
    match alone(|| reclaim(frames.max(GOAL_MIN))) {
        Some(freed) => freed,
        None if is_own(RECLAIMING.load(Relaxed)) => 0,
        None => {
            parking::wait_while((&raw const RECLAIMING).addr(), &|| RECLAIMING.load(Relaxed) != 0);
            frames
        }
    }
}

/// Frees about so many of somebody's frames; returns how many. The caller may wait.
pub(crate) fn reclaim_from(whose: Whose, frames: usize) -> usize {
    /// Others reclaim for others.
    const TURNS_MAX: u32 = 8;
    for _ in 0..TURNS_MAX {
        let done = alone(|| {
            let reclaimers = *RECLAIMERS.lock();
            let mut freed = 0;
            for reclaimer in reclaimers.into_iter().flatten() {
                freed += reclaimer.reclaim_from(whose, frames);
            }
            // They are free, and paid for by nobody, a grace period after they were given up.
            if freed > 0 {
                sync::rcu::relieve();
            }
            freed
        });
        if let Some(freed) = done {
            return freed;
        }
        if is_own(RECLAIMING.load(Relaxed)) {
            return 0;
        }
        parking::wait_while((&raw const RECLAIMING).addr(), &|| RECLAIMING.load(Relaxed) != 0);
    }
    0
}

/// Does it if nobody else is reclaiming.
fn alone<R>(work: impl FnOnce() -> R) -> Option<R> {
    // Acquire and Release: one thread after the other.
    let _runs =
        kstack::begin_freeing(|| RECLAIMING.compare_exchange(0, stack_number(), Acquire, Relaxed).is_ok())?;
    let result = work();
    RECLAIMING.store(0, Release);
    parking::wake((&raw const RECLAIMING).addr());
    Some(result)
}

/// Which of the stacks the caller runs on: windows are aligned to their size, 64 KiB at least.
fn stack_number() -> usize {
    const WINDOW_SHIFT: u32 = 16;
    let marker = 0_u8;
    (&raw const marker).addr() >> WINDOW_SHIFT
}

/// Whether it is the caller that reclaims: a reclaimer should not allocate, but if it does, it must not wait for itself.
fn is_own(reclaiming: usize) -> bool {
    reclaiming == stack_number()
}

/// What the heap may keep beyond the objects in use: this part of memory.
const SLACK_SHARE: u64 = 256;

static TIDYING_WANTED: AtomicBool = AtomicBool::new(false);

/// Many objects were freed: asks for [`tidy`] in a while.
pub(crate) fn ask_to_tidy() {
    if !TIDYING_WANTED.load(Relaxed) && !TIDYING_WANTED.swap(true, Relaxed) {
        call_wakeup();
    }
}

/// Whether it was asked for [`tidy`] since the last question.
pub fn wants_tidying() -> bool {
    TIDYING_WANTED.swap(false, Relaxed)
}

/// Lets caches go of what is of no use, and gives back what the heap keeps beyond the objects in use, if that is much. For
/// quiet moments after many objects were freed.
pub fn tidy() {
    let reclaimers = *RECLAIMERS.lock();
    reclaimers.into_iter().flatten().for_each(|reclaimer| reclaimer.tidy());
    if heap::slack_bytes() > frame::total_frames() * PAGE_SIZE as u64 / SLACK_SHARE {
        let _freed = alone(heap::shrink);
    }
}

/// Reclaims until free memory is above the high mark or nothing more is found; returns whether it is above. When so little is
/// left that threads are not run for want of stack pages, nobody else may be able to ask the out-of-memory policy: then it
/// is asked here.
pub fn reclaim_until_high() -> bool {
    loop {
        let (free, high, floor) = {
            let pool = frame::pool::lock();
            (pool.free(), pool.marks().high, pool.marks().floor(Urgency::Atomic) + FEW)
        };
        if free >= high {
            return true;
        }
        if alone(|| reclaim((high - free) as usize)).unwrap_or(0) == 0 {
            // What waits to be ended has memory, perhaps that of the last victim.
            let ends_some = ENDING_WANTED.load(Relaxed);
            if free <= floor && !ends_some && oom::invoke(oom::Shortage::Machine) == oom::Relief::Retry {
                continue;
            }
            RESTS_UNTIL_NS.store(machine::time::now_ns() + REST_NS, Relaxed);
            return false;
        }
    }
}

static ENDING_WANTED: AtomicBool = AtomicBool::new(false);

/// Address spaces wait to be ended by a worker.
pub(crate) fn ask_to_end_spaces() {
    ENDING_WANTED.store(true, Relaxed);
    call_wakeup();
}

/// Whether it was asked for [`end_spaces`] since the last question.
pub fn wants_spaces_ended() -> bool {
    ENDING_WANTED.swap(false, Relaxed)
}

/// Ends address spaces whose last user went while somebody looked at them who must not do that. May sleep; for a thread that nobody who makes memory
/// free waits for.
pub fn end_spaces() {
    address_space::end_left();
}

/// Whether clean pages of files make up more than a 64th of memory: then who finds none free has come too late for what was reclaimed, and may try again.
pub(crate) fn files_have_more() -> bool {
    let memory = statistics::memory();
    let counts = file_cache::write_back_counts();
    let clean = memory.used(Purpose::FileCache).saturating_sub(counts.dirty + counts.under_write_back);
    clean > memory.total_frames / 64
}

fn reclaim(frames: usize) -> usize {
    let reclaimers = *RECLAIMERS.lock();
    // What waits for grace periods is garbage: it goes before anything that somebody may still want.
    let mut freed = if sync::rcu::relieve() > 0 { heap::shrink() } else { 0 };
    for reclaimer in reclaimers.into_iter().flatten() {
        if freed >= frames {
            break;
        }
        freed += reclaimer.reclaim(frames - freed);
    }
    if freed < frames {
        freed += heap::shrink();
        frame::drain_all_cpus();
    }
    // Pages of files are free a grace period after they were given up.
    if freed > 0 {
        sync::rcu::relieve();
    }
    RECLAIMED.fetch_add(freed as u64, Relaxed);
    freed
}

/// Direct reclaims, and frames reclaimed in all.
pub(crate) fn counts() -> (u64, u64) {
    (DIRECT.load(Relaxed), RECLAIMED.load(Relaxed))
}
