//! Tables of numbered records: owners, fragments, extended attributes. Each is in blocks of metadata, whose places are in an array.

use alloc::vec::Vec;

use crate::cursor::Cursor;
use crate::file_system::FileSystem;
use crate::store::METADATA_BYTES;
use crate::superblock::{u32_at, u64_at};
use crate::{Error, Result};

/// The record of that number; `places` is where the array is. The caller has checked the number.
fn record<const N: usize>(system: &FileSystem, places: u64, index: u32) -> Result<[u8; N]> {
    let per_block = METADATA_BYTES / N;
    let place = (index as usize / per_block * 8) as u64;
    let place = places.checked_add(place).ok_or(Error::Corrupted("the place of a table", places))?;
    let block = u64_at(&system.store.raw(place, 8)?, 0);
    Cursor::new(block, index as usize % per_block * N).array(system)
}

/// The user or group of that number.
pub(crate) fn owner(system: &FileSystem, index: u16) -> Result<u32> {
    if let Some(owner) = system.owners.get(usize::from(index)) {
        return Ok(*owner);
    }
    Err(Error::Corrupted("the number of an owner", index.into()))
}

/// All users and groups: at most 64 Ki.
pub(crate) fn owners(system: &FileSystem) -> Result<Vec<u32>> {
    let superblock = &system.superblock;
    let mut owners = memory::fallible::try_vec(superblock.owners.into())?;
    for index in 0..u32::from(superblock.owners) {
        owners.push(u32_at(&record::<4>(system, superblock.owner_table, index)?, 0));
    }
    Ok(owners)
}

/// A fragment: where the block is that it is a part of, and the block's size as in lists of blocks.
pub(crate) fn fragment(system: &FileSystem, index: u32) -> Result<(u64, u32)> {
    if index >= system.superblock.fragments {
        return Err(Error::Corrupted("the number of a fragment", index.into()));
    }
    let record = record::<16>(system, system.superblock.fragment_table, index)?;
    Ok((u64_at(&record, 0), u32_at(&record, 8)))
}

/// A file's extended attributes: where they begin, and how many they are.
pub(crate) fn attributes(system: &FileSystem, index: u32) -> Result<(Cursor, u64, u32)> {
    let table = system.superblock.attribute_table.ok_or(Error::NotFound)?;
    let header = system.store.raw(table, 16)?;
    let (start, count) = (u64_at(&header, 0), u32_at(&header, 8));
    if index >= count {
        return Err(Error::Corrupted("the number of a file's attributes", index.into()));
    }
    let record = record::<16>(system, table + 16, index)?;
    Ok((Cursor::of_reference(start, u64_at(&record, 0))?, start, u32_at(&record, 8)))
}
