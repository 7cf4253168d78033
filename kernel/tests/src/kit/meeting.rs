//! A point where threads on different CPUs meet, again and again.
//!
//! The last one to arrive lets all others go. Who waits spins for a moment, because those who leave spinning leave at once; then it
//! halts, because in a virtual machine with fewer processors than ours it keeps those from running that it waits for.
//! Works with interrupts on; [`Meeting::meet_spinning`] with interrupts off.

use core::sync::atomic::{AtomicU32, Ordering};

use ::machine::cpu::{self, AtomicCpuSet, CpuSet};
use ::machine::ipi::{self, Ipi};
use ::machine::{interrupt, preempt};

/// Looks before a waiting CPU halts.
const SPINS_MAX: u32 = 2_000;

/// The meeting point of a fixed number of threads, each on a CPU of its own.
#[derive(Debug)]
pub(crate) struct Meeting {
    members: u32,
    arrived: AtomicU32,
    /// Meetings held.
    held: AtomicU32,
    halted: AtomicCpuSet,
}

impl Meeting {
    /// For so many threads.
    pub(crate) const fn new(members: u32) -> Meeting {
        Meeting {
            members,
            arrived: AtomicU32::new(0),
            held: AtomicU32::new(0),
            halted: AtomicCpuSet::new(CpuSet::EMPTY),
        }
    }

    /// Waits until all have arrived.
    pub(crate) fn meet(&self) {
        let Some(held) = self.arrive() else { return };
        let mut spins = 0;
        while self.held.load(Ordering::SeqCst) == held {
            spins += 1;
            if spins < SPINS_MAX {
                cpu::relax();
            } else {
                self.halt(held);
            }
        }
    }

    /// Waits until all have arrived, with interrupts off all the time: nobody handles anything meanwhile.
    pub(crate) fn meet_spinning(&self) {
        debug_assert!(!interrupt::are_enabled(), "else `meet` halts");
        let Some(held) = self.arrive() else { return };
        while self.held.load(Ordering::SeqCst) == held {
            cpu::relax();
        }
    }

    /// Comes to the meeting; the last one opens it, the others get the number of those held before.
    fn arrive(&self) -> Option<u32> {
        let held = self.held.load(Ordering::SeqCst);
        if self.arrived.fetch_add(1, Ordering::SeqCst) + 1 < self.members {
            return Some(held);
        }
        self.arrived.store(0, Ordering::SeqCst);
        self.held.store(held.wrapping_add(1), Ordering::SeqCst);
        for cpu in self.halted.load(Ordering::SeqCst).iter() {
            ipi::send(cpu, Ipi::Reschedule);
        }
        None
    }

    #[inline(never)]
    fn halt(&self, held: u32) {
        let preemption = preempt::disable();
        let this = cpu::current();
        interrupt::disable_unguarded();
        self.halted.insert(this, Ordering::SeqCst);
        if self.held.load(Ordering::SeqCst) == held {
            interrupt::enable_and_halt();
        } else {
            interrupt::enable();
        }
        self.halted.remove(this, Ordering::SeqCst);
        drop(preemption);
    }
}
