//! Blocks of metadata in memory.
//!
//! A cached block is a counted, immutable value: readers take a reference under a short spin lock and parse it with no lock held,
//! while a change of the block replaces the value. Checks of contents are made by those who know what a block is, once for each reading
//! from the disk: [`Cache::get`] takes the check along. Blocks of many small structures with a checksum each, as inodes and groups'
//! descriptors, are checked structure by structure ([`Cache::get_part`]).
//!
//! Blocks that a journal holds newer contents of are *pinned* ([`Cache::pin`]): they never leave. The others are
//! dropped, those that nobody used since the last round first, when there are more than [`BLOCKS_MAX`].
//!
//! Whoever reads a block from the disk may be slow: meanwhile it may be changed, written home and dropped again. So departures of blocks that were
//! changed since they were read are counted, and what was read before one is used, but not kept.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashMap;
use sync::SpinLock;

use block::{Bio, BioFlags, Memory, Operation, SECTOR_BYTES, Volume};
use memory::fallible;

use crate::{Error, Result};

/// Blocks kept at most, pinned ones not counted.
const BLOCKS_MAX: usize = 4096;

/// Spreads numbers of blocks, most of which are neighbours.
#[derive(Default)]
pub(crate) struct BlockHasher(u64);

impl Hasher for BlockHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64((*byte).into());
        }
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    }
}

/// A table by the numbers of blocks.
pub(crate) type BlockMap<V> = HashMap<u64, V, BuildHasherDefault<BlockHasher>>;

/// Structures of a block that have passed their checks, one bit each. Those behind the 64th are checked each time.
#[derive(Clone, Copy, Default)]
pub(crate) struct CheckedParts(u64);

impl CheckedParts {
    /// Whether one has.
    pub(crate) fn has(self, part: usize) -> bool {
        part < 64 && self.0 >> part & 1 != 0
    }

    /// Adds one.
    pub(crate) fn add(&mut self, part: usize) {
        if part < 64 {
            self.0 |= 1 << part;
        }
    }
}

/// A block's bytes.
pub(crate) type BlockBytes = Arc<Vec<u8>>;

struct Entry {
    bytes: BlockBytes,
    pinned: bool,
    /// The disk had other contents before.
    newer: bool,
    used: bool,
    /// Its contents as a whole passed their check.
    checked: bool,
    parts: CheckedParts,
}

/// What the cache has of a block.
struct Known {
    bytes: BlockBytes,
    checked: bool,
    parts: CheckedParts,
}

/// See the theory of this file.
pub(crate) struct Cache {
    volume: Volume,
    block_bytes: usize,
    entries: SpinLock<BlockMap<Entry>>,
    /// Blocks with contents that the disk did not have before, which have left or were never here. Under the lock of `entries`.
    departures: AtomicU64,
}

/// Waits for what was submitted before the rest could not be: whoever is told of an error may give its blocks to others.
fn abandon(batch: block::Batch, error: block::Error) -> Result<()> {
    // The first error is what is told.
    let _ = batch.wait();
    Err(error.into())
}

impl Cache {
    pub(crate) fn new(volume: Volume, block_bytes: usize) -> Self {
        let entries = SpinLock::new(BlockMap::default());
        Self { volume, block_bytes, entries, departures: AtomicU64::new(0) }
    }

    /// Sets the contents of a block that is newer than the disk's.
    pub(crate) fn pin(&self, block: u64, bytes: BlockBytes) -> Result<()> {
        let mut entries = self.entries.lock();
        entries.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let parts = CheckedParts::default();
        let pinned = Entry { bytes, pinned: true, newer: true, used: true, checked: false, parts };
        entries.insert(block, pinned);
        Ok(())
    }

    /// Writes a block to the disk, past the cache.
    pub(crate) fn write(&self, block: u64, bytes: BlockBytes, flags: BioFlags) -> Result<()> {
        let sector = block * (self.block_bytes / SECTOR_BYTES) as u64;
        Ok(self.volume.write(sector, Memory::Shared(bytes), flags | BioFlags::METADATA)?)
    }

    /// Writes blocks, all at once, and waits for them. `blocks` should ascend, so that neighbours meet.
    pub(crate) fn write_all(&self, blocks: impl Iterator<Item = (u64, BlockBytes)>) -> Result<()> {
        let mut batch = self.volume.batch();
        for (block, bytes) in blocks {
            let sector = block * (self.block_bytes / SECTOR_BYTES) as u64;
            let bio = Bio::single(Operation::Write, sector, Memory::Shared(bytes), BioFlags::METADATA);
            if let Err(error) = bio.and_then(|bio| batch.add(bio)) {
                return abandon(batch, error);
            }
        }
        Ok(batch.wait()?)
    }

    /// Whether the device can be told that nobody needs what blocks have.
    pub(crate) fn can_discard(&self) -> bool {
        self.volume.queue().limits().discard_sectors_max > 0
    }

    /// Tells the device that nobody needs what blocks have.
    pub(crate) fn discard(&self, first: u64, count: u32) -> Result<()> {
        let sectors_per_block = (self.block_bytes / SECTOR_BYTES) as u64;
        let most = u64::from(self.volume.queue().limits().discard_sectors_max.max(1));
        let (mut sector, mut left) = (first * sectors_per_block, u64::from(count) * sectors_per_block);
        while left > 0 {
            let part = most.min(left);
            let bio = Bio::without_data(Operation::Discard, sector, part, BioFlags::empty())?;
            self.volume.transfer(bio)?;
            (sector, left) = (sector + part, left - part);
        }
        Ok(())
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&self) -> Result<()> {
        Ok(self.volume.flush()?)
    }

    /// The pinned blocks, ascending.
    pub(crate) fn pinned(&self) -> Result<Vec<(u64, BlockBytes)>> {
        let entries = self.entries.lock();
        let mut pinned = fallible::try_vec(entries.len())?;
        pinned.extend(
            entries
                .iter()
                .filter(|(_, entry)| entry.pinned)
                .map(|(block, entry)| (*block, entry.bytes.clone())),
        );
        drop(entries);
        sorting::sort_by_key(&mut pinned, |(block, _)| *block);
        Ok(pinned)
    }

    /// Calls `each` with all pinned blocks.
    pub(crate) fn for_each_pinned(&self, mut each: impl FnMut(u64, &[u8])) {
        for (block, entry) in self.entries.lock().iter().filter(|(_, entry)| entry.pinned) {
            each(*block, &entry.bytes);
        }
    }

    /// What the cache has of a block. Never sleeps.
    fn look(&self, block: u64) -> Option<Known> {
        self.entries.lock().get_mut(&block).map(|entry| {
            entry.used = true;
            Known { bytes: entry.bytes.clone(), checked: entry.checked, parts: entry.parts }
        })
    }

    /// The block's bytes. `check` looks at them unless they passed before.
    pub(crate) fn get(&self, block: u64, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        if let Some(known) = self.look(block) {
            return self.checked(block, known, check);
        }
        let departures = self.departures.load(Relaxed);
        let bytes = fallible::try_arc(self.read(block)?)?;
        check(&bytes)?;
        self.keep(block, &bytes, departures)?;
        Ok(bytes)
    }

    /// The same without asking the disk: `ENOENT` for a block that is not here. Never sleeps.
    pub(crate) fn at_hand(&self, block: u64, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        self.checked(block, self.look(block).ok_or(Error::NotFound)?, check)
    }

    fn checked(
        &self,
        block: u64,
        known: Known,
        check: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<BlockBytes> {
        if !known.checked {
            check(&known.bytes)?;
            self.mark_checked(block, &known.bytes);
        }
        Ok(known.bytes)
    }

    /// The bytes of a block of many structures, of which `check` looks at one unless that passed before.
    pub(crate) fn get_part(
        &self,
        block: u64,
        part: usize,
        check: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<BlockBytes> {
        let (bytes, parts) = self.get_parts(block)?;
        self.part_checked(block, part, (bytes, parts), check)
    }

    /// The same without asking the disk: `ENOENT` for a block that is not here. Never sleeps.
    pub(crate) fn part_at_hand(
        &self,
        block: u64,
        part: usize,
        check: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<BlockBytes> {
        let known = self.look(block).ok_or(Error::NotFound)?;
        self.part_checked(block, part, (known.bytes, known.parts), check)
    }

    fn part_checked(
        &self,
        block: u64,
        part: usize,
        (bytes, parts): (BlockBytes, CheckedParts),
        check: impl FnOnce(&[u8]) -> Result<()>,
    ) -> Result<BlockBytes> {
        if !parts.has(part) {
            check(&bytes)?;
            if let Some(entry) = self.entries.lock().get_mut(&block)
                && Arc::ptr_eq(&entry.bytes, &bytes)
            {
                entry.parts.add(part);
            }
        }
        Ok(bytes)
    }

    /// The bytes of a block of many structures, and which of them were checked.
    pub(crate) fn get_parts(&self, block: u64) -> Result<(BlockBytes, CheckedParts)> {
        match self.look(block) {
            Some(known) => Ok((known.bytes, known.parts)),
            None => Ok((self.get(block, |_| Ok(()))?, CheckedParts::default())),
        }
    }

    /// Makes room for so many more blocks, so that [`publish`](Self::publish) can't fail.
    pub(crate) fn reserve(&self, count: usize) -> Result<()> {
        self.entries.lock().try_reserve(count).map_err(|_| Error::OutOfMemory)
    }

    /// Replaces blocks by newer contents than the disk's, and drops those that are no longer metadata: all under one lock, so that
    /// readers find either none or all of a handle's changes. Room was reserved. What a block held before comes out.
    pub(crate) fn publish<'b>(
        &self,
        blocks: impl Iterator<Item = (u64, &'b BlockBytes, CheckedParts, &'b mut Option<BlockBytes>)>,
        dropped: impl Iterator<Item = u64>,
    ) {
        let mut entries = self.entries.lock();
        for (block, bytes, parts, replaced) in blocks {
            let bytes = bytes.clone();
            let new = Entry { bytes, pinned: true, newer: true, used: true, checked: true, parts };
            *replaced = entries.insert(block, new).map(|old| old.bytes);
        }
        for block in dropped {
            entries.remove(&block);
            self.departures.fetch_add(1, Relaxed);
        }
    }

    /// These contents are on the disk: the block may leave again, unless it has newer ones.
    pub(crate) fn unpin(&self, block: u64, bytes: &BlockBytes) {
        if let Some(entry) = self.entries.lock().get_mut(&block)
            && Arc::ptr_eq(&entry.bytes, bytes)
        {
            entry.pinned = false;
        }
    }

    /// Writes a block to the disk and has the cache know the same.
    pub(crate) fn write_through(&self, block: u64, bytes: BlockBytes, flags: BioFlags) -> Result<()> {
        self.write(block, bytes.clone(), flags)?;
        let mut entries = self.entries.lock();
        match entries.get_mut(&block) {
            Some(entry) => (entry.bytes, entry.newer) = (bytes, true),
            None => {
                self.departures.fetch_add(1, Relaxed);
            }
        }
        Ok(())
    }

    /// Writes a file's data, from a block's beginning.
    pub(crate) fn write_run(&self, block: u64, bytes: Vec<u8>) -> Result<()> {
        let most = self.volume.bytes_max() / self.block_bytes * self.block_bytes;
        let sector = block * (self.block_bytes / SECTOR_BYTES) as u64;
        if bytes.len() <= most {
            return Ok(self.volume.write(sector, Memory::Owned(bytes), BioFlags::empty())?);
        }
        let mut batch = self.volume.batch();
        for (index, piece) in bytes.chunks(most).enumerate() {
            let at = sector + (index * most / SECTOR_BYTES) as u64;
            let piece = fallible::try_copy(piece).map_err(block::Error::from);
            let bio = piece
                .and_then(|piece| Bio::single(Operation::Write, at, Memory::Owned(piece), BioFlags::empty()));
            if let Err(error) = bio.and_then(|bio| batch.add(bio)) {
                return abandon(batch, error);
            }
        }
        Ok(batch.wait()?)
    }

    fn mark_checked(&self, block: u64, bytes: &BlockBytes) {
        if let Some(entry) = self.entries.lock().get_mut(&block)
            && Arc::ptr_eq(&entry.bytes, bytes)
        {
            entry.checked = true;
        }
    }

    /// Keeps what was read when there had been so many departures.
    fn keep(&self, block: u64, bytes: &BlockBytes, departures: u64) -> Result<()> {
        let mut entries = self.entries.lock();
        if self.departures.load(Relaxed) != departures {
            return Ok(());
        }
        if entries.len() >= BLOCKS_MAX {
            // A round: what was not used since the last one goes.
            let mut departures = 0;
            entries.retain(|_, entry| {
                let stays = entry.pinned || core::mem::take(&mut entry.used);
                departures += u64::from(!stays && entry.newer);
                stays
            });
            self.departures.fetch_add(departures, Relaxed);
        }
        entries.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        // Somebody else may have read it meanwhile, or a newer one may have been put there: theirs stays.
        entries.entry(block).or_insert_with(|| Entry {
            bytes: bytes.clone(),
            pinned: false,
            newer: false,
            used: true,
            checked: true,
            parts: CheckedParts::default(),
        });
        Ok(())
    }

    /// Lets go of at most so many blocks that the disk has as they are here; returns how many.
    pub(crate) fn drop_clean(&self, most: usize) -> usize {
        let mut entries = self.entries.lock();
        let (mut departures, mut dropped) = (0, 0);
        entries.retain(|_, entry| {
            let stays = entry.pinned || dropped == most;
            if !stays {
                dropped += 1;
                departures += u64::from(entry.newer);
            }
            stays
        });
        self.departures.fetch_add(departures, Relaxed);
        dropped
    }

    /// Reads from the disk, past the cache.
    pub(crate) fn read(&self, block: u64) -> Result<Vec<u8>> {
        let sectors = (self.block_bytes / SECTOR_BYTES) as u64;
        let sector = block.checked_mul(sectors).ok_or(Error::Corrupted("a block's number", block))?;
        Ok(self.volume.read(sector, self.block_bytes)?)
    }

    /// Reads neighbouring blocks of a file's data.
    pub(crate) fn read_run(&self, block: u64, count: usize) -> Result<Vec<u8>> {
        let sectors = (self.block_bytes / SECTOR_BYTES) as u64;
        Ok(self.volume.read(block * sectors, count * self.block_bytes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::{Queue, RamDisk};

    #[test]
    fn what_is_given_back_is_what_the_disk_has() {
        const BLOCK: usize = 1024;
        let disk = RamDisk::new(1 << 20).expect("there is memory");
        let queue = Queue::new(Arc::new(disk)).expect("a sound device");
        let cache = Cache::new(Volume::whole(queue), BLOCK);
        let get = |block| cache.get(block, |_| Ok(())).expect("the disk works");
        (10..20).for_each(|block| _ = get(block));
        assert_eq!(cache.at_hand(10, |_| Ok(())).map(|bytes| bytes.len()), Ok(BLOCK));
        cache.reserve(1).expect("there is memory");
        let changed: BlockBytes = Arc::new(vec![7; BLOCK]);
        let mut replaced = None;
        let one = core::iter::once((10, &changed, CheckedParts::default(), &mut replaced));
        cache.publish(one, core::iter::empty());
        assert_eq!((cache.drop_clean(4), cache.drop_clean(100), cache.drop_clean(100)), (4, 5, 0));
        assert_eq!(cache.at_hand(11, |_| Ok(())).err(), Some(Error::NotFound));
        assert_eq!(get(10), changed, "what the disk has not stays");
    }

    #[test]
    fn what_was_read_before_a_change_came_home_and_left_is_not_kept() {
        const BLOCK: usize = 1024;
        let disk = RamDisk::new(64 << 20).expect("there is memory");
        let queue = Queue::new(Arc::new(disk)).expect("a sound device");
        let cache = Cache::new(Volume::whole(queue), BLOCK);
        let get = |block| cache.get(block, |_| Ok(())).expect("the disk works");
        let departures = cache.departures.load(Relaxed);
        let old: BlockBytes = Arc::new(cache.read(5).expect("the disk works"));
        let new: BlockBytes = Arc::new(vec![7; BLOCK]);
        cache.reserve(1).expect("there is memory");
        let mut replaced = None;
        let changed = core::iter::once((5, &new, CheckedParts::default(), &mut replaced));
        cache.publish(changed, core::iter::empty());
        cache.write(5, new.clone(), BioFlags::empty()).expect("the disk works");
        cache.unpin(5, &new);
        for block in 100..100 + 3 * BLOCKS_MAX as u64 {
            get(block);
        }
        assert!(!cache.entries.lock().contains_key(&5), "it has left");
        cache.keep(5, &old, departures).expect("there is memory");
        assert_eq!(get(5), new);
        // Without one it is kept.
        let departures = cache.departures.load(Relaxed);
        let read = Arc::new(cache.read(6).expect("the disk works"));
        cache.keep(6, &read, departures).expect("there is memory");
        assert!(Arc::ptr_eq(&get(6), &read));
    }
}
