//! Numbers that are unique and nothing else, for objects that are made on all CPUs all the time.
//!
//! Each CPU hands out the numbers of a batch of its own, so that making objects writes no shared line but once in [`BATCH`] of them.
//! Numbers never come again: there are 2^64.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::{CachePadded, PerCpu, per_cpu};

/// Numbers that a CPU takes at a time.
const BATCH: u64 = 64;

/// A source of unique numbers.
pub struct Identifiers {
    /// The next number of each CPU; a multiple of the batch when it needs another one.
    own: PerCpu<AtomicU64>,
    batches: CachePadded<AtomicU64>,
}

impl Identifiers {
    /// A source, whose first number is not 0.
    pub const fn new() -> Self {
        Self { own: per_cpu!(AtomicU64::new(0)), batches: CachePadded::new(AtomicU64::new(0)) }
    }

    /// A number that nobody else gets; never 0.
    #[inline]
    pub fn take(&self) -> u64 {
        // Preemption may be on: the first thread of a CPU takes its number before anything can switch. Who moves to another CPU in
        // between takes that of the CPU it was on.
        let own = self.own.of(machine::cpu::current());
        // Relaxed: only uniqueness matters.
        let next = |number: u64| (!number.is_multiple_of(BATCH)).then_some(number + 1);
        match own.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next) {
            Ok(number) => number,
            Err(_) => self.take_batch(own),
        }
    }

    /// The first of a new batch. Of two that come here at once for one CPU, the batch of one is thrown away.
    #[cold]
    fn take_batch(&self, own: &AtomicU64) -> u64 {
        let first = (self.batches.fetch_add(1, Ordering::Relaxed) * BATCH).max(1);
        own.store(first + 1, Ordering::Relaxed);
        first
    }
}

impl Default for Identifiers {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn numbers_are_unique_on_all_cpus() {
        static SOURCE: Identifiers = Identifiers::new();
        let own = || (0..1_000).map(|_| SOURCE.take()).collect::<Vec<_>>();
        let mut all = std::thread::scope(|scope| {
            let other = scope.spawn(own);
            let mut all = own();
            all.extend(other.join().unwrap());
            all
        });
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 2_000);
        assert!(all[0] > 0);
    }
}
