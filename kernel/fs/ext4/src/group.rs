//! Groups: where a part of the disk has its bitmaps and inodes.

use zerocopy::FromBytes;

use block::checksum::{crc16, crc32c};

use crate::cache::Cache;
use crate::geometry::{Geometry, read_only_compatible};
use crate::layout::{DESCRIPTOR_CHECKSUM_AT, RawGroup, RawGroupHigh};
use crate::{Error, Result};

/// What is needed of a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Group {
    pub(crate) inode_table: u64,
}

impl Group {
    /// Reads and checks a group's descriptor.
    pub(crate) fn read(geometry: &Geometry, cache: &Cache, number: u32) -> Result<Self> {
        if number >= geometry.groups {
            return Err(Error::Corrupted("the number of a group", number.into()));
        }
        let block = cache.get(geometry.descriptor_block(number), |_| Ok(()))?;
        let at = (number % geometry.descriptors_per_block()) as usize * geometry.descriptor_bytes;
        let bytes = &block[at..at + geometry.descriptor_bytes];
        let damaged = Error::Corrupted("a group's descriptor", number.into());
        let (low, rest) = RawGroup::read_from_prefix(bytes).map_err(|_| damaged.clone())?;
        if checksum(geometry, number, bytes).is_some_and(|sum| sum != low.checksum.get()) {
            return Err(Error::Corrupted("the checksum of a group's descriptor", number.into()));
        }
        let high = RawGroupHigh::read_from_prefix(rest).map_or(0, |(high, _)| high.inode_table.get());
        let group = Self { inode_table: u64::from(high) << 32 | u64::from(low.inode_table.get()) };
        let table_bytes = u64::from(geometry.inodes_per_group) * geometry.inode_bytes as u64;
        let table_blocks = table_bytes.div_ceil(geometry.block_bytes as u64);
        if !geometry.contains(group.inode_table, table_blocks) {
            return Err(damaged);
        }
        Ok(group)
    }
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
