//! Partitions that a program adds, deletes and resizes by `BLKPG`: what `partx`, `addpart`, `delpart` and `resizepart` do.

use alloc::sync::Arc;

use block::SECTOR_BYTES;
use block::disk::{self, Disk, by_hand};
use block::registry::BlockDevice;
use machine::address::UserAddr;
use machine::user_memory;
use vfs::disk::DeviceFiles;
use vfs::{Error, Result};

use crate::block_requests::{error_of, require_administrator};

const ADD: i32 = 1;
const DELETE: i32 = 2;
const RESIZE: i32 = 3;

/// `struct blkpg_ioctl_arg`, and where the address of the second one is in it.
const ARGUMENT_BYTES: usize = 24;
const DATA_AT: usize = 16;
/// What counts of `struct blkpg_partition`: start and length in bytes, number. Names follow, which nobody reads.
const PARTITION_BYTES: usize = 152;

fn word<const BYTES: usize>(bytes: &[u8], at: usize) -> [u8; BYTES] {
    let mut word = [0; BYTES];
    word.copy_from_slice(&bytes[at..at + BYTES]);
    word
}

/// Carries out what the program asks for.
///
/// # Errors
/// `EACCES` without `CAP_SYS_ADMIN`; `EINVAL` for what is not possible, and for partitions; `ENXIO` if there is no such partition; `EBUSY` if it is in
/// use, or its place is taken; `EFAULT`.
pub(crate) fn answer(device: &Arc<BlockDevice>, argument: UserAddr) -> Result<usize> {
    let mut request = [0; ARGUMENT_BYTES];
    user_memory::read(&mut request, argument).map_err(|_| Error::BadAddress)?;
    require_administrator()?;
    let operation = i32::from_ne_bytes(word(&request, 0));
    let data = UserAddr::new(u64::from_ne_bytes(word(&request, DATA_AT)));
    let mut partition = [0; PARTITION_BYTES];
    user_memory::read(&mut partition, data).map_err(|_| Error::BadAddress)?;
    if device.part() > 0 {
        return Err(Error::Invalid);
    }
    let disk = disk::of(device).ok_or(Error::Invalid)?;
    let number = i32::from_ne_bytes(word(&partition, 16));
    let number = u32::try_from(number).ok().filter(|number| *number > 0).ok_or(Error::Invalid)?;
    let (start, bytes) = (i64::from_ne_bytes(word(&partition, 0)), i64::from_ne_bytes(word(&partition, 8)));
    let outcome = match operation {
        DELETE => by_hand::delete(&disk, number).map_err(of_partition),
        ADD | RESIZE => {
            let (start, sectors) = sectors_of(start, bytes)?;
            if operation == RESIZE {
                resize(&disk, number, start, sectors)
            } else if is_aligned(&disk, start) && is_aligned(&disk, sectors) {
                by_hand::add(&disk, number, start, sectors).map_err(of_partition)
            } else {
                Err(Error::Invalid)
            }
        }
        _ => Err(Error::Invalid),
    };
    outcome.map(|()| 0)
}

/// What there is not is an address that is none here.
fn of_partition(error: block::Error) -> Error {
    if error == block::Error::NoDevice { Error::NoDeviceAddress } else { error_of(error) }
}

/// First sector and sectors, from bytes.
fn sectors_of(start: i64, bytes: i64) -> Result<(u64, u64)> {
    if start < 0 || bytes <= 0 || start.checked_add(bytes).is_none() {
        return Err(Error::Invalid);
    }
    Ok((start as u64 / SECTOR_BYTES as u64, bytes as u64 / SECTOR_BYTES as u64))
}

fn is_aligned(disk: &Disk, sectors: u64) -> bool {
    let block = u64::from(disk.queue().limits().logical_block_bytes);
    sectors.is_multiple_of(block / SECTOR_BYTES as u64)
}

fn resize(disk: &Arc<Disk>, number: u32, start: u64, sectors: u64) -> Result<()> {
    let part = by_hand::resize(disk, number, start, sectors).map_err(of_partition)?;
    // Pages that nobody asked for yet find the size themselves.
    if part.existing_files().is_some() { DeviceFiles::of(&part)?.resize(sectors) } else { Ok(()) }
}
