//! Replaying the journal: what was committed before a crash and not yet written home.
//!
//! # The log
//! A ring of blocks in a file of its own. Each transaction is a row of descriptor blocks, each followed by copies of the
//! blocks that it names; revoke blocks, which name blocks whose older copies must not be replayed; and a commit block. All of
//! them carry the transaction's sequence number; checksums tell a transaction that was cut off.
//!
//! # Replay
//! 1. *Scan*: follow the log from its start until a block is not what should come next. What lies before the last sound commit block counts.
//! 2. *Revoke*: collect for each revoked block the last transaction that revoked it.
//! 3. *Replay*: the copies of each block, in order; the last one not revoked is what the block is.
//!
//! The newest contents are handed to [`Cache::pin`](crate::cache::Cache::pin): the disk itself stays as it is.
//! A journal with a feature that is not known is an error: its contents would be guesses.

use alloc::sync::Arc;
use alloc::vec::Vec;

use zerocopy::FromBytes;
use zerocopy::big_endian::U32;

use block::checksum::crc32c;
use memory::fallible;

use crate::cache::BlockMap;
use crate::file_system::FileSystem;
use crate::geometry::compatible;
use crate::inode::{Inode, Kind};
use crate::layout::{
    COMMIT_CHECKSUM_AT, FEATURE_64BIT, FEATURE_ASYNC_COMMIT, FEATURE_CHECKSUM_V2, FEATURE_CHECKSUM_V3,
    FEATURE_FAST_COMMIT, FEATURE_REVOKE, JOURNAL_MAGIC, KIND_COMMIT, KIND_DESCRIPTOR, KIND_REVOKE,
    KIND_SUPERBLOCK_V1, KIND_SUPERBLOCK_V2, RawJournalHeader, RawJournalSuperblock, RawTag, RawTag3,
    TAG_ESCAPED, TAG_LAST, TAG_SAME_UUID,
};
use crate::map::map;
use crate::{Error, Result};

const JOURNAL_INODE: u32 = 8;
const KNOWN: u32 = FEATURE_REVOKE
    | FEATURE_64BIT
    | FEATURE_ASYNC_COMMIT
    | FEATURE_CHECKSUM_V2
    | FEATURE_CHECKSUM_V3
    | FEATURE_FAST_COMMIT;

/// The journal, as its superblock describes it.
pub(crate) struct Log {
    inode: Inode,
    pub(crate) features: u32,
    pub(crate) seed: u32,
    pub(crate) first: u64,
    pub(crate) end: u64,
    pub(crate) start: u64,
    pub(crate) sequence: u32,
}

/// A copy in the log of a block.
struct Copy {
    block: u64,
    log_block: u64,
    sequence: u32,
    escaped: bool,
    checksum: Option<u32>,
}

/// What the scan found of whole transactions.
#[derive(Default)]
struct Found {
    copies: Vec<Copy>,
    /// The last transaction that revoked a block.
    revoked: BlockMap<u32>,
    transactions: u32,
}

fn damaged(what: &'static str) -> Error {
    Error::Corrupted(what, 0)
}

/// Replays the journal into the cache. Returns how many transactions it had.
pub(crate) fn replay(system: &FileSystem) -> Result<u32> {
    let log = Log::open(system)?;
    if log.start == 0 {
        return Ok(0);
    }
    let found = log.scan(system)?;
    for copy in &found.copies {
        let revoked = found.revoked.get(&copy.block).is_some_and(|by| !is_before(*by, copy.sequence));
        if !revoked {
            log.pin(system, copy)?;
        }
    }
    Ok(found.transactions)
}

/// Sequence numbers wrap around.
const fn is_before(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() < 0
}

impl Log {
    /// Reads the journal's superblock.
    pub(crate) fn open(system: &FileSystem) -> Result<Self> {
        let has_one = system.geometry.has_compatible(compatible::JOURNAL);
        if !has_one || system.geometry.raw.journal_inode.get() != JOURNAL_INODE {
            return Err(damaged("the journal's place"));
        }
        let inode = system.inode(JOURNAL_INODE)?;
        if inode.kind != Kind::Regular {
            return Err(damaged("the journal's inode"));
        }
        let file_blocks = inode.size / system.geometry.block_bytes as u64;
        let mut log = Log { inode, features: 0, seed: 0, first: 1, end: u64::MAX, start: 0, sequence: 0 };
        let bytes = log.read(system, 0)?;
        let (raw, _) = RawJournalSuperblock::ref_from_prefix(&bytes).map_err(|_| damaged("the journal"))?;
        let kind = raw.header.kind.get();
        if raw.header.magic.get() != JOURNAL_MAGIC
            || !matches!(kind, KIND_SUPERBLOCK_V1 | KIND_SUPERBLOCK_V2)
            || raw.block_size.get() as usize != system.geometry.block_bytes
        {
            return Err(damaged("the journal's superblock"));
        }
        if kind == KIND_SUPERBLOCK_V2 {
            log.features = raw.incompatible.get();
        }
        if log.features & !KNOWN != 0 {
            return Err(Error::UnknownFeature("of the journal", log.features & !KNOWN));
        }
        if log.has_checksums() {
            let sum = crc32c(crc32c(!0, &bytes[..0xfc]), &[0; 4]);
            if raw.checksum_type != 4 || crc32c(sum, &bytes[0x100..1024]) != raw.checksum.get() {
                return Err(damaged("the checksum of the journal's superblock"));
            }
        }
        let fast = if log.features & FEATURE_FAST_COMMIT != 0 {
            match raw.fast_commit_blocks.get() {
                0 => 256,
                count => u64::from(count),
            }
        } else {
            0
        };
        let blocks = u64::from(raw.blocks.get());
        log.seed = crc32c(!0, &raw.uuid);
        log.first = raw.first.get().into();
        log.end = blocks.checked_sub(fast).ok_or(damaged("the journal's size"))?;
        log.start = raw.start.get().into();
        log.sequence = raw.sequence.get();
        let start_sound = log.start == 0 || (log.first..log.end).contains(&log.start);
        if blocks > file_blocks || log.first == 0 || log.first >= log.end || !start_sound {
            return Err(damaged("the journal's bounds"));
        }
        if fast > 0 && log.start != 0 {
            log.refuse_fast_commits(system, blocks - fast)?;
        }
        Ok(log)
    }

    /// Fast commits describe changes in words of their own, which are not understood here: with one of them to replay, what
    /// the log says is not all that was promised.
    fn refuse_fast_commits(&self, system: &FileSystem, from: u64) -> Result<()> {
        let head = self.read(system, from)?;
        // A fast commit area in use begins with a tag of kind 9 (head).
        if head[..2] == 9u16.to_le_bytes() {
            return Err(Error::UnknownFeature(
                "fast_commit of the journal, with commits to replay",
                FEATURE_FAST_COMMIT,
            ));
        }
        Ok(())
    }

    pub(crate) fn has_checksums(&self) -> bool {
        self.features & (FEATURE_CHECKSUM_V2 | FEATURE_CHECKSUM_V3) != 0
    }

    /// The disk's block that is a block of the log.
    pub(crate) fn place(&self, system: &FileSystem, logical: u64) -> Result<u64> {
        map(system, &self.inode, logical, 1)?.place.ok_or(damaged("a hole in the journal"))
    }

    pub(crate) fn read(&self, system: &FileSystem, logical: u64) -> Result<Vec<u8>> {
        system.cache.read(self.place(system, logical)?)
    }

    pub(crate) fn next(&self, logical: u64) -> u64 {
        if logical + 1 == self.end { self.first } else { logical + 1 }
    }

    /// Follows the log as far as it is whole.
    fn scan(&self, system: &FileSystem) -> Result<Found> {
        let mut found = Found::default();
        let mut at = self.start;
        let mut sequence = self.sequence;
        let (mut copies, mut revokes) = (Vec::new(), Vec::new());
        // Each round reads at least one block of the ring: once around is enough.
        let mut left = self.end - self.first;
        while left > 0 {
            let bytes = self.read(system, at)?;
            let (header, _) =
                RawJournalHeader::read_from_prefix(&bytes).map_err(|_| damaged("the journal"))?;
            if header.magic.get() != JOURNAL_MAGIC || header.sequence.get() != sequence {
                break;
            }
            left -= 1;
            at = self.next(at);
            match header.kind.get() {
                KIND_DESCRIPTOR => {
                    if !self.tail_fits(&bytes) {
                        break;
                    }
                    let before = copies.len();
                    self.read_tags(&bytes, sequence, &mut at, &mut copies)?;
                    left = left.saturating_sub((copies.len() - before) as u64);
                }
                KIND_REVOKE => {
                    if !self.tail_fits(&bytes) {
                        break;
                    }
                    self.read_revokes(&bytes, &mut revokes)?;
                }
                KIND_COMMIT => {
                    if !self.commit_fits(&bytes) || !self.copies_fit(system, &copies)? {
                        break;
                    }
                    fallible::try_reserve(&mut found.copies, copies.len())?;
                    found.copies.append(&mut copies);
                    found.revoked.try_reserve(revokes.len()).map_err(|_| Error::OutOfMemory)?;
                    found.revoked.extend(revokes.drain(..).map(|block| (block, sequence)));
                    found.transactions += 1;
                    sequence = sequence.wrapping_add(1);
                }
                _ => break,
            }
        }
        Ok(found)
    }

    /// Descriptor and revoke blocks have their checksum in the last four bytes.
    fn tail_fits(&self, bytes: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let (body, tail) = bytes.split_at(bytes.len() - 4);
        crc32c(crc32c(self.seed, body), &[0; 4]).to_be_bytes() == *tail
    }

    fn commit_fits(&self, bytes: &[u8]) -> bool {
        if !self.has_checksums() {
            return true;
        }
        let sum = crc32c(crc32c(self.seed, &bytes[..COMMIT_CHECKSUM_AT]), &[0; 4]);
        let sum = crc32c(sum, &bytes[COMMIT_CHECKSUM_AT + 4..]);
        sum.to_be_bytes() == bytes[COMMIT_CHECKSUM_AT..COMMIT_CHECKSUM_AT + 4]
    }

    /// Whether all copies of a transaction reached the log: a torn commit is as good as none.
    fn copies_fit(&self, system: &FileSystem, copies: &[Copy]) -> Result<bool> {
        for copy in copies {
            let Some(wanted) = copy.checksum else { continue };
            let bytes = self.read(system, copy.log_block)?;
            let sum = crc32c(crc32c(self.seed, &copy.sequence.to_be_bytes()), &bytes);
            let sum = if self.features & FEATURE_CHECKSUM_V3 != 0 { sum } else { sum & 0xffff };
            if sum != wanted {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The tags of a descriptor block; moves `at` behind their copies.
    fn read_tags(&self, bytes: &[u8], sequence: u32, at: &mut u64, copies: &mut Vec<Copy>) -> Result<()> {
        let tail = if self.has_checksums() { 4 } else { 0 };
        let mut rest = &bytes[size_of::<RawJournalHeader>()..bytes.len() - tail];
        while let Some((copy, last, behind)) = self.read_tag(rest, sequence, *at) {
            fallible::try_push(copies, copy)?;
            *at = self.next(*at);
            if last {
                break;
            }
            rest = behind;
        }
        Ok(())
    }

    fn read_tag<'b>(&self, rest: &'b [u8], sequence: u32, log_block: u64) -> Option<(Copy, bool, &'b [u8])> {
        let wide = self.features & FEATURE_64BIT != 0;
        let (block, flags, checksum, mut behind);
        if self.features & FEATURE_CHECKSUM_V3 != 0 {
            let (tag, after) = RawTag3::read_from_prefix(rest).ok()?;
            let high = if wide { u64::from(tag.block_high.get()) << 32 } else { 0 };
            block = high | u64::from(tag.block.get());
            (flags, checksum, behind) = (tag.flags.get(), Some(tag.checksum.get()), after);
        } else {
            let (tag, mut after) = RawTag::read_from_prefix(rest).ok()?;
            let mut high = 0;
            if wide {
                let (word, then) = U32::read_from_prefix(after).ok()?;
                (high, after) = (u64::from(word.get()) << 32, then);
            }
            let mut sum = None;
            if self.features & FEATURE_CHECKSUM_V2 != 0 {
                // The size of the tag as it was first defined had two more bytes.
                (sum, after) = (Some(u32::from(tag.checksum.get())), after.get(2..)?);
            }
            block = high | u64::from(tag.block.get());
            (flags, checksum, behind) = (tag.flags.get().into(), sum, after);
        }
        if flags & TAG_SAME_UUID == 0 {
            behind = behind.get(16..)?;
        }
        let copy = Copy { block, log_block, sequence, escaped: flags & TAG_ESCAPED != 0, checksum };
        Some((copy, flags & TAG_LAST != 0, behind))
    }

    fn read_revokes(&self, bytes: &[u8], revokes: &mut Vec<u64>) -> Result<()> {
        let head = size_of::<RawJournalHeader>();
        let used =
            u32::from_be_bytes([bytes[head], bytes[head + 1], bytes[head + 2], bytes[head + 3]]) as usize;
        let list = bytes.get(head + 4..used.min(bytes.len())).ok_or(damaged("a revoke block"))?;
        let width = if self.features & FEATURE_64BIT != 0 { 8 } else { 4 };
        fallible::try_reserve(revokes, list.len() / width)?;
        let number = |bytes: &[u8]| bytes.iter().fold(0u64, |number, byte| number << 8 | u64::from(*byte));
        revokes.extend(list.chunks_exact(width).map(number));
        Ok(())
    }

    fn pin(&self, system: &FileSystem, copy: &Copy) -> Result<()> {
        let inside = copy.block < system.geometry.blocks;
        if !inside {
            return Err(Error::Corrupted("a block's number in the journal", copy.block));
        }
        let mut bytes = self.read(system, copy.log_block)?;
        if copy.escaped {
            // It began with the journal's own magic number.
            bytes[..4].copy_from_slice(&JOURNAL_MAGIC.to_be_bytes());
        }
        let bytes: Arc<Vec<u8>> = fallible::try_arc(bytes)?;
        system.cache.pin(copy.block, bytes)
    }
}
