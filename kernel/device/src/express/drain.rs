//! Taking all events out of a status register.
//!
//! A port that interrupts by messages sends one only when its first enabled event appears (PCI Express, 6.7.3.4 for slots, 6.2.4.1.2 for the
//! errors of a root). An event that appears between a handler's read and its write stays behind, and with it no further message ever comes. So
//! handlers read and clear until they find nothing. After [`ROUNDS`] they leave the rest to the thread of the services.

use core::sync::atomic::{AtomicBool, Ordering};

use sync::IrqSpinLock;

use super::worker;
use crate::interrupt::Claim;

/// Most times that a status is read and cleared at once.
pub(super) const ROUNDS: usize = 16;
/// When the thread looks again at a status that has something after [`ROUNDS`] looks of its own.
const AGAIN_NS: u64 = 100_000_000;

/// Who takes the events of one status register, one at a time: a clear is never for an event that another one has not seen.
pub(super) struct Drain {
    taking: IrqSpinLock<()>,
    /// More was left than one call takes.
    is_unfinished: AtomicBool,
}

impl Drain {
    /// `class` names the class of the lock.
    pub(super) const fn new(class: &'static str) -> Self {
        Self { taking: IrqSpinLock::named(class, ()), is_unfinished: AtomicBool::new(false) }
    }

    /// In the handler: calls `take`, which reads the status, clears and notes what it has read and says whether that was anything, until
    /// there is nothing.
    pub(super) fn interrupted(&self, take: impl FnMut() -> bool) -> Claim {
        if self.take_all(take) == 0 {
            return Claim::NotMine;
        }
        worker::kick();
        Claim::Mine
    }

    /// In the thread, before it looks at what was noted: takes what handlers have left. Returns when to come again, if there is still more.
    pub(super) fn finish(&self, now_ns: u64, take: impl FnMut() -> bool) -> Option<u64> {
        if self.is_unfinished.swap(false, Ordering::Relaxed) {
            self.take_all(take);
        }
        self.is_unfinished.load(Ordering::Relaxed).then_some(now_ns + AGAIN_NS)
    }

    fn take_all(&self, mut take: impl FnMut() -> bool) -> usize {
        let _taking = self.taking.lock();
        for round in 0..ROUNDS {
            if !take() {
                return round;
            }
        }
        self.is_unfinished.store(true, Ordering::Relaxed);
        ROUNDS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handler_leaves_a_storm_to_the_thread() {
        let drain = Drain::new("a test");
        let (mut left, mut taken) = (2 * ROUNDS + 1, 0);
        let mut take = || {
            let is_some = left > 0;
            left -= usize::from(is_some);
            taken += usize::from(is_some);
            is_some
        };
        assert_eq!(drain.interrupted(&mut take), Claim::Mine);
        assert_eq!(drain.finish(0, &mut take), Some(AGAIN_NS));
        assert_eq!(drain.finish(AGAIN_NS, &mut take), None);
        assert_eq!(drain.interrupted(&mut take), Claim::NotMine);
        assert_eq!(taken, 2 * ROUNDS + 1);
    }
}
