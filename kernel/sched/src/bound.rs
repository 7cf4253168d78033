//! Staying on one CPU, also while asleep.
//!
//! A thread that has something in the keeping of its CPU (a control block that only that CPU writes) binds itself for the time. While
//! it is bound its affinity counts for nothing: it is woken, queued and run where it is. A change of affinity takes effect when
//! it ends. Binding costs one store, and so does its end.
//!
//! `Thread::bound` is written by the thread itself, so it never changes while others place the thread: it then sleeps or waits in
//! a queue.

use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use machine::cpu::{self, CpuId, CpuSet};
use machine::preempt;

use crate::thread::{Current, Thread, current};

/// The bond does not end with the guard.
const FOR_GOOD: u32 = 1 << 31;

/// The calling thread stays on its CPU while this lives.
#[must_use]
pub struct Bound {
    not_send: PhantomData<*mut ()>,
}

impl Thread {
    /// The CPU that it is bound to.
    #[inline(always)]
    pub fn bound_cpu(&self) -> Option<CpuId> {
        match self.bound.load(Ordering::Relaxed) & !FOR_GOOD {
            0 => None,
            cpu => Some(CpuId::from_index(cpu as usize - 1)),
        }
    }
}

impl Thread {
    /// Whether it stays on its CPU until it ends.
    pub fn is_bound_for_good(&self) -> bool {
        self.bound.load(Ordering::Relaxed) & FOR_GOOD != 0
    }
}

impl Current {
    /// Binds the thread to the CPU that it is on. Does not nest.
    #[inline]
    pub fn bind(&self) -> Bound {
        self.bind_with(0);
        Bound { not_send: PhantomData }
    }

    /// Binds the thread to the CPU that it is on, until it ends.
    pub fn bind_for_good(&self) {
        self.bind_with(FOR_GOOD);
    }

    #[inline(always)]
    fn bind_with(&self, flag: u32) {
        let _here = preempt::disable();
        let before = self.bound.load(Ordering::Relaxed);
        if before & FOR_GOOD == 0 {
            self.bound.store(flag | (cpu::current().index() as u32 + 1), Ordering::Relaxed);
        }
    }
}

impl Drop for Bound {
    #[inline]
    fn drop(&mut self) {
        let thread = current();
        let bound = thread.bound.load(Ordering::Relaxed);
        debug_assert!(bound != 0, "a bond ends once");
        if bound & FOR_GOOD != 0 {
            return;
        }
        let here = CpuSet::only(CpuId::from_index(bound as usize - 1));
        thread.bound.store(0, Ordering::Relaxed);
        if !thread.affinity().contains(here.iter().next().expect("the set has a member")) {
            // Its affinity has changed meanwhile: it moves as soon as it can.
            preempt::set_need_resched(true);
        }
    }
}
