//! A counter that every CPU adds to without sharing a cache line.
//!
//! Each CPU adds to its own cell; the sum is exact when nobody adds, else some value that was true
//! in between. Cells may become negative on one CPU when another one decrements what it counted.

use core::sync::atomic::{AtomicI64, Ordering};

use machine::cpu::MAX_CPUS;

use crate::{CachePadded, PerCpu};

/// A counter split by CPU.
pub struct PerCpuCounter {
    cells: PerCpu<AtomicI64>,
}

impl PerCpuCounter {
    /// Zero.
    pub const fn new() -> Self {
        Self { cells: PerCpu::from_array([const { CachePadded::new(AtomicI64::new(0)) }; MAX_CPUS]) }
    }

    /// Adds `amount`, which may be negative.
    #[inline]
    pub fn add(&self, amount: i64) {
        // An interrupt between load and store would lose its addition, hence the atomic addition;
        // the line is this CPU's own, so it does not bounce.
        self.cells.of(machine::cpu::current()).fetch_add(amount, Ordering::Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn decrement(&self) {
        self.add(-1);
    }

    /// The sum over all CPUs.
    pub fn sum(&self) -> i64 {
        self.cells.iter().map(|cell| cell.load(Ordering::Relaxed)).sum()
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
}
