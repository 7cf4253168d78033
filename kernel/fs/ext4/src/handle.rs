//! A handle: one operation's set of changed blocks.
//!
//! Changes are made to private copies. [`Handle::publish`] puts all of them into the cache and the running transaction at once; dropping
//! the handle instead leaves no trace, so that no error, wherever it comes from, leaves half an operation.
//!
//! # Locking
//! A handle holds the change lock of its [`Writer`](crate::Writer), so there is one at a time in a file system: it works on memory, apart from
//! blocks of metadata that are read for the first time. Data is transferred without it, and so is everything of a commit.
//!
//! # Limits
//! A handle changes at most [`HANDLE_BLOCKS_MAX`] blocks. That much is free in the running transaction when it begins; what
//! takes more (truncation) goes in several handles, with the file in the list of orphans.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;
use core::sync::atomic::AtomicU64;

use memory::fallible;
use sched::MutexGuard;

use crate::allocate::Place;
use crate::blocks::Blocks;
use crate::cache::{BlockBytes, CheckedParts};
use crate::file_system::FileSystem;
use crate::geometry::Geometry;
use crate::orphan::OrphanChanges;
use crate::promise::Promises;
use crate::running::Running;
use crate::spare::Differences;
use crate::{Error, Result};

/// Blocks that one handle may change.
pub(crate) const HANDLE_BLOCKS_MAX: usize = 60;

/// A private copy of a block.
struct Changed {
    bytes: BlockBytes,
    parts: CheckedParts,
    /// From what it will replace.
    differences: Differences,
    /// What it has replaced.
    replaced: Option<BlockBytes>,
}

impl Changed {
    fn new(bytes: BlockBytes, parts: CheckedParts, differences: Differences) -> Self {
        Self { bytes, parts, differences, replaced: None }
    }

    /// Its bytes, copied first if somebody looks at them.
    fn edit(&mut self) -> Result<&mut Vec<u8>> {
        if Arc::get_mut(&mut self.bytes).is_none() {
            self.bytes = fallible::try_arc(fallible::try_copy(&self.bytes)?)?;
        }
        Arc::get_mut(&mut self.bytes).ok_or(Error::OutOfMemory)
    }
}

/// See the theory of this file.
pub(crate) struct Handle<'a> {
    system: &'a FileSystem,
    pub(crate) running: MutexGuard<'a, Running>,
    /// Few: they are looked through.
    changed: Vec<(u64, Changed)>,
    /// Blocks that are metadata no longer.
    forgotten: Vec<u64>,
    /// Blocks freed: first and count, each within a group.
    pub(crate) freed: Vec<(u64, u32)>,
    /// Groups whose number of free blocks changed, and what it is now.
    pub(crate) group_free: Vec<(u32, u32)>,
    pub(crate) free_blocks: i64,
    pub(crate) free_inodes: i64,
    /// Inodes that it changes, and whether more than their times.
    stored: Vec<(u32, bool)>,
    /// What changes in the list of orphans.
    pub(crate) orphans: OrphanChanges,
    promises: &'a Promises,
    /// What it needs was promised, or it gives back more: it may use blocks that are promised.
    pub(crate) keeps_promise: bool,
    /// May use the blocks kept for the superuser.
    pub(crate) privileged: bool,
    /// Chosen blocks that it takes: they are not free any more, and so need not be kept from it as chosen. From the moment it is published
    /// they are the file's, and no longer chosen.
    pub(crate) entering: Option<Place>,
}

impl Blocks for Handle<'_> {
    fn geometry(&self) -> &Geometry {
        &self.system.geometry
    }

    fn inode_tables(&self) -> &[AtomicU64] {
        &self.system.inode_tables
    }

    fn block(&self, block: u64, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        match self.changed(block) {
            Some(changed) => Ok(changed.bytes.clone()),
            None => self.system.cache.get(block, check),
        }
    }

    fn part(&self, block: u64, part: usize, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        match self.changed(block) {
            Some(changed) => {
                if !changed.parts.has(part) {
                    check(&changed.bytes)?;
                }
                Ok(changed.bytes.clone())
            }
            None => self.system.cache.get_part(block, part, check),
        }
    }
}

/// Blocks of metadata that a handle gives up before it looks for an end.
const FORGOTTEN_MAX: usize = 1024;

impl<'a> Handle<'a> {
    pub(crate) fn new(
        system: &'a FileSystem,
        running: MutexGuard<'a, Running>,
        promises: &'a Promises,
        privileged: bool,
    ) -> Self {
        Self {
            system,
            running,
            changed: Vec::new(),
            forgotten: Vec::new(),
            freed: Vec::new(),
            group_free: Vec::new(),
            free_blocks: 0,
            free_inodes: 0,
            stored: Vec::new(),
            orphans: OrphanChanges::default(),
            promises,
            keeps_promise: false,
            privileged,
            entering: None,
        }
    }

    /// What it changes.
    pub(crate) fn system(&self) -> &'a FileSystem {
        self.system
    }

    /// Free blocks that are to be left for others.
    pub(crate) fn left_for_others(&self) -> u64 {
        let kept = if self.privileged { 0 } else { self.system.geometry.reserved_blocks() };
        if self.keeps_promise { kept } else { kept + self.promises.reserved() }
    }

    /// How many more blocks it may change.
    pub(crate) fn room(&self) -> usize {
        HANDLE_BLOCKS_MAX.saturating_sub(self.changed.len())
    }

    /// Whether it may change so many more blocks, and forget some more: those are written down in the log, too.
    pub(crate) fn has_room(&self, blocks: usize) -> bool {
        self.room() >= blocks && self.forgotten.len() < FORGOTTEN_MAX
    }

    fn changed(&self, block: u64) -> Option<&Changed> {
        self.changed.iter().find(|(known, _)| *known == block).map(|(_, changed)| changed)
    }

    fn changed_mut(&mut self, block: u64) -> Option<&mut Changed> {
        self.changed.iter_mut().find(|(known, _)| *known == block).map(|(_, changed)| changed)
    }

    /// Adds a block that is not there, and returns it.
    fn insert(&mut self, block: u64, changed: Changed) -> Result<&mut Changed> {
        if self.room() == 0 {
            return Err(Error::TooLarge);
        }
        fallible::try_push(&mut self.changed, (block, changed))?;
        self.changed.last_mut().map(|(_, changed)| changed).ok_or(Error::OutOfMemory)
    }

    /// A copy of a block's newest value.
    fn copy(&mut self, block: u64, newest: &BlockBytes) -> Result<BlockBytes> {
        match self.running.spares.take(block, newest) {
            Some(copy) => Ok(copy),
            None => Ok(fallible::try_arc(fallible::try_copy(newest)?)?),
        }
    }

    /// A private copy of a block, to be changed anywhere.
    pub(crate) fn edit(&mut self, block: u64) -> Result<&mut Vec<u8>> {
        let whole = 0..self.system.geometry.block_bytes;
        self.edit_ranges(block, core::slice::from_ref(&whole))
    }

    /// A private copy of a block, to be changed in these places and nowhere else.
    pub(crate) fn edit_ranges(&mut self, block: u64, ranges: &[Range<usize>]) -> Result<&mut Vec<u8>> {
        if self.changed(block).is_none() {
            let newest = self.system.cache.get(block, |_| Ok(()))?;
            let copy = self.copy(block, &newest)?;
            self.insert(block, Changed::new(copy, CheckedParts::default(), Differences::default()))?;
        }
        let block_bytes = self.system.geometry.block_bytes;
        let changed = self.changed_mut(block).ok_or(Error::OutOfMemory)?;
        ranges.iter().for_each(|range| changed.differences.add(range.clone(), block_bytes));
        changed.edit()
    }

    /// The bytes of one structure in a block of many of that size, to be changed: the `part`th. Its checksum is the caller's to set.
    pub(crate) fn edit_part(&mut self, block: u64, part: usize, bytes: usize) -> Result<&mut [u8]> {
        if self.changed(block).is_none() {
            let (newest, parts) = self.system.cache.get_parts(block)?;
            let copy = self.copy(block, &newest)?;
            self.insert(block, Changed::new(copy, parts, Differences::default()))?;
        }
        let block_bytes = self.system.geometry.block_bytes;
        let changed = self.changed_mut(block).ok_or(Error::OutOfMemory)?;
        changed.parts.add(part);
        let range = part * bytes..(part + 1) * bytes;
        changed.differences.add(range.clone(), block_bytes);
        Ok(&mut changed.edit()?[range])
    }

    /// Sets all of a block's contents.
    pub(crate) fn put(&mut self, block: u64, bytes: Vec<u8>) -> Result<()> {
        debug_assert!(bytes.len() == self.system.geometry.block_bytes, "blocks have one size");
        let new = Changed::new(fallible::try_arc(bytes)?, CheckedParts::default(), Differences::ALL);
        match self.changed_mut(block) {
            Some(changed) => *changed = new,
            None => {
                self.insert(block, new)?;
            }
        }
        Ok(())
    }

    /// The block is metadata no longer: older copies of it in the log must not be replayed over what it will be.
    pub(crate) fn forget(&mut self, block: u64) -> Result<()> {
        fallible::try_push(&mut self.forgotten, block)?;
        self.changed.retain(|(known, _)| *known != block);
        Ok(())
    }

    /// Notes that an inode is changed: whether more of it than its times.
    pub(crate) fn note_stored(&mut self, number: u32, more: bool) -> Result<()> {
        match self.stored.iter_mut().find(|(known, _)| *known == number) {
            Some((_, known)) => *known |= more,
            None => fallible::try_push(&mut self.stored, (number, more))?,
        }
        Ok(())
    }

    /// An empty block's bytes.
    pub(crate) fn empty_block(&self) -> Result<Vec<u8>> {
        Ok(fallible::try_vec_of(0, self.system.geometry.block_bytes)?)
    }

    /// Free blocks, as this handle sees it.
    pub(crate) fn free_blocks_now(&self) -> u64 {
        self.running.free_blocks.saturating_add_signed(self.free_blocks)
    }

    /// Makes all changes visible and part of the running transaction, whose number it returns.
    pub(crate) fn publish(mut self) -> Result<u64> {
        let Self { system, running, changed, forgotten, orphans, stored, .. } = &mut self;
        orphans.reserve(&mut running.orphans)?;
        running.stored.try_reserve(stored.len()).map_err(|_| Error::OutOfMemory)?;
        running.spares.reserve(changed.len())?;
        let closed = &mut running.closed;
        closed.blocks.try_reserve(changed.len()).map_err(|_| Error::OutOfMemory)?;
        closed.revoked.try_reserve(forgotten.len()).map_err(|_| Error::OutOfMemory)?;
        system.cache.reserve(changed.len())?;
        let mut added = 0;
        while let Some((start, count)) = self.freed.get(added).copied() {
            if let Err(error) = self.running.held.add(&self.system.geometry, start, count) {
                for (start, count) in self.freed.drain(..added) {
                    self.running.held.remove(&self.system.geometry, start, count);
                }
                return Err(error);
            }
            added += 1;
        }
        // Nothing fails from here on.
        let Self { system, mut running, mut changed, forgotten, .. } = self;
        let blocks = changed.iter_mut().map(|(block, changed)| {
            let Changed { bytes, parts, replaced, .. } = changed;
            (*block, &*bytes, *parts, replaced)
        });
        system.cache.publish(blocks, forgotten.iter().copied());
        for block in forgotten {
            running.spares.drop(block);
            running.closed.blocks.remove(&block);
            running.closed.revoked.insert(block, ());
        }
        for (block, changed) in changed {
            running.closed.revoked.remove(&block);
            let Changed { bytes, differences, replaced, .. } = changed;
            running.closed.blocks.insert(block, bytes.clone());
            if let Some(replaced) = replaced {
                running.spares.keep(block, replaced, bytes, differences);
            }
        }
        running.free_blocks = running.free_blocks.saturating_add_signed(self.free_blocks);
        if let Some(place) = self.entering {
            running.unchoose(&system.geometry, place);
        }
        running.free_inodes = running.free_inodes.saturating_add_signed(self.free_inodes as i32);
        for (group, free) in self.group_free {
            if let Some(known) = running.group_free.get_mut(group as usize) {
                *known = free;
            }
        }
        self.orphans.apply(&mut running.orphans);
        for (number, more) in self.stored {
            *running.stored.entry(number.into()).or_default() |= more;
        }
        Ok(running.id)
    }
}
