//! Frames that a CPU keeps at hand: a stack of free frames and a pool of zeroed ones.
//!
//! Transitions of a frame: *Free* (buddy) → `refill` → *Cached* → `pop` → *Allocated* → `push` → *Cached* → `drain` →
//! *Free*. Zeroed frames are made from cached ones by [`super::zeroed`] while the CPU is idle.
//!
//! Everything here is written by the owning CPU with interrupts off; other CPUs read the counts for statistics, so the
//! fields are atomics used with plain loads and stores. A pop costs a load of the count, a load of the number and two
//! stores; the pool's lock is taken once in [`BATCH`] allocations at most.

use core::sync::atomic::{
    AtomicI64, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::number::FrameNumber;
use super::purpose::Purpose;

/// Frames moved between a CPU and the pool at once.
pub(crate) const BATCH: usize = 32;

/// Free frames that a CPU keeps at most.
pub(crate) const READY_CAPACITY: usize = 3 * BATCH;

/// Zeroed frames that a CPU keeps at most.
pub(crate) const ZEROED_CAPACITY: usize = 32;

/// A bounded stack of frame numbers.
pub(crate) struct Stack<const CAPACITY: usize> {
    count: AtomicU32,
    frames: [AtomicU32; CAPACITY],
}

impl<const CAPACITY: usize> Stack<CAPACITY> {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU32::new(0), frames: [const { AtomicU32::new(0) }; CAPACITY] }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `push`, for a CPU that looks at another's numbers.
        self.count.load(Acquire) as usize
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<FrameNumber> {
        let count = self.count.load(Relaxed) as usize;
        let frame = self.frames.get(count.wrapping_sub(1))?.load(Relaxed);
        self.count.store(count as u32 - 1, Relaxed);
        Some(FrameNumber::new(frame))
    }

    /// Adds a frame; the caller has checked that there is room.
    #[inline]
    pub(crate) fn push(&self, frame: FrameNumber) {
        let count = self.count.load(Relaxed) as usize;
        self.frames[count].store(frame.index(), Relaxed);
        self.count.store(count as u32 + 1, Release);
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Relaxed) as usize == CAPACITY
    }
}

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
    pub(crate) ready: Stack<READY_CAPACITY>,
    pub(crate) zeroed: Stack<ZEROED_CAPACITY>,
    pub(crate) counters: Counters,
}

impl CpuFrames {
    pub(crate) const fn new() -> Self {
        Self {
            ready: Stack::new(),
            zeroed: Stack::new(),
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
    fn a_stack_returns_what_was_pushed_last_and_stops_at_its_ends() {
        let stack = Stack::<3>::new();
        assert!(stack.pop().is_none());
        for number in 1..=3 {
            assert!(!stack.is_full());
            stack.push(FrameNumber::new(number));
        }
        assert!(stack.is_full());
        for number in (1..=3).rev() {
            assert_eq!(stack.pop(), Some(FrameNumber::new(number)));
        }
        assert!(stack.pop().is_none());
        assert_eq!(stack.len(), 0);
    }

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
