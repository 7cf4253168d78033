//! How many nodes there are in the trees of the kernel.
//!
//! Each CPU counts the nodes that it links and unlinks, by level; only sums mean something.

use core::sync::atomic::{AtomicI64, Ordering};
use sync::{PerCpu, per_cpu};

/// Levels of the highest tree there can be: 64 bits, four at a time.
pub const LEVELS: usize = 16;

static LINKED: PerCpu<[AtomicI64; LEVELS]> = per_cpu!([const { AtomicI64::new(0) }; LEVELS]);

/// Notes that a node was put into a tree, or taken out of one.
pub(super) fn count(level: u32, change: i64) {
    // Whichever CPU this is by now: the sum is right.
    LINKED.of(machine::cpu::current())[level as usize % LEVELS].fetch_add(change, Ordering::Relaxed);
}

/// The nodes in all trees, by level; 0 is that of the leaves.
#[must_use]
pub fn levels() -> [u64; LEVELS] {
    let mut sums = [0_i64; LEVELS];
    for counts in LINKED.iter() {
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
    sums.map(|sum| sum.max(0) as u64)
}
