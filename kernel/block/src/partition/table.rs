//! Finding out how a disk is divided.
//!
//! A table is what somebody wrote on a disk: nothing in it is believed. Partitions outside the disk, empty ones and those
//! that overlap an earlier one are left out; loops end at [`PARTITIONS_MAX`].

use alloc::vec::Vec;

use memory::fallible;

use super::{gpt, mbr};
use crate::{Result, Volume};

/// Partitions of a disk at most, as Linux has it.
pub const PARTITIONS_MAX: usize = 256;

/// What kind of table a disk has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    /// None that is known.
    None,
    /// GUID partition table; `true`: from the backup, the primary one being damaged.
    Gpt {
        /// Whether the backup at the disk's end was used.
        from_backup: bool,
    },
    /// DOS.
    Mbr,
}

/// A part of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// The number in the device's name, from 1.
    pub number: u32,
    /// The first sector, of 512 bytes.
    pub start: u64,
    /// How many.
    pub sectors: u64,
    /// GPT: the type; MBR: its byte in the first place.
    pub kind: [u8; 16],
    /// GPT: the partition's own; MBR: disk signature and number.
    pub identity: [u8; 16],
    /// GPT: UTF-16.
    pub name: [u16; 36],
}

/// The partitions of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Where they come from.
    pub scheme: Scheme,
    /// In the order of their numbers.
    pub partitions: Vec<Partition>,
}

impl Table {
    pub(super) const fn empty() -> Self {
        Self { scheme: Scheme::None, partitions: Vec::new() }
    }

    /// Adds a partition if it is inside the disk and apart from the others.
    pub(super) fn add(&mut self, disk_sectors: u64, partition: Partition) -> Result<()> {
        let Some(end) = partition.start.checked_add(partition.sectors) else { return Ok(()) };
        let overlaps = |other: &Partition| partition.start < other.start + other.sectors && other.start < end;
        if partition.sectors == 0
            || end > disk_sectors
            || self.partitions.len() == PARTITIONS_MAX
            || self.partitions.iter().any(overlaps)
        {
            log::warn!("partition {} is outside the disk or overlaps another: left out", partition.number);
            return Ok(());
        }
        Ok(fallible::try_push(&mut self.partitions, partition)?)
    }
}

/// Reads a disk's table. Fails only when the disk cannot be read.
pub fn scan(disk: &Volume) -> Result<Table> {
    let block = u64::from(disk.queue().limits().logical_block_bytes);
    if disk.sectors() < 2 * block / 512 {
        return Ok(Table::empty());
    }
    let first = disk.read(0, block as usize)?;
    match mbr::kind(&first) {
        mbr::Kind::None => Ok(Table::empty()),
        mbr::Kind::Dos => mbr::read(disk, &first),
        mbr::Kind::Protective => match gpt::read(disk)? {
            Some(table) => Ok(table),
            None => mbr::read(disk, &first),
        },
    }
}
