//! Groups: where a part of the disk has its bitmaps and inodes, and how much of it is free.

use zerocopy::{FromBytes, IntoBytes};

use block::checksum::{crc16, crc32c};

use crate::blocks::Blocks;
use crate::geometry::{Geometry, read_only_compatible};
use crate::handle::Handle;
use crate::layout::{DESCRIPTOR_CHECKSUM_AT, RawGroup, RawGroupHigh};
use crate::{Error, Result};

/// No inode of the group was ever used: its bitmap is not there.
pub(crate) const INODES_UNUSED: u16 = 1;
/// No block of the group was ever used: its bitmap is not there.
pub(crate) const BLOCKS_UNUSED: u16 = 2;

/// A group's descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: u64,
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) directories: u32,
    /// Inodes at the table's end that were never used.
    pub(crate) unused_inodes: u32,
    pub(crate) flags: u16,
    pub(crate) block_bitmap_checksum: u32,
    pub(crate) inode_bitmap_checksum: u32,
}

impl Group {
    fn parse(low: &RawGroup, high: Option<&RawGroupHigh>) -> Self {
        let wide = |low: u32, high: Option<u32>| u64::from(high.unwrap_or(0)) << 32 | u64::from(low);
        let double = |low: u16, high: Option<u16>| u32::from(high.unwrap_or(0)) << 16 | u32::from(low);
        Self {
            block_bitmap: wide(low.block_bitmap.get(), high.map(|high| high.block_bitmap.get())),
            inode_bitmap: wide(low.inode_bitmap.get(), high.map(|high| high.inode_bitmap.get())),
            inode_table: wide(low.inode_table.get(), high.map(|high| high.inode_table.get())),
            free_blocks: double(low.free_blocks.get(), high.map(|high| high.free_blocks.get())),
            free_inodes: double(low.free_inodes.get(), high.map(|high| high.free_inodes.get())),
            directories: double(low.directories.get(), high.map(|high| high.directories.get())),
            unused_inodes: double(low.unused_inodes.get(), high.map(|high| high.unused_inodes.get())),
            flags: low.flags.get(),
            block_bitmap_checksum: double(
                low.block_bitmap_checksum.get(),
                high.map(|high| high.block_bitmap_checksum.get()),
            ),
            inode_bitmap_checksum: double(
                low.inode_bitmap_checksum.get(),
                high.map(|high| high.inode_bitmap_checksum.get()),
            ),
        }
    }

    /// Reads and checks a group's descriptor.
    pub(crate) fn read(blocks: &impl Blocks, number: u32) -> Result<Self> {
        let geometry = blocks.geometry();
        if number >= geometry.groups {
            return Err(Error::Corrupted("the number of a group", number.into()));
        }
        let (part, at) = place_in_block(geometry, number);
        let damaged = || Error::Corrupted("a group's descriptor", number.into());
        let block = blocks.part(geometry.descriptor_block(number), part, |block| {
            let bytes = &block[at..at + geometry.descriptor_bytes];
            let (low, _) = RawGroup::ref_from_prefix(bytes).map_err(|_| damaged())?;
            if checksum(geometry, number, bytes).is_some_and(|sum| sum != low.checksum.get()) {
                return Err(Error::Corrupted("the checksum of a group's descriptor", number.into()));
            }
            Ok(())
        })?;
        let bytes = &block[at..at + geometry.descriptor_bytes];
        let (low, rest) = RawGroup::ref_from_prefix(bytes).map_err(|_| damaged())?;
        let high = RawGroupHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
        let group = Self::parse(low, high);
        if !geometry.contains(group.inode_table, geometry.inode_table_blocks()) {
            return Err(damaged());
        }
        Ok(group)
    }

    /// Whether no bitmap says which blocks are free: the group is as it was made.
    pub(crate) fn blocks_unused(&self, geometry: &Geometry) -> bool {
        geometry.has_group_checksums() && self.flags & BLOCKS_UNUSED != 0
    }

    /// The same of inodes.
    pub(crate) fn inodes_unused(&self, geometry: &Geometry) -> bool {
        geometry.has_group_checksums() && self.flags & INODES_UNUSED != 0
    }

    /// Writes what may change.
    pub(crate) fn store(&self, handle: &mut Handle<'_>, number: u32) -> Result<()> {
        let system = handle.system();
        let geometry = &system.geometry;
        let block = geometry.descriptor_block(number);
        let (part, _) = place_in_block(geometry, number);
        let bytes = handle.edit_part(block, part, geometry.descriptor_bytes)?;
        let damaged = || Error::Corrupted("a group's descriptor", number.into());
        let (low, rest) = RawGroup::mut_from_prefix(bytes).map_err(|_| damaged())?;
        low.free_blocks.set(self.free_blocks as u16);
        low.free_inodes.set(self.free_inodes as u16);
        low.directories.set(self.directories as u16);
        low.unused_inodes.set(self.unused_inodes as u16);
        low.flags.set(self.flags);
        low.block_bitmap_checksum.set(self.block_bitmap_checksum as u16);
        low.inode_bitmap_checksum.set(self.inode_bitmap_checksum as u16);
        if let Ok((high, _)) = RawGroupHigh::mut_from_prefix(rest) {
            high.free_blocks.set((self.free_blocks >> 16) as u16);
            high.free_inodes.set((self.free_inodes >> 16) as u16);
            high.directories.set((self.directories >> 16) as u16);
            high.unused_inodes.set((self.unused_inodes >> 16) as u16);
            high.block_bitmap_checksum.set((self.block_bitmap_checksum >> 16) as u16);
            high.inode_bitmap_checksum.set((self.inode_bitmap_checksum >> 16) as u16);
        }
        if let Some(sum) = checksum(geometry, number, bytes) {
            bytes[DESCRIPTOR_CHECKSUM_AT..DESCRIPTOR_CHECKSUM_AT + 2].copy_from_slice(sum.as_bytes());
        }
        Ok(())
    }
}

/// Which descriptor of its block it is, and where that begins.
fn place_in_block(geometry: &Geometry, number: u32) -> (usize, usize) {
    let part = (number % geometry.descriptors_per_block()) as usize;
    (part, part * geometry.descriptor_bytes)
}

/// What the checksum should be, if there is one.
fn checksum(geometry: &Geometry, number: u32, bytes: &[u8]) -> Option<u16> {
    let before = &bytes[..DESCRIPTOR_CHECKSUM_AT];
    let after = &bytes[DESCRIPTOR_CHECKSUM_AT + 2..];
    let number = number.to_le_bytes();
    if geometry.metadata_checksum() {
        let sum = crc32c(crc32c(geometry.seed, &number), before);
        return Some(crc32c(crc32c(sum, &[0; 2]), after) as u16);
    }
    if geometry.has_read_only_compatible(read_only_compatible::GROUP_CHECKSUM) {
        let sum = crc16(crc16(!0, &geometry.raw.uuid), &number);
        return Some(crc16(crc16(sum, before), after));
    }
    None
}
