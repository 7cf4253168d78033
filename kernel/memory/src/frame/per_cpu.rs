//! Frames that a CPU keeps at hand: a stack of free frames and a pool of zeroed ones.
//!
//! Transitions of a frame: *Free* (buddy) → `refill` → *Cached* → `pop` → *Allocated* → `push` → *Cached* → `drain` →
//! *Free*. Zeroed frames are made from cached ones while the CPU is idle.
//!
//! Everything here is written by the owning CPU with interrupts off; other CPUs read the counts for statistics, so the
//! fields are atomics used with plain loads and stores. A pop costs a load of the count, a load of the number and two
//! stores; the pool's lock is taken once in [`BATCH`] allocations at most.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

use super::number::FrameNumber;
use super::purpose::Purpose;
use crate::number_stack::NumberStack;

/// Frames moved between a CPU and the pool at once.
pub(crate) const BATCH: usize = 32;

/// Free frames that a CPU keeps at most.
pub(crate) const READY_CAPACITY: usize = 3 * BATCH;

/// Zeroed frames that a CPU keeps at most.
pub(crate) const ZEROED_CAPACITY: usize = 32;

/// What a CPU counts.
#[derive(Default)]
pub(crate) struct Counters {
    /// Frames in use by purpose. The CPU that frees a frame counts down, so only sums over CPUs mean something.
    pub(crate) used: [AtomicI64; Purpose::COUNT],
    /// Frames given out.
    pub(crate) allocated: AtomicU64,
    /// Frames taken back.
    pub(crate) freed: AtomicU64,
    /// Batches fetched from the pool.
    pub(crate) refills: AtomicU64,
    /// Batches given to the pool.
    pub(crate) drains: AtomicU64,
    /// Zeroed frames asked for and found in the pool of zeroed ones.
    pub(crate) zeroed_hits: AtomicU64,
    /// Zeroed frames asked for that had to be zeroed on the spot.
    pub(crate) zeroed_misses: AtomicU64,
}

/// Adds to a counter that only this CPU writes: no atomic operation on the bus.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// The frames at hand of one CPU.
pub(crate) struct CpuFrames {
    pub(crate) ready: NumberStack<FrameNumber, READY_CAPACITY>,
    pub(crate) zeroed: NumberStack<FrameNumber, ZEROED_CAPACITY>,
    /// 1 while the CPU zeroes a frame ahead, which is in neither of the stacks then.
    pub(crate) zeroing: AtomicU32,
    pub(crate) counters: Counters,
}

impl CpuFrames {
    pub(crate) const fn new() -> Self {
        Self {
            ready: NumberStack::new(),
            zeroed: NumberStack::new(),
            zeroing: AtomicU32::new(0),
            counters: Counters {
                used: [const { AtomicI64::new(0) }; Purpose::COUNT],
                allocated: AtomicU64::new(0),
                freed: AtomicU64::new(0),
                refills: AtomicU64::new(0),
                drains: AtomicU64::new(0),
                zeroed_hits: AtomicU64::new(0),
                zeroed_misses: AtomicU64::new(0),
            },
        }
    }

    /// Free frames that the CPU has at hand.
    pub(crate) fn at_hand(&self) -> u64 {
        (self.ready.len() + self.zeroed.len()) as u64 + u64::from(self.zeroing.load(Relaxed))
    }

    /// Counts `frames` more (or fewer) in use.
    #[inline]
    pub(crate) fn count(&self, purpose: Purpose, frames: i64) {
        let used = &self.counters.used[purpose as usize];
        used.store(used.load(Relaxed).wrapping_add(frames), Relaxed);
        let (events, amount) =
            if frames >= 0 { (&self.counters.allocated, frames) } else { (&self.counters.freed, -frames) };
        bump(events, amount as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_frames_in_use() {
        let frames = CpuFrames::new();
        frames.count(Purpose::Slab, 8);
        frames.count(Purpose::Slab, -3);
        assert_eq!(frames.counters.used[Purpose::Slab as usize].load(Relaxed), 5);
        assert_eq!(frames.counters.allocated.load(Relaxed), 8);
        assert_eq!(frames.counters.freed.load(Relaxed), 3);
    }
}
