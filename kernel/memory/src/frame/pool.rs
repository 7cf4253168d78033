//! The pool of all free frames: the buddy allocator, the memory not brought up yet, and the watermarks.
//!
//! Locking: one interrupt-disabling lock, a leaf: nothing else is locked under it. CPUs come here once a batch.

use sync::{IrqSpinLock, IrqSpinLockGuard};

use super::buddy::{Buddy, ORDERS};
use super::number::FrameNumber;
use super::table::KernelTable;
use super::untouched::Untouched;
use super::watermark::{Urgency, Watermarks};

/// Free frames in the buddy allocator below which another chunk is brought up, so that what sits in the per-CPU lists
/// does not make the first chunks look used up.
const BRING_UP_BELOW: u64 = 256;

/// See the theory of this file.
pub(crate) struct Pool {
    buddy: Buddy,
    untouched: Untouched,
    marks: Watermarks,
    /// Frames that the pool manages, in use or not.
    managed: u64,
}

static POOL: IrqSpinLock<Pool> = IrqSpinLock::new(Pool::new());

/// The machine's pool.
#[inline]
pub(crate) fn lock() -> IrqSpinLockGuard<'static, Pool> {
    #[cfg(not(target_os = "none"))]
    fill_on_first_use();
    POOL.lock()
}

/// Tests have no start-up code: a hosted machine's memory is handed over when it is first asked for.
#[cfg(not(target_os = "none"))]
fn fill_on_first_use() {
    static FILLED: std::sync::Once = std::sync::Once::new();
    FILLED.call_once(|| {
        let mut pool = POOL.lock();
        pool.fill(machine::boot::hand_over());
    });
}

/// What the pool shows of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolStatistics {
    pub(crate) managed: u64,
    pub(crate) free: u64,
    pub(crate) untouched: u64,
    pub(crate) metadata: u64,
    pub(crate) blocks: [u32; ORDERS],
    pub(crate) marks: Watermarks,
}

impl Pool {
    const fn new() -> Self {
        Self {
            buddy: Buddy::new(),
            untouched: Untouched::new(),
            marks: Watermarks { minimum: 0, low: 0, high: 0 },
            managed: 0,
        }
    }

    /// Takes over all memory of the machine.
    pub(crate) fn fill(&mut self, ranges: &'static [machine::boot::PhysRange]) {
        self.untouched.fill(ranges);
        self.managed = self.untouched.usable_frames();
        self.marks = Watermarks::for_memory(self.managed);
    }

    /// Frames that can still be had.
    pub(crate) fn free(&self) -> u64 {
        self.buddy.free_frames() + self.untouched.usable_frames()
    }

    pub(crate) const fn marks(&self) -> Watermarks {
        self.marks
    }

    /// Whether reclaim should work.
    pub(crate) fn is_low(&self) -> bool {
        self.free() < self.marks.low
    }

    /// Takes a block, bringing up memory if need be.
    pub(crate) fn take(&mut self, order: u8, urgency: Urgency) -> Option<FrameNumber> {
        if self.free() < self.marks.floor(urgency) + (1 << order) {
            return None;
        }
        if self.buddy.free_frames() < BRING_UP_BELOW {
            self.bring_up();
        }
        loop {
            if let Some(block) = self.buddy.take(&KernelTable, order) {
                return Some(block);
            }
            if !self.bring_up() {
                return None;
            }
        }
    }

    /// Gives a block back.
    pub(crate) fn give(&mut self, block: FrameNumber, order: u8) {
        self.buddy.give(&KernelTable, block, order);
    }

    /// Gives back frames that need not form a block.
    pub(crate) fn give_range(&mut self, start: FrameNumber, count: u32) {
        self.buddy.give_range(&KernelTable, start, count);
    }

    /// Brings up one chunk; false when all memory is in use.
    fn bring_up(&mut self) -> bool {
        let Some(piece) = self.untouched.next_piece() else {
            return false;
        };
        self.buddy.give_range(&KernelTable, piece.start, piece.frames);
        true
    }

    /// Makes sure that a frame outside the pool has metadata.
    pub(crate) fn ensure_metadata(&mut self, frame: FrameNumber) -> bool {
        self.untouched.ensure_metadata(frame)
    }

    /// Counts one more frame as the pool's.
    pub(crate) fn adopt(&mut self) {
        self.managed += 1;
    }

    pub(crate) fn statistics(&self) -> PoolStatistics {
        PoolStatistics {
            managed: self.managed,
            free: self.free(),
            untouched: self.untouched.usable_frames(),
            metadata: self.untouched.metadata_frames(),
            blocks: self.buddy.blocks(),
            marks: self.marks,
        }
    }
}
