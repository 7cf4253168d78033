//! Promises of space: blocks that pages in memory will need, and that nobody else may take before they have them.
//!
//! A page that becomes dirty where its file has a hole gets a promise, and its blocks when it is written back. Until then the promised blocks are
//! free in the bitmaps, but only for what keeps a promise: all other allocations leave them alone, so that what a program has
//! written finds its space.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::running::Running;
use crate::{Error, Result, Writer};

/// Blocks kept for extents' own blocks, beside one for each so many promised.
const SPARE_BLOCKS: u64 = 16;
const PROMISED_PER_SPARE: u64 = 64;

/// Blocks promised. They become more with the change lock held.
#[derive(Default)]
pub(crate) struct Promises(AtomicU64);

impl Promises {
    /// Blocks to be left for keeping them.
    pub(crate) fn reserved(&self) -> u64 {
        match self.0.load(Relaxed) {
            0 => 0,
            promised => with_spare(promised),
        }
    }
}

const fn with_spare(promised: u64) -> u64 {
    promised + promised / PROMISED_PER_SPARE + SPARE_BLOCKS
}

impl Writer {
    /// Promises blocks for data that will be written.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; [`Error::ReadOnly`].
    pub fn promise(&self, blocks: u64, privileged: bool) -> Result<()> {
        if self.is_read_only() {
            return Err(Error::ReadOnly);
        }
        // With the lock held nobody takes blocks, or gets a promise, between look and promise.
        let running = self.running.lock();
        let promised = self.promises.0.load(Relaxed) + blocks;
        if with_spare(promised) > self.free_of(&running, privileged) {
            return Err(Error::NoSpace);
        }
        self.promises.0.fetch_add(blocks, Relaxed);
        Ok(())
    }

    /// Promised blocks were chosen, or are not needed any more.
    pub fn return_promise(&self, blocks: u64) {
        let before = self.promises.0.fetch_sub(blocks, Relaxed);
        debug_assert!(before >= blocks, "more promises are returned than were made");
    }

    /// Blocks promised.
    pub fn promised(&self) -> u64 {
        self.promises.0.load(Relaxed)
    }

    fn free_of(&self, running: &Running, privileged: bool) -> u64 {
        let free = running.free_blocks.saturating_sub(running.chosen_blocks);
        if privileged { free } else { free.saturating_sub(self.system.geometry.reserved_blocks()) }
    }
}
