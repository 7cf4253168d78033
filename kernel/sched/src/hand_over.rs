//! Giving the CPU to a sleeping thread, past the run queue (specs/fiasco-mp.md, items 10 and 29).
//!
//! Who wakes a thread and then sleeps itself, on the same CPU, pays for two tree operations and two turns of the run-queue lock that
//! decide nothing: it is known who runs next. A [`HandOver`] is the claim on such a sleeper; [`crate::block_interruptible_handing_over`]
//! redeems it: the thread that blocks leaves the run queue's books, the other one enters them and is switched to, under one lock.
//! What is left of the turn goes along, so two threads that take turns get no more of the CPU than one.
//!
//! A claimed thread is in state WAKING: nobody else can wake it, and it stays alive, because only a thread that runs can end. A
//! claim that is dropped wakes the thread as usual.

use core::mem::ManuallyDrop;

use crate::placement;
use crate::state::WakeClaim;
use crate::thread::Thread;

/// A sleeping thread that only the holder may wake.
#[must_use = "dropping it wakes the thread as usual"]
pub struct HandOver {
    thread: *const Thread,
    uninterruptible: bool,
}

impl HandOver {
    /// Claims a thread; None if it does not sleep, or will not any more: then there is nothing left to do.
    #[inline]
    pub fn claim(thread: &Thread) -> Option<HandOver> {
        match thread.state.claim_wake(false) {
            WakeClaim::Enqueue { uninterruptible } => Some(HandOver { thread, uninterruptible }),
            WakeClaim::Nothing | WakeClaim::Kept => None,
        }
    }

    #[inline(always)]
    pub(crate) fn thread(&self) -> &Thread {
        // SAFETY: a claimed thread is alive until it has been enqueued, which only the holder of the claim does.
        unsafe { &*self.thread }
    }

    /// The thread, for one who enqueues it before anything else.
    #[inline(always)]
    pub(crate) fn into_claimed(self) -> &'static Thread {
        let claim = ManuallyDrop::new(self);
        if claim.uninterruptible {
            crate::cpu::Cpu::this().uninterruptible.fetch_sub(1, core::sync::atomic::Ordering::Relaxed);
        }
        // SAFETY: as in `thread`; the caller is the dispatcher, which makes it runnable on this CPU with interrupts off.
        unsafe { &*claim.thread }
    }
}

impl Drop for HandOver {
    fn drop(&mut self) {
        placement::enqueue_woken(self.thread(), self.uninterruptible, false);
    }
}
