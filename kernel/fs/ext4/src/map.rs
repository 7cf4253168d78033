//! From a file's blocks to the disk's: extent trees, and the older trees of indirect blocks.
//!
//! A walk goes down at most five levels, each of which is checked: magic, counts, order of the keys, depth one less than the parent's, checksum
//! and places inside the file system. So no image makes it loop or leave the disk.

use zerocopy::FromBytes;

use block::checksum::crc32c;

use crate::blocks::Blocks;
use crate::inode::Inode;
use crate::layout::{
    EXTENT_DEPTH_MAX, EXTENT_ENTRY_BYTES, EXTENT_LENGTH_MAX, EXTENT_MAGIC, RawExtent, RawExtentHeader,
    RawExtentIndex,
};
use crate::{Error, Result};

/// Where neighbouring blocks of a file are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first block on the disk; `None`: a hole, or allocated and never written. Reads as zeros.
    pub place: Option<u64>,
    /// How many blocks.
    pub count: u64,
    /// Where blocks are allocated for it all the same.
    pub unwritten: Option<u64>,
}

impl Run {
    const fn hole(count: u64) -> Self {
        Self { place: None, count, unwritten: None }
    }
}

pub(crate) const DIRECT: u64 = 12;

/// The run that a file's block begins, at most `wanted` blocks long.
pub(crate) fn map(system: &impl Blocks, inode: &Inode, logical: u64, wanted: u64) -> Result<Run> {
    debug_assert!(wanted > 0, "nobody maps nothing");
    let run = if inode.has_extents() {
        map_extents(system, inode, logical)?
    } else {
        map_indirect(system, inode, logical, wanted)?
    };
    Ok(Run { count: run.count.min(wanted), ..run })
}

fn map_extents(system: &impl Blocks, inode: &Inode, logical: u64) -> Result<Run> {
    let Ok(logical) = u32::try_from(logical) else { return Ok(Run::hole(u64::MAX)) };
    // The first block behind what the current node covers.
    let mut limit = u64::from(u32::MAX) + 1;
    let mut node = Node::parse(inode, &inode.map, None)?;
    let mut block;
    loop {
        if node.depth == 0 {
            return node.find(system, inode, logical, limit);
        }
        let Some((child, end)) = node.child(logical)? else {
            return Ok(Run::hole(node.first_key().unwrap_or(limit).min(limit) - u64::from(logical)));
        };
        limit = end.unwrap_or(limit).min(limit);
        if !system.geometry().contains(child, 1) {
            return Err(Error::Corrupted("an extent tree's child", inode.number.into()));
        }
        let depth = node.depth;
        block = system.block(child, |bytes| Node::verify(system, inode, bytes))?;
        node = Node::parse(inode, &block, Some(depth))?;
    }
}

/// A node of an extent tree.
pub(crate) struct Node<'a> {
    pub(crate) depth: u16,
    pub(crate) entries: &'a [[u8; EXTENT_ENTRY_BYTES]],
    /// Entries that there is room for.
    pub(crate) max: usize,
    inode: u32,
}

impl<'a> Node<'a> {
    /// The checksum, behind the last entry that there is room for.
    pub(crate) fn verify(system: &impl Blocks, inode: &Inode, bytes: &[u8]) -> Result<()> {
        if !system.geometry().metadata_checksum() {
            return Ok(());
        }
        let damaged = || Error::Corrupted("an extent block's checksum", inode.number.into());
        let (header, _) = RawExtentHeader::read_from_prefix(bytes).map_err(|_| damaged())?;
        let end = EXTENT_ENTRY_BYTES * (usize::from(header.max.get()) + 1);
        let tail = bytes.get(end..end + 4).ok_or_else(damaged)?;
        if crc32c(inode.seed, &bytes[..end]).to_le_bytes() != *tail {
            return Err(damaged());
        }
        Ok(())
    }

    pub(crate) fn parse(inode: &Inode, bytes: &'a [u8], parent_depth: Option<u16>) -> Result<Self> {
        let damaged = || Error::Corrupted("an extent tree", inode.number.into());
        let (header, rest) = RawExtentHeader::read_from_prefix(bytes).map_err(|_| damaged())?;
        let (count, max, depth) =
            (usize::from(header.entries.get()), usize::from(header.max.get()), header.depth.get());
        let entries = rest.as_chunks::<EXTENT_ENTRY_BYTES>().0;
        let deep_enough = match parent_depth {
            Some(parent) => depth + 1 == parent,
            None => depth <= EXTENT_DEPTH_MAX,
        };
        if header.magic.get() != EXTENT_MAGIC || !deep_enough || count > max || max > entries.len() {
            return Err(damaged());
        }
        Ok(Self { depth, entries: &entries[..count], max, inode: inode.number })
    }

    pub(crate) fn key(entry: &[u8; EXTENT_ENTRY_BYTES]) -> u32 {
        u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]])
    }

    fn first_key(&self) -> Option<u64> {
        self.entries.first().map(|entry| Self::key(entry).into())
    }

    /// The child that covers a block, and the first block behind it if the node says so.
    fn child(&self, logical: u32) -> Result<Option<(u64, Option<u64>)>> {
        let behind = self.entries.partition_point(|entry| Self::key(entry) <= logical);
        let Some(entry) = behind.checked_sub(1).map(|index| &self.entries[index]) else { return Ok(None) };
        let index = RawExtentIndex::read_from_bytes(entry)
            .map_err(|_| Error::Corrupted("an extent tree", self.inode.into()))?;
        let child = u64::from(index.child_high.get()) << 32 | u64::from(index.child_low.get());
        Ok(Some((child, self.entries.get(behind).map(|entry| Self::key(entry).into()))))
    }

    /// The run of a leaf, or the hole up to the next extent.
    fn find(&self, system: &impl Blocks, inode: &Inode, logical: u32, limit: u64) -> Result<Run> {
        let damaged = || Error::Corrupted("an extent", inode.number.into());
        let behind = self.entries.partition_point(|entry| Self::key(entry) <= logical);
        let next = self.entries.get(behind).map_or(limit, |entry| u64::from(Self::key(entry)).min(limit));
        let hole = Run::hole(next.saturating_sub(logical.into()).max(1));
        let Some(entry) = behind.checked_sub(1).map(|index| &self.entries[index]) else { return Ok(hole) };
        let extent = RawExtent::read_from_bytes(entry).map_err(|_| damaged())?;
        let unwritten = extent.length.get() > EXTENT_LENGTH_MAX;
        let length =
            u64::from(if unwritten { extent.length.get() - EXTENT_LENGTH_MAX } else { extent.length.get() });
        let start = u64::from(extent.start_high.get()) << 32 | u64::from(extent.start_low.get());
        if length == 0 || !system.geometry().contains(start, length) {
            return Err(damaged());
        }
        let inside = u64::from(logical - extent.logical.get());
        if inside >= length {
            return Ok(hole);
        }
        let place = start + inside;
        let (place, unwritten) = if unwritten { (None, Some(place)) } else { (Some(place), None) };
        Ok(Run { place, count: length - inside, unwritten })
    }
}

/// Twelve blocks directly, then trees of one, two and three levels.
fn map_indirect(system: &impl Blocks, inode: &Inode, logical: u64, wanted: u64) -> Result<Run> {
    let damaged = || Error::Corrupted("an indirect block", inode.number.into());
    let fan_out = system.geometry().block_bytes as u64 / 4;
    let slots = inode.map.as_chunks::<4>().0;
    if logical < DIRECT {
        return run_of(system, &slots[..DIRECT as usize], logical as usize, wanted).ok_or_else(damaged);
    }
    let mut rest = logical - DIRECT;
    let mut span = 1u64;
    for level in 1..=3u32 {
        span *= fan_out;
        if rest < span {
            let root = u32::from_le_bytes(slots[(DIRECT + u64::from(level) - 1) as usize]);
            return walk_indirect(system, inode, root, level, rest, wanted);
        }
        rest -= span;
    }
    Ok(Run::hole(u64::MAX))
}

fn walk_indirect(
    system: &impl Blocks,
    inode: &Inode,
    root: u32,
    levels: u32,
    at: u64,
    wanted: u64,
) -> Result<Run> {
    let damaged = || Error::Corrupted("an indirect block", inode.number.into());
    let fan_out = system.geometry().block_bytes as u64 / 4;
    let mut block = u64::from(root);
    for level in (0..levels).rev() {
        let span = fan_out.pow(level);
        if block == 0 {
            let below = span * fan_out;
            return Ok(Run::hole(below - at % below));
        }
        if !system.geometry().contains(block, 1) {
            return Err(damaged());
        }
        let bytes = system.block(block, |_| Ok(()))?;
        let slots = bytes.as_chunks::<4>().0;
        let index = (at / span % fan_out) as usize;
        if level == 0 {
            return run_of(system, slots, index, wanted).ok_or_else(damaged);
        }
        block = u32::from_le_bytes(slots[index]).into();
    }
    Err(damaged())
}

/// The longest run of neighbours, or of holes, from a slot on.
fn run_of(system: &impl Blocks, slots: &[[u8; 4]], index: usize, wanted: u64) -> Option<Run> {
    let first = u64::from(u32::from_le_bytes(slots[index]));
    let step = u64::from(first != 0);
    let same = |(distance, slot): &(usize, &[u8; 4])| {
        u64::from(u32::from_le_bytes(**slot)) == first + step * *distance as u64
    };
    let most = usize::try_from(wanted).unwrap_or(usize::MAX);
    let count = slots[index..].iter().take(most).enumerate().take_while(same).count() as u64;
    if first == 0 {
        return Some(Run::hole(count));
    }
    system.geometry().contains(first, count).then_some(Run { place: Some(first), count, unwritten: None })
}
