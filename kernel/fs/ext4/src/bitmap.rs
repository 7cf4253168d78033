//! Bitmaps of blocks and inodes: read with their checksums, or made where a group has never been used.

use alloc::vec::Vec;
use core::ops::Range;

use block::checksum::{crc32c, crc32c_changed};
use memory::fallible;

use crate::blocks::Blocks;
use crate::cache::BlockBytes;
use crate::geometry::Geometry;
use crate::group::{BLOCKS_UNUSED, Group, INODES_UNUSED};
use crate::handle::Handle;
use crate::{Error, Result};

pub(crate) fn is_set(bits: &[u8], index: u32) -> bool {
    bits[index as usize / 8] >> (index % 8) & 1 != 0
}

pub(crate) fn set_range(bits: &mut [u8], start: u32, count: u32) {
    for index in start..start + count {
        if index % 8 == 0 && start + count - index >= 8 {
            bits[index as usize / 8] = 0xff;
        } else {
            bits[index as usize / 8] |= 1 << (index % 8);
        }
    }
}

pub(crate) fn clear_range(bits: &mut [u8], start: u32, count: u32) {
    for index in start..start + count {
        bits[index as usize / 8] &= !(1 << (index % 8));
    }
}

/// The first index in `from..end` whose bit is as wanted, or `end`.
pub(crate) fn find(bits: &[u8], from: u32, end: u32, wanted: bool) -> u32 {
    let mut index = from;
    while index < end {
        let at = index as usize / 8;
        if index.is_multiple_of(64)
            && let Some(word) = bits[at..].first_chunk::<8>()
        {
            let word = u64::from_le_bytes(*word);
            let found = if wanted { word } else { !word };
            if found != 0 {
                return (index + found.trailing_zeros()).min(end);
            }
            index += 64;
        } else if is_set(bits, index) == wanted {
            return index;
        } else {
            index += 1;
        }
    }
    end
}

/// A sum over the bits that count; two bytes of it where descriptors are small.
fn checksum(geometry: &Geometry, bits: &[u8], count: u64) -> u32 {
    let sum = crc32c(geometry.seed, &bits[..(count / 8) as usize]);
    if geometry.descriptor_bytes >= 64 { sum } else { sum & 0xffff }
}

/// Blocks that a group has for the file system itself, as it was made.
fn fresh_block_bitmap(blocks: &impl Blocks, number: u32) -> Result<Vec<u8>> {
    let geometry = blocks.geometry();
    let mut bits = fallible::try_vec_of(0, geometry.block_bytes)?;
    let start = geometry.group_start(number);
    let count = geometry.group_blocks(number);
    set_range(&mut bits, 0, geometry.base_blocks(number).min(count));
    let mut mark = |first: u64, length: u64| {
        let from = first.max(start);
        let end = (first + length).min(start + u64::from(count));
        if from < end {
            set_range(&mut bits, (from - start) as u32, (end - from) as u32);
        }
    };
    // With flexible groups the structures of several are together in one of them.
    let together = 1u32 << u32::from(geometry.raw.log_groups_per_flex.min(16));
    let first = number / together * together;
    for other in first..first.saturating_add(together).min(geometry.groups) {
        let group = Group::read(blocks, other)?;
        mark(group.block_bitmap, 1);
        mark(group.inode_bitmap, 1);
        mark(group.inode_table, geometry.inode_table_blocks());
    }
    set_range(&mut bits, count, geometry.block_bytes as u32 * 8 - count);
    Ok(bits)
}

/// The bitmap of a group's blocks.
pub(crate) fn of_blocks(blocks: &impl Blocks, number: u32, group: &Group) -> Result<BlockBytes> {
    let geometry = blocks.geometry();
    if !geometry.contains(group.block_bitmap, 1) {
        return Err(Error::Corrupted("the place of a bitmap", number.into()));
    }
    if group.blocks_unused(geometry) {
        return Ok(fallible::try_arc(fresh_block_bitmap(blocks, number)?)?);
    }
    blocks.block(group.block_bitmap, |bits| {
        let sum = || checksum(geometry, bits, geometry.blocks_per_group);
        if geometry.metadata_checksum() && sum() != group.block_bitmap_checksum {
            return Err(Error::Corrupted("the checksum of a bitmap of blocks", number.into()));
        }
        Ok(())
    })
}

/// The same, for inodes.
pub(crate) fn of_inodes(blocks: &impl Blocks, number: u32, group: &Group) -> Result<BlockBytes> {
    let geometry = blocks.geometry();
    if !geometry.contains(group.inode_bitmap, 1) {
        return Err(Error::Corrupted("the place of a bitmap", number.into()));
    }
    if group.inodes_unused(geometry) {
        let mut bits = fallible::try_vec_of(0, geometry.block_bytes)?;
        let count = geometry.inodes_per_group;
        set_range(&mut bits, count, geometry.block_bytes as u32 * 8 - count);
        return Ok(fallible::try_arc(bits)?);
    }
    blocks.block(group.inode_bitmap, |bits| {
        let sum = || checksum(geometry, bits, geometry.inodes_per_group.into());
        if geometry.metadata_checksum() && sum() != group.inode_bitmap_checksum {
            return Err(Error::Corrupted("the checksum of a bitmap of inodes", number.into()));
        }
        Ok(())
    })
}

/// The bytes that have these bits.
fn bytes_of(bits: &Range<u32>) -> Range<usize> {
    bits.start as usize / 8..bits.end.div_ceil(8) as usize
}

/// Changes some bits, and the checksum of `count` of them.
fn change_bits(
    geometry: &Geometry,
    bits: &mut [u8],
    range: Range<u32>,
    count: u64,
    sum: u32,
    change: impl FnOnce(&mut [u8]),
) -> u32 {
    let Range { start: from, end: to } = bytes_of(&range);
    if !geometry.metadata_checksum() {
        change(bits);
        return sum;
    }
    let Some(behind) = ((count / 8) as usize).checked_sub(to) else {
        change(bits);
        return checksum(geometry, bits, count);
    };
    // A damaged image may use the block as something else, too, and have changed it as that.
    let was_right = cfg!(debug_assertions) && sum == checksum(geometry, bits, count);
    let before = crc32c(0, &bits[from..to]);
    change(bits);
    let sum = crc32c_changed(sum, before, crc32c(0, &bits[from..to]), behind);
    let sum = if geometry.descriptor_bytes >= 64 { sum } else { sum & 0xffff };
    debug_assert!(!was_right || sum == checksum(geometry, bits, count), "nothing else was changed");
    sum
}

/// Changes a range of the bitmap of a group's blocks, and its checksum in `group`, which the caller stores.
pub(crate) fn change_blocks(
    handle: &mut Handle<'_>,
    number: u32,
    group: &mut Group,
    range: Range<u32>,
    change: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let bits = of_blocks(handle, number, group)?;
    let geometry = &handle.system().geometry;
    if group.blocks_unused(geometry) {
        group.block_bitmap_checksum = checksum(geometry, &bits, geometry.blocks_per_group);
        handle.put(group.block_bitmap, fallible::try_copy(&bits)?)?;
        group.flags &= !BLOCKS_UNUSED;
    }
    drop(bits);
    let bits = handle.edit_ranges(group.block_bitmap, &[bytes_of(&range)])?;
    let sum = group.block_bitmap_checksum;
    group.block_bitmap_checksum = change_bits(geometry, bits, range, geometry.blocks_per_group, sum, change);
    Ok(())
}

/// The same, for inodes.
pub(crate) fn change_inodes(
    handle: &mut Handle<'_>,
    number: u32,
    group: &mut Group,
    range: Range<u32>,
    change: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let bits = of_inodes(handle, number, group)?;
    let geometry = &handle.system().geometry;
    if group.inodes_unused(geometry) {
        group.inode_bitmap_checksum = checksum(geometry, &bits, geometry.inodes_per_group.into());
        handle.put(group.inode_bitmap, fallible::try_copy(&bits)?)?;
        group.flags &= !INODES_UNUSED;
    }
    drop(bits);
    let bits = handle.edit_ranges(group.inode_bitmap, &[bytes_of(&range)])?;
    let sum = group.inode_bitmap_checksum;
    group.inode_bitmap_checksum =
        change_bits(geometry, bits, range, geometry.inodes_per_group.into(), sum, change);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_over_the_borders_of_words() {
        let mut bits = [0; 64];
        set_range(&mut bits, 3, 200);
        assert_eq!(find(&bits, 0, 512, true), 3);
        assert_eq!(find(&bits, 3, 512, false), 203);
        clear_range(&mut bits, 100, 1);
        assert_eq!(find(&bits, 64, 512, false), 100);
        assert_eq!(find(&bits, 300, 512, true), 512);
    }
}
