//! Partitions that programs add, change and delete, whatever a table says (`BLKPG`): until the table is read again, or the disk goes.
//!
//! The locks are those of [`attach`](super::attach()), in the same order.

use alloc::sync::Arc;
use alloc::vec::Vec;

use device::model::uevent::Action;

use super::attach::{CHANGING, Disk, add_partition, emit, replace};
use crate::partition::{PARTITIONS_MAX, Partition};
use crate::registry::{self, BlockDevice};
use crate::{Error, Result};

/// With the locks held: the partitions of a disk that is there.
fn parts_of(disk: &Disk) -> Result<Vec<(Partition, Arc<BlockDevice>)>> {
    // Who has detached the disk has taken its partitions.
    if disk.queue().is_gone() { Err(Error::NoDevice) } else { disk.partitions() }
}

/// The sector after the last one, if all are the disk's.
fn end_inside(disk: &Disk, start: u64, sectors: u64) -> Result<u64> {
    let end = start.checked_add(sectors).filter(|end| sectors > 0 && *end <= disk.queue().sectors());
    end.ok_or(Error::Invalid)
}

fn overlaps(known: &Partition, start: u64, end: u64) -> bool {
    known.start < end && start < known.start + known.sectors
}

/// Adds a partition.
///
/// # Errors
/// [`Error::Invalid`] if it has no sectors, is not inside the disk, or its number is not possible; [`Error::Busy`] if there is one of that number or on
/// those sectors; [`Error::NoDevice`] if the disk has gone; no memory.
pub fn add(disk: &Arc<Disk>, number: u32, start: u64, sectors: u64) -> Result<()> {
    let _scanning = disk.scanning.lock();
    let _changing = CHANGING.lock();
    let mut parts = parts_of(disk)?;
    if !(1..PARTITIONS_MAX as u32).contains(&number) {
        return Err(Error::Invalid);
    }
    let end = end_inside(disk, start, sectors)?;
    if parts.iter().any(|(known, _)| known.number == number || overlaps(known, start, end)) {
        return Err(Error::Busy);
    }
    let partition = Partition { number, start, sectors, kind: [0; 16], identity: [0; 16], name: [0; 36] };
    let part = add_partition(disk, &partition)?;
    // There is room: a copy of the list has some for one more.
    parts.push((partition, part));
    sorting::sort_by_key(&mut parts, |(partition, _)| partition.number);
    replace(&disk.parts, parts);
    Ok(())
}

/// Deletes the partition of a number.
///
/// # Errors
/// [`Error::NoDevice`] if there is none; [`Error::Busy`] if somebody has it open or has claimed it; no memory.
pub fn delete(disk: &Arc<Disk>, number: u32) -> Result<()> {
    let _scanning = disk.scanning.lock();
    let _changing = CHANGING.lock();
    let mut parts = parts_of(disk)?;
    let at = parts.iter().position(|(known, _)| known.number == number).ok_or(Error::NoDevice)?;
    if parts[at].1.is_used() {
        return Err(Error::Busy);
    }
    let (_, part) = parts.remove(at);
    registry::remove(&part);
    emit(Action::Remove, disk, &part);
    replace(&disk.parts, parts);
    Ok(())
}

/// Gives the partition of a number another size, open or not; the partition.
///
/// # Errors
/// [`Error::NoDevice`] if there is none; [`Error::Invalid`] if it begins elsewhere, or would have no sectors or some outside of the disk;
/// [`Error::Busy`] if they are another one's; no memory.
pub fn resize(disk: &Arc<Disk>, number: u32, start: u64, sectors: u64) -> Result<Arc<BlockDevice>> {
    let _scanning = disk.scanning.lock();
    let _changing = CHANGING.lock();
    let mut parts = parts_of(disk)?;
    let at = parts.iter().position(|(known, _)| known.number == number).ok_or(Error::NoDevice)?;
    let end = end_inside(disk, start, sectors)?;
    if parts[at].0.start != start {
        return Err(Error::Invalid);
    }
    if parts.iter().any(|(known, _)| known.number != number && overlaps(known, start, end)) {
        return Err(Error::Busy);
    }
    parts[at].0.sectors = sectors;
    let part = parts[at].1.clone();
    part.volume().set_sectors(sectors);
    replace(&disk.parts, parts);
    Ok(part)
}
