//! What is kept of locks for each thread.
//!
//! Crate `sched` has a [`ThreadLocks`] in each thread and says how to find that of the running one ([`set_finder`]). What
//! runs before there are threads has one per CPU.

#[cfg(any(debug_assertions, feature = "lcount"))]
use core::sync::atomic::{AtomicPtr, Ordering};

#[cfg(feature = "lcount")]
use super::count::Counts;
#[cfg(debug_assertions)]
use super::held::HeldList;

/// Part of each thread: the sleeping locks that it holds, and how many locks it has taken. Empty where classes are not
/// compiled in.
pub struct ThreadLocks {
    #[cfg(debug_assertions)]
    pub(super) held: HeldList,
    #[cfg(feature = "lcount")]
    pub(super) counts: Counts,
}

impl ThreadLocks {
    /// For a thread that has not run yet.
    pub const fn new() -> Self {
        Self {
            #[cfg(debug_assertions)]
            held: HeldList::new(),
            #[cfg(feature = "lcount")]
            counts: Counts::new(),
        }
    }
}

impl Default for ThreadLocks {
    fn default() -> Self {
        Self::new()
    }
}

/// A `fn(usize) -> &'static ThreadLocks`, null before there are threads.
#[cfg(any(debug_assertions, feature = "lcount"))]
static FINDER: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

#[cfg(any(debug_assertions, feature = "lcount"))]
static BEFORE_THREADS: crate::PerCpu<ThreadLocks> = crate::per_cpu!(ThreadLocks::new());

/// Says how the running thread's [`ThreadLocks`] is found from the word that each CPU keeps of its thread
/// ([`machine::cpu::thread_word`]); it is not asked while the word is 0. The result may be used for as long as the thread runs.
#[cfg_attr(
    not(any(debug_assertions, feature = "lcount")),
    allow(unused_variables, reason = "nobody asks where classes are not compiled in")
)]
pub fn set_finder(finder: fn(usize) -> &'static ThreadLocks) {
    #[cfg(any(debug_assertions, feature = "lcount"))]
    // Release: pairs with the Acquire in `with_current`.
    FINDER.store(finder as *mut (), Ordering::Release);
}

/// A sleeping lock that the running thread took, perhaps before it was a thread, is held no more.
#[cfg(debug_assertions)]
pub(super) fn forget(lock: usize) {
    if !with_current(|locks| locks.held.remove(lock)) {
        let _preemption = machine::preempt::disable();
        BEFORE_THREADS.of(machine::cpu::current()).held.remove(lock);
    }
}

/// Whether there are threads.
#[cfg(debug_assertions)]
pub(super) fn are_there() -> bool {
    !FINDER.load(Ordering::Relaxed).is_null()
}

/// Calls `body` with what is kept for the running thread.
#[cfg(any(debug_assertions, feature = "lcount"))]
pub(super) fn with_current<R>(body: impl FnOnce(&ThreadLocks) -> R) -> R {
    let word = machine::cpu::thread_word();
    let finder = FINDER.load(Ordering::Acquire);
    if word == 0 || finder.is_null() {
        return body(BEFORE_THREADS.of(machine::cpu::current()));
    }
    // SAFETY: a non-null pointer was stored from such a function in `set_finder`.
    let finder = unsafe { core::mem::transmute::<*mut (), fn(usize) -> &'static ThreadLocks>(finder) };
    body(finder(word))
}
