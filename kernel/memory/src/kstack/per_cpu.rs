//! What each CPU keeps for kernel stacks: its reserve of frames, the running stack, a few free stacks, counters.
//!
//! The reserve is popped by a growth fault at any instruction of the running thread. So whoever else changes it does
//! so with interrupts off and its own stack backed beneath (see `reserve`): then no fault can come between.

use core::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::frame::number::FrameNumber;
use crate::number_stack::NumberStack;

/// Frames that a reserve can hold: the largest window, and what lies in it anyway.
pub(crate) const RESERVE_CAPACITY: usize = 144;

/// Free stacks that a CPU keeps for the next threads.
pub(crate) const CACHE_CAPACITY: usize = 4;

/// Growth faults that a CPU remembers.
const TRACE_CAPACITY: usize = 8;

/// No slot has this number.
pub(crate) const NO_SLOT: u32 = u32::MAX;

/// Sizes for which exits are counted: up to 1, 2, 4, 8, 16, 32, 64 KiB, and more.
pub(crate) const DEPTHS: usize = 8;

/// What a CPU counts; written by itself only.
#[derive(Default)]
pub(crate) struct StackCounters {
    /// Growth faults.
    pub(crate) faults: AtomicU64,
    /// Pages that faults, `ensure` and lending added.
    pub(crate) pages_grown: AtomicU64,
    /// Pages mapped into stacks; only the sum over CPUs means something.
    pub(crate) mapped: AtomicI64,
    /// Stacks in use; only the sum over CPUs means something.
    pub(crate) stacks: AtomicI64,
    /// Threads that were not admitted for lack of frames.
    pub(crate) refused: AtomicU64,
    /// Threads that were not admitted because their stack was being trimmed.
    pub(crate) busy: AtomicU64,
    /// Growth faults that found no frame: must stay 0.
    pub(crate) without_frame: AtomicU64,
    /// Threads parked in a growth fault.
    pub(crate) parked: AtomicU64,
    /// Frames fetched for the reserve.
    pub(crate) fetched: AtomicU64,
    /// Frames taken from the emergency stash.
    pub(crate) stashed: AtomicU64,
    /// Pages taken from sleeping threads.
    pub(crate) trimmed: AtomicU64,
    /// Stacks taken from this CPU's cache.
    pub(crate) cache_hits: AtomicU64,
    /// Stacks made anew.
    pub(crate) cache_misses: AtomicU64,
    /// Overflows.
    pub(crate) overflows: AtomicU64,
    /// Threads that ended and were measured, by how deep their stack ever was.
    pub(crate) depths: [AtomicU64; DEPTHS],
}

/// One remembered growth fault.
#[derive(Default)]
pub(crate) struct TraceEntry {
    pub(crate) address: AtomicU64,
    pub(crate) entry: AtomicU64,
}

/// See the theory of this file.
pub(crate) struct CpuStacks {
    pub(crate) reserve: NumberStack<FrameNumber, RESERVE_CAPACITY>,
    pub(crate) cache: NumberStack<u32, CACHE_CAPACITY>,
    /// First slot of the running stack.
    pub(crate) running: AtomicU32,
    /// First slot of the stack that is being switched away from.
    pub(crate) leaving: AtomicU32,
    /// Whether a refill of the reserve has been asked for.
    pub(crate) refill_wanted: AtomicBool,
    pub(crate) counters: StackCounters,
    /// New threads until one is measured.
    pub(crate) until_measured: AtomicU32,
    trace: [TraceEntry; TRACE_CAPACITY],
    trace_length: AtomicU32,
}

impl CpuStacks {
    pub(crate) const fn new() -> Self {
        Self {
            reserve: NumberStack::new(),
            cache: NumberStack::new(),
            running: AtomicU32::new(NO_SLOT),
            leaving: AtomicU32::new(NO_SLOT),
            refill_wanted: AtomicBool::new(false),
            counters: StackCounters {
                faults: AtomicU64::new(0),
                pages_grown: AtomicU64::new(0),
                mapped: AtomicI64::new(0),
                stacks: AtomicI64::new(0),
                refused: AtomicU64::new(0),
                busy: AtomicU64::new(0),
                without_frame: AtomicU64::new(0),
                parked: AtomicU64::new(0),
                fetched: AtomicU64::new(0),
                stashed: AtomicU64::new(0),
                trimmed: AtomicU64::new(0),
                cache_hits: AtomicU64::new(0),
                cache_misses: AtomicU64::new(0),
                overflows: AtomicU64::new(0),
                depths: [const { AtomicU64::new(0) }; DEPTHS],
            },
            until_measured: AtomicU32::new(0),
            trace: [const { TraceEntry { address: AtomicU64::new(0), entry: AtomicU64::new(0) } };
                TRACE_CAPACITY],
            trace_length: AtomicU32::new(0),
        }
    }

    /// Remembers a growth fault: no lock, two stores.
    pub(crate) fn remember(&self, address: u64, entry: u64) {
        let length = self.trace_length.load(Relaxed);
        let slot = &self.trace[length as usize % TRACE_CAPACITY];
        slot.address.store(address, Relaxed);
        slot.entry.store(entry, Relaxed);
        self.trace_length.store(length.wrapping_add(1), Relaxed);
    }

    /// Address and page-table entry of the last growth fault at an address within the range.
    pub(crate) fn last_growth(&self, range: core::ops::Range<u64>) -> Option<(u64, u64)> {
        let length = self.trace_length.load(Relaxed) as usize;
        (0..TRACE_CAPACITY.min(length)).find_map(|back| {
            let entry = &self.trace[(length - 1 - back) % TRACE_CAPACITY];
            let address = entry.address.load(Relaxed);
            range.contains(&address).then(|| (address, entry.entry.load(Relaxed)))
        })
    }
}

/// Index of the depth that a stack that was `bytes` deep counts under.
pub(crate) const fn depth_index(bytes: u64) -> usize {
    let power = bytes.div_ceil(1024).next_power_of_two().trailing_zeros() as usize;
    if power < DEPTHS { power } else { DEPTHS - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_are_powers_of_two() {
        assert_eq!(
            [0, 900, 1024, 1025, 2048, 4096, 4097, 8192, 16384].map(depth_index),
            [0, 0, 0, 1, 1, 2, 3, 3, 4]
        );
        assert_eq!([32 << 10, 64 << 10, 65 << 10, 127 << 12].map(depth_index), [5, 6, 7, 7]);
    }

    #[test]
    fn the_last_growth_within_a_range_is_found() {
        let stacks = CpuStacks::new();
        assert_eq!(stacks.last_growth(0..100), None);
        for address in 0..20 {
            stacks.remember(address * 10, address);
        }
        assert_eq!(stacks.last_growth(0..185), Some((180, 18)));
        assert_eq!(stacks.last_growth(0..50), None);
    }
}
