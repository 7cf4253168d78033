//! The running transaction: what handles have published since the last commit began, and what allocators must not touch yet.
//!
//! # Blocks that are free on paper
//! A block counts as free in its bitmap as soon as the handle that freed it is published, but it may not be used again before that
//! transaction is committed: a crash would bring the old owner back with somebody else's bytes. Such ranges are *held*, by those of
//! the running and of the committing transaction. Blocks *chosen* for data that is being written are not free either, though no bitmap says so yet.

use alloc::vec::Vec;

use memory::fallible;

use crate::allocate::Place;
use crate::cache::{BlockBytes, BlockMap};
use crate::geometry::Geometry;
use crate::orphan::Orphans;
use crate::spare::Spares;
use crate::{Error, Result};

/// Ranges of blocks, by group: first block within the group, and how many.
#[derive(Default)]
pub(crate) struct Ranges(BlockMap<Vec<(u32, u32)>>);

impl Ranges {
    /// Adds a range that lies within one group.
    pub(crate) fn add(&mut self, geometry: &Geometry, start: u64, count: u32) -> Result<()> {
        let group = geometry.group_of(start);
        self.0.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let first = (start - geometry.group_start(group)) as u32;
        Ok(fallible::try_push(self.0.entry(group.into()).or_default(), (first, count))?)
    }

    /// Takes a range out again that was added like this.
    pub(crate) fn remove(&mut self, geometry: &Geometry, start: u64, count: u32) {
        let group = geometry.group_of(start);
        let first = (start - geometry.group_start(group)) as u32;
        if let Some(ranges) = self.0.get_mut(&u64::from(group)) {
            if let Some(at) = ranges.iter().position(|range| *range == (first, count)) {
                ranges.swap_remove(at);
            }
            if ranges.is_empty() {
                self.0.remove(&u64::from(group));
            }
        }
    }

    /// The ranges of a group.
    pub(crate) fn of(&self, group: u32) -> &[(u32, u32)] {
        self.0.get(&u64::from(group)).map_or(&[], Vec::as_slice)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// What a commit takes along.
#[derive(Default)]
pub(crate) struct Closed {
    pub(crate) blocks: BlockMap<BlockBytes>,
    pub(crate) revoked: BlockMap<()>,
}

/// See the theory of this file. All of it is guarded by the change lock.
#[derive(Default)]
pub(crate) struct Running {
    /// Counts transactions since the mount, from 1.
    pub(crate) id: u64,
    pub(crate) closed: Closed,
    pub(crate) spares: Spares,
    /// Freed since the last commit began.
    pub(crate) held: Ranges,
    /// Freed by the transaction that is being committed.
    pub(crate) held_committing: Ranges,
    /// Chosen for data that is on its way to the disk.
    pub(crate) chosen: Ranges,
    /// Blocks chosen.
    pub(crate) chosen_blocks: u64,
    pub(crate) orphans: Orphans,
    /// Inodes that the running transaction changes, and whether more than their times.
    pub(crate) stored: BlockMap<bool>,
    /// Counts inodes that were made, to tell apart those that come and go within one step of the clock.
    pub(crate) made: u32,
    pub(crate) free_blocks: u64,
    pub(crate) free_inodes: u32,
    /// Free blocks of each group, to pass by full ones.
    pub(crate) group_free: Vec<u32>,
}

impl Running {
    /// Chosen blocks are that no longer: they are a file's by now, or anybody's again.
    pub(crate) fn unchoose(&mut self, geometry: &Geometry, place: Place) {
        self.chosen.remove(geometry, place.start, place.count);
        self.chosen_blocks -= u64::from(place.count);
    }

    /// Whether there is nothing to commit.
    pub(crate) fn is_empty(&self) -> bool {
        self.closed.blocks.is_empty() && self.closed.revoked.is_empty()
    }
}
