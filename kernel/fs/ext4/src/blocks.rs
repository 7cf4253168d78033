//! Where the blocks of metadata come from: the cache for those who read, a handle's private copies over it for those who change.
//!
//! Walks over extents, directories and attributes are written once, for both.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::cache::BlockBytes;
use crate::file_system::FileSystem;
use crate::geometry::Geometry;
use crate::group::Group;
use crate::inode::Inode;
use crate::{Error, Result};

/// See the theory of this file.
pub(crate) trait Blocks {
    /// What the superblock says.
    fn geometry(&self) -> &Geometry;

    /// Where each group has its inodes; 0: nobody has asked yet.
    fn inode_tables(&self) -> &[AtomicU64];

    /// A block's newest contents. `check` looks at what comes from the disk.
    fn block(&self, block: u64, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes>;

    /// The same of a block of many structures. `check` looks at one of them, unless it passed before.
    fn part(&self, block: u64, part: usize, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes>;
}

impl Blocks for FileSystem {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn inode_tables(&self) -> &[AtomicU64] {
        &self.inode_tables
    }

    fn block(&self, block: u64, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        self.cache.get(block, check)
    }

    fn part(&self, block: u64, part: usize, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        self.cache.get_part(block, part, check)
    }
}

/// What of a file system is in memory: other blocks are not there. Never sleeps.
pub(crate) struct AtHand<'a>(pub(crate) &'a FileSystem);

impl Blocks for AtHand<'_> {
    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn inode_tables(&self) -> &[AtomicU64] {
        self.0.inode_tables()
    }

    fn block(&self, block: u64, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        self.0.cache.at_hand(block, check)
    }

    fn part(&self, block: u64, part: usize, check: impl FnOnce(&[u8]) -> Result<()>) -> Result<BlockBytes> {
        self.0.cache.part_at_hand(block, part, check)
    }
}

/// The bytes of an inode: a part of a block.
pub(crate) struct RawInodeBytes {
    block: BlockBytes,
    at: usize,
    length: usize,
}

impl RawInodeBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.block[self.at..self.at + self.length]
    }
}

/// Where a group has its inodes, which its descriptor is asked for once.
fn inode_table(blocks: &impl Blocks, group: u32) -> Result<u64> {
    let known = blocks.inode_tables().get(group as usize);
    // Relaxed: a group's inodes never move, so whoever finds a number here finds the only one.
    match known.map_or(0, |known| known.load(Relaxed)) {
        0 => {
            let table = Group::read(blocks, group)?.inode_table;
            if let Some(known) = known {
                known.store(table, Relaxed);
            }
            Ok(table)
        }
        table => Ok(table),
    }
}

/// The block with an inode, and where in it that is.
pub(crate) fn inode_place(blocks: &impl Blocks, number: u32) -> Result<(u64, usize)> {
    let geometry = blocks.geometry();
    let index = number.checked_sub(1).filter(|index| *index < geometry.inodes);
    let index = index.ok_or(Error::Corrupted("the number of an inode", number.into()))?;
    let table = inode_table(blocks, index / geometry.inodes_per_group)?;
    let offset = (index % geometry.inodes_per_group) as usize * geometry.inode_bytes;
    Ok((table + (offset / geometry.block_bytes) as u64, offset % geometry.block_bytes))
}

pub(crate) fn raw_inode(blocks: &impl Blocks, number: u32) -> Result<RawInodeBytes> {
    let (place, at) = inode_place(blocks, number)?;
    let block = blocks.block(place, |_| Ok(()))?;
    Ok(RawInodeBytes { block, at, length: blocks.geometry().inode_bytes })
}

/// Reads an inode.
pub(crate) fn inode(blocks: &impl Blocks, number: u32) -> Result<Inode> {
    let (place, at) = inode_place(blocks, number)?;
    let geometry = blocks.geometry();
    let length = geometry.inode_bytes;
    let block =
        blocks.part(place, at / length, |block| Inode::verify(geometry, number, &block[at..at + length]))?;
    Inode::parse(geometry, number, &block[at..at + length])
}
