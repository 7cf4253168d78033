//! A static counter that every CPU adds to without sharing a cache line.
//!
//! Each CPU adds to a cell of its own, densely beside the cells of its other counters; the sum is exact when nobody adds,
//! else some value that was true in between. Cells may become negative on one CPU when another one decrements what it
//! counted. An addition is one instruction that is not atomic on the bus: no preemption can get between finding the cell
//! and adding to it.
//!
//! Cells are few (`machine::cpu::STATIC_CELLS`) and given out once, at a counter's first use: this is for statics.
//! Counters that come and go are `memory::per_cpu::Counter`s. Counters beyond the cells that there are share one word.

use core::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use machine::cpu::{self, CpuId, MAX_CPUS, STATIC_CELLS};

/// The counter has no cell yet.
const NONE: usize = 0;
/// There is no cell for it.
const SHARED: usize = usize::MAX;

/// Cells given out, and the first, which stands for none.
static GIVEN: AtomicUsize = AtomicUsize::new(1);

/// A counter split by CPU.
pub struct PerCpuCounter {
    /// The number of its cell. Written once.
    cell: AtomicUsize,
    /// Where it counts without one.
    shared: AtomicI64,
}

impl PerCpuCounter {
    /// Zero.
    pub const fn new() -> Self {
        Self { cell: AtomicUsize::new(NONE), shared: AtomicI64::new(0) }
    }

    /// Adds `amount`, which may be negative.
    #[inline]
    pub fn add(&'static self, amount: i64) {
        match self.cell.load(Ordering::Relaxed) {
            NONE | SHARED => self.add_without_cell(amount),
            cell => cpu::add_to_static(cell, amount),
        }
    }

    #[cold]
    #[inline(never)]
    fn add_without_cell(&self, amount: i64) {
        // What is counted here before a cell was found stays here: it is part of the sum.
        self.shared.fetch_add(amount, Ordering::Relaxed);
        if self.cell.load(Ordering::Relaxed) == NONE {
            let given = GIVEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
                (next < STATIC_CELLS).then_some(next + 1)
            });
            // Two CPUs that come here at once take two cells, of which one is used.
            let _ = self.cell.compare_exchange(
                NONE,
                given.unwrap_or(SHARED),
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
        }
    }

    /// Adds one.
    #[inline]
    pub fn increment(&'static self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn decrement(&'static self) {
        self.add(-1);
    }

    /// The sum over all CPUs.
    pub fn sum(&self) -> i64 {
        let shared = self.shared.load(Ordering::Relaxed);
        match self.cell.load(Ordering::Relaxed) {
            NONE | SHARED => shared,
            cell => {
                (0..MAX_CPUS).map(|cpu| cpu::static_cell(CpuId::from_index(cpu), cell)).sum::<i64>() + shared
            }
        }
    }
}

impl Default for PerCpuCounter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_counts_all_cpus() {
        static COUNTER: PerCpuCounter = PerCpuCounter::new();
        COUNTER.add(5);
        std::thread::spawn(|| COUNTER.decrement()).join().unwrap();
        assert_eq!(COUNTER.sum(), 4);
    }

    #[test]
    fn counters_beyond_the_cells_count_all_the_same() {
        static COUNTERS: [PerCpuCounter; STATIC_CELLS + 2] =
            [const { PerCpuCounter::new() }; STATIC_CELLS + 2];
        for round in 0..3 {
            for (index, counter) in COUNTERS.iter().enumerate() {
                counter.add(index as i64 + round);
            }
        }
        for (index, counter) in COUNTERS.iter().enumerate() {
            assert_eq!(counter.sum(), 3 * index as i64 + 3);
        }
    }
}
