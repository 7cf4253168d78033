//! Staying on one CPU, also while asleep.
//!
//! A thread that has something in the keeping of its CPU (a control block that only that CPU writes) binds itself for the time. While
//! it is bound its affinity counts for nothing: it is woken, queued and run where it is. A change of affinity takes effect when
//! it ends. Binding costs one store; its end costs one, and a look at whether the affinity has changed.
//!
//! `Thread::bound` is written by the thread itself, so it never changes while others place the thread: it then sleeps or waits in
//! a queue. That is also why binding needs no CPU number, and may be interrupted at any instruction: until the store the thread may be
//! moved, from the store on it stays on the CPU that executed it, which is [`Thread::cpu`].

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use machine::preempt;

use crate::thread::{Current, Thread, current};

/// The calling thread stays on its CPU while this lives.
#[must_use]
pub struct Bound {
    not_send: PhantomData<*mut ()>,
}

impl Thread {
    /// Whether it stays on its CPU, whatever its affinity says.
    #[inline(always)]
    pub(crate) fn is_bound(&self) -> bool {
        self.bound.load(Ordering::Relaxed) || self.is_bound_for_good()
    }

    /// Whether it stays on its CPU until it ends.
    #[inline(always)]
    pub fn is_bound_for_good(&self) -> bool {
        self.bound_for_good.load(Ordering::Relaxed)
    }
}

impl Current {
    /// Binds the thread to the CPU that it is on. Does not nest.
    #[inline(always)]
    pub fn bind(&self) -> Bound {
        debug_assert!(!self.bound.load(Ordering::Relaxed), "bonds do not nest");
        self.bound.store(true, Ordering::Relaxed);
        Bound { not_send: PhantomData }
    }

    /// Binds the thread to the CPU that it is on, until it ends.
    pub fn bind_for_good(&self) {
        self.bound_for_good.store(true, Ordering::Relaxed);
    }
}

impl Drop for Bound {
    #[inline(always)]
    fn drop(&mut self) {
        let thread = current();
        debug_assert!(thread.bound.load(Ordering::Relaxed), "a bond ends once");
        thread.bound.store(false, Ordering::Relaxed);
        if thread.affinity_changed.load(Ordering::Relaxed) {
            obey_affinity(&thread);
        }
    }
}

/// The affinity may have changed while the thread was bound: it moves as soon as it can.
#[cold]
#[inline(never)]
fn obey_affinity(thread: &Thread) {
    // Before the look: a change that comes later says so again.
    thread.affinity_changed.store(false, Ordering::SeqCst);
    if !thread.is_bound() && !thread.affinity().contains(thread.cpu()) {
        preempt::set_need_resched(true);
    }
}
