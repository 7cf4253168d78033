//! Committing sets of changed blocks to the journal, and writing them home later.
//!
//! # A commit
//! 1. Descriptor blocks with the copies they name, and revoke blocks, go to the log, in any order.
//! 2. If the log was empty, its superblock says where it begins now.
//! 3. The commit block, after a flush and durable itself. When it is there the transaction counts, before that it does not exist.
//!
//! # Checkpoints
//! Committed blocks are written home only when the log is full, when they take more memory than they may, or somebody asks: in ascending order, then a flush,
//! then the log is empty. Of a block that several transactions changed, only the newest contents are written; none if it was revoked since.

use alloc::sync::Arc;
use alloc::vec::Vec;

use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use block::BioFlags;
use block::checksum::crc32c;
use machine::address::PAGE_SIZE;
use memory::fallible;

use crate::cache::{BlockBytes, BlockMap};
use crate::file_system::FileSystem;
use crate::geometry::incompatible;
use crate::journal::Log;
use crate::layout::{
    COMMIT_CHECKSUM_AT, FEATURE_64BIT, FEATURE_CHECKSUM_V2, FEATURE_CHECKSUM_V3, FEATURE_REVOKE,
    JOURNAL_MAGIC, KIND_COMMIT, KIND_DESCRIPTOR, KIND_REVOKE, RawJournalHeader, RawTag, RawTag3, TAG_ESCAPED,
    TAG_LAST, TAG_SAME_UUID,
};
use crate::recovery::{set_recovery_needed, write_journal_superblock};
use crate::{Error, Result};

const HEAD_BYTES: usize = size_of::<RawJournalHeader>();
/// What a tag takes at most.
const TAG_BYTES_MAX: usize = 16;

/// See the theory of this file.
pub struct LogWriter {
    log: Log,
    block_bytes: usize,
    /// Where the next block of the log goes.
    head: u64,
    /// Blocks of the log in use.
    used: u64,
    /// The next transaction.
    sequence: u32,
    /// Committed and not yet home.
    pending: BlockMap<BlockBytes>,
    /// Blocks with which `pending` is written home.
    pending_max: usize,
}

/// Of the memory, what committed blocks may take that are not home: a sixteenth.
const MEMORY_SHARE: u64 = 16;
/// Blocks that it is at least, however small the machine is.
const PENDING_MIN: usize = 256;

impl LogWriter {
    /// Begins to write the journal of a file system that needs no recovery.
    ///
    /// # Errors
    /// It needs one, or has no journal, or features that forbid writing.
    pub fn open(system: &FileSystem) -> Result<Self> {
        if let Some((name, bit)) = system.geometry.read_only_because() {
            return Err(Error::UnknownFeature(name, bit));
        }
        let mut log = Log::open(system)?;
        if log.start != 0 || system.geometry.has_incompatible(incompatible::RECOVER) {
            return Err(Error::Corrupted("the journal was not replayed", 0));
        }
        log.features |= FEATURE_REVOKE;
        if system.geometry.has_incompatible(incompatible::BITS_64) {
            log.features |= FEATURE_64BIT;
        }
        if system.geometry.metadata_checksum() {
            log.features = log.features & !FEATURE_CHECKSUM_V2 | FEATURE_CHECKSUM_V3;
        }
        let (head, sequence) = (log.first, log.sequence.max(1));
        let memory_bytes = memory::frame::total_frames() * PAGE_SIZE as u64;
        let share = memory_bytes / MEMORY_SHARE / system.geometry.block_bytes as u64;
        write_journal_superblock(system, &log, log.features, 0, sequence)?;
        set_recovery_needed(system, true)?;
        Ok(Self {
            log,
            block_bytes: system.geometry.block_bytes,
            head,
            used: 0,
            sequence,
            pending: BlockMap::default(),
            pending_max: (share as usize).max(PENDING_MIN),
        })
    }

    /// Has committed blocks be written home when there are so many, instead of as many as are a share of the machine's memory.
    pub fn keep_at_most(&mut self, blocks: usize) {
        self.pending_max = blocks;
    }

    /// Committed blocks that are not home.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Blocks of a transaction at most: a quarter of the log, so that there is always room for one after a checkpoint, and no more than may be kept in memory.
    pub fn blocks_max(&self) -> usize {
        (((self.log.end - self.log.first) / 4) as usize).min(self.pending_max.max(PENDING_MIN))
    }

    fn capacity(&self) -> u64 {
        self.log.end - self.log.first
    }

    fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Makes a transaction of the blocks' new contents and of those that were freed. Durable when it returns.
    ///
    /// # Errors
    /// The device, no memory, or more than fits: the transaction does not exist then. After an error of the device nothing more may be
    /// committed; without memory the same transaction may be tried again.
    pub fn commit(
        &mut self,
        system: &FileSystem,
        blocks: &[(u64, Arc<Vec<u8>>)],
        revoked: &[u64],
    ) -> Result<()> {
        let sizes_fit = blocks.iter().all(|(_, bytes)| bytes.len() == self.block_bytes());
        if !sizes_fit || blocks.len() > self.blocks_max() {
            return Err(Error::Range);
        }
        let tags = self.tags_per_block();
        let revokes = self.revokes_per_block();
        let needed = blocks.len() + blocks.len().div_ceil(tags) + revoked.len().div_ceil(revokes) + 1;
        if needed as u64 > self.capacity() - 1 {
            return Err(Error::Range);
        }
        let too_many = !self.pending.is_empty() && self.pending.len() + blocks.len() > self.pending_max;
        if too_many || self.used + needed as u64 > self.capacity() - 1 {
            self.checkpoint(system)?;
        }
        self.pending.try_reserve(blocks.len()).map_err(|_| Error::OutOfMemory)?;
        let begin = self.head;
        let written = self.write_transaction(system, blocks, revoked, needed);
        if written.is_err() {
            self.head = begin;
            return written;
        }
        self.used += needed as u64;
        self.sequence = self.sequence.wrapping_add(1);
        for block in revoked {
            self.pending.remove(block);
        }
        self.pending.extend(blocks.iter().cloned());
        Ok(())
    }

    /// Writes to the log from the head on, up to the commit block.
    fn write_transaction(
        &mut self,
        system: &FileSystem,
        blocks: &[(u64, BlockBytes)],
        revoked: &[u64],
        needed: usize,
    ) -> Result<()> {
        let begin = self.head;
        let (tags, revokes) = (self.tags_per_block(), self.revokes_per_block());
        let mut writes = fallible::try_vec(needed)?;
        for group in blocks.chunks(tags) {
            self.describe(system, group, &mut writes)?;
        }
        for group in revoked.chunks(revokes) {
            self.revoke(system, group, &mut writes)?;
        }
        system.cache.write_all(writes.into_iter())?;
        if self.used == 0 {
            write_journal_superblock(system, &self.log, self.log.features, begin as u32, self.sequence)?;
        }
        let commit = self.commit_block()?;
        let flags = BioFlags::PREFLUSH | BioFlags::FORCE_UNIT_ACCESS;
        let place = self.log.place(system, self.head)?;
        system.cache.write(place, fallible::try_arc(commit)?, flags)?;
        self.head = self.log.next(self.head);
        Ok(())
    }

    /// Writes home what was committed, and empties the log.
    pub fn checkpoint(&mut self, system: &FileSystem) -> Result<()> {
        let mut blocks = fallible::try_vec(self.pending.len())?;
        blocks.extend(self.pending.iter().map(|(block, bytes)| (*block, bytes.clone())));
        sorting::sort_by_key(&mut blocks, |(block, _)| *block);
        system.cache.write_all(blocks.into_iter())?;
        system.cache.flush()?;
        write_journal_superblock(system, &self.log, self.log.features, 0, self.sequence)?;
        for (block, bytes) in self.pending.drain() {
            system.cache.unpin(block, &bytes);
        }
        self.used = 0;
        Ok(())
    }

    /// Checkpoints, and marks the file system as one that needs no recovery.
    pub fn close(&mut self, system: &FileSystem) -> Result<()> {
        self.checkpoint(system)?;
        set_recovery_needed(system, false)
    }

    fn tail_bytes(&self) -> usize {
        if self.log.has_checksums() { 4 } else { 0 }
    }

    fn tags_per_block(&self) -> usize {
        (self.block_bytes() - HEAD_BYTES - self.tail_bytes()) / TAG_BYTES_MAX
    }

    fn number_bytes(&self) -> usize {
        if self.log.features & FEATURE_64BIT != 0 { 8 } else { 4 }
    }

    fn revokes_per_block(&self) -> usize {
        (self.block_bytes() - HEAD_BYTES - 4 - self.tail_bytes()) / self.number_bytes()
    }

    /// Takes the next block of the log.
    fn take(
        &mut self,
        system: &FileSystem,
        writes: &mut Vec<(u64, BlockBytes)>,
        bytes: BlockBytes,
    ) -> Result<()> {
        writes.push((self.log.place(system, self.head)?, bytes));
        self.head = self.log.next(self.head);
        Ok(())
    }

    fn new_block(&self, kind: u32) -> Result<Vec<u8>> {
        let mut bytes = fallible::try_vec(self.block_bytes())?;
        let (magic, kind, sequence) = (U32::new(JOURNAL_MAGIC), U32::new(kind), U32::new(self.sequence));
        bytes.extend_from_slice(RawJournalHeader { magic, kind, sequence }.as_bytes());
        Ok(bytes)
    }

    /// Fills a block up and puts its checksum at the end.
    fn seal(&self, mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.resize(self.block_bytes(), 0);
        if self.log.has_checksums() {
            let sum = crc32c(self.log.seed, &bytes);
            let at = bytes.len() - 4;
            bytes[at..].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    }

    /// A descriptor block and the copies that it names.
    fn describe(
        &mut self,
        system: &FileSystem,
        group: &[(u64, BlockBytes)],
        writes: &mut Vec<(u64, BlockBytes)>,
    ) -> Result<()> {
        let mut descriptor = self.new_block(KIND_DESCRIPTOR)?;
        let mut copies = fallible::try_vec(group.len())?;
        for (index, (block, bytes)) in group.iter().enumerate() {
            let mut flags = TAG_SAME_UUID | if index + 1 == group.len() { TAG_LAST } else { 0 };
            let mut copy = bytes.clone();
            if bytes[..4] == JOURNAL_MAGIC.to_be_bytes() {
                // The scan would take it for a block of the journal itself.
                let mut escaped = fallible::try_copy(bytes)?;
                escaped[..4].fill(0);
                copy = fallible::try_arc(escaped)?;
                flags |= TAG_ESCAPED;
            }
            let sum = crc32c(crc32c(self.log.seed, &self.sequence.to_be_bytes()), &copy);
            self.push_tag(&mut descriptor, *block, flags, sum);
            copies.push(copy);
        }
        let descriptor = fallible::try_arc(self.seal(descriptor))?;
        self.take(system, writes, descriptor)?;
        copies.into_iter().try_for_each(|copy| self.take(system, writes, copy))
    }

    fn push_tag(&self, descriptor: &mut Vec<u8>, block: u64, flags: u32, sum: u32) {
        let (low, high) = (U32::new(block as u32), U32::new((block >> 32) as u32));
        if self.log.features & FEATURE_CHECKSUM_V3 != 0 {
            let tag =
                RawTag3 { block: low, flags: U32::new(flags), block_high: high, checksum: U32::new(sum) };
            descriptor.extend_from_slice(tag.as_bytes());
            return;
        }
        let second = self.log.features & FEATURE_CHECKSUM_V2 != 0;
        let checksum = if second { sum as u16 } else { 0 };
        let tag = RawTag { block: low, checksum: checksum.into(), flags: (flags as u16).into() };
        descriptor.extend_from_slice(tag.as_bytes());
        if self.log.features & FEATURE_64BIT != 0 {
            descriptor.extend_from_slice(high.as_bytes());
        }
        if second {
            descriptor.extend_from_slice(&[0; 2]);
        }
    }

    fn revoke(
        &mut self,
        system: &FileSystem,
        group: &[u64],
        writes: &mut Vec<(u64, BlockBytes)>,
    ) -> Result<()> {
        let mut bytes = self.new_block(KIND_REVOKE)?;
        let width = self.number_bytes();
        let used = HEAD_BYTES + 4 + group.len() * width;
        bytes.extend_from_slice(&(used as u32).to_be_bytes());
        for block in group {
            bytes.extend_from_slice(&block.to_be_bytes()[8 - width..]);
        }
        let bytes = fallible::try_arc(self.seal(bytes))?;
        self.take(system, writes, bytes)
    }

    fn commit_block(&self) -> Result<Vec<u8>> {
        let mut bytes = self.new_block(KIND_COMMIT)?;
        bytes.resize(self.block_bytes(), 0);
        if self.log.has_checksums() {
            let sum = crc32c(self.log.seed, &bytes);
            bytes[COMMIT_CHECKSUM_AT..COMMIT_CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        }
        Ok(bytes)
    }
}
