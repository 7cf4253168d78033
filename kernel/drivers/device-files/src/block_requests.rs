//! What programs ask of block devices by `ioctl`.

use alloc::sync::Arc;
use alloc::vec;

use block::disk;
use block::registry::BlockDevice;
use block::{Bio, BioFlags, Memory, Operation, SECTOR_BYTES, Volume};
use machine::address::UserAddr;
use machine::user_memory;
use vfs::credentials::{Capabilities, caller_has};
use vfs::disk::DeviceFiles;
use vfs::disk::transfer::PAGE_SECTORS;
use vfs::file::OpenFile;
use vfs::{Error, Result};

/// The requests, by their names on Linux.
#[allow(missing_docs, reason = "the names are the manual's")]
mod request {
    pub(super) const HDIO_GETGEO: u32 = 0x301;
    pub(super) const BLKROSET: u32 = 0x125d;
    pub(super) const BLKROGET: u32 = 0x125e;
    pub(super) const BLKRRPART: u32 = 0x125f;
    pub(super) const BLKGETSIZE: u32 = 0x1260;
    pub(super) const BLKFLSBUF: u32 = 0x1261;
    pub(super) const BLKRASET: u32 = 0x1262;
    pub(super) const BLKRAGET: u32 = 0x1263;
    pub(super) const BLKFRASET: u32 = 0x1264;
    pub(super) const BLKFRAGET: u32 = 0x1265;
    pub(super) const BLKSECTGET: u32 = 0x1267;
    pub(super) const BLKSSZGET: u32 = 0x1268;
    pub(super) const BLKPG: u32 = 0x1269;
    pub(super) const BLKDISCARD: u32 = 0x1277;
    pub(super) const BLKIOMIN: u32 = 0x1278;
    pub(super) const BLKIOOPT: u32 = 0x1279;
    pub(super) const BLKALIGNOFF: u32 = 0x127a;
    pub(super) const BLKPBSZGET: u32 = 0x127b;
    pub(super) const BLKDISCARDZEROES: u32 = 0x127c;
    pub(super) const BLKSECDISCARD: u32 = 0x127d;
    pub(super) const BLKROTATIONAL: u32 = 0x127e;
    pub(super) const BLKZEROOUT: u32 = 0x127f;
    pub(super) const BLKBSZGET: u32 = 0x8008_1270;
    pub(super) const BLKBSZSET: u32 = 0x4008_1271;
    pub(super) const BLKGETSIZE64: u32 = 0x8008_1272;
    pub(super) const BLKGETDISKSEQ: u32 = 0x8008_1280;
}

/// What the page cache moves at a time.
const PAGE_BYTES: i32 = 4096;
/// Zeros written at a time to a device that does not make them itself.
const ZEROS_BYTES: usize = 64 << 10;

/// As errno.
pub(crate) fn error_of(error: block::Error) -> Error {
    match error {
        block::Error::Io | block::Error::TimedOut | block::Error::Protection => Error::Io,
        block::Error::NoSpace => Error::NoSpace,
        block::Error::NoDevice => Error::NoDevice,
        block::Error::NotSupported => Error::NotSupported,
        block::Error::Invalid => Error::Invalid,
        block::Error::ReadOnly => Error::NotPermitted,
        block::Error::OutOfMemory => Error::OutOfMemory,
        block::Error::Busy => Error::Busy,
    }
}

fn put(to: UserAddr, bytes: &[u8]) -> Result<usize> {
    user_memory::write(to, bytes).map_err(|_| Error::BadAddress)?;
    Ok(0)
}

/// The answer to a program's request.
///
/// # Errors
/// `ENOTTY` for what is not known; those of the request.
pub(crate) fn answer(
    file: &OpenFile,
    device: &Arc<BlockDevice>,
    command: u32,
    argument: UserAddr,
) -> Result<usize> {
    let volume = device.volume();
    let limits = volume.queue().limits();
    let sectors = volume.sectors();
    let number = |value: u32| put(argument, &value.to_ne_bytes());
    let short = |value: u16| put(argument, &value.to_ne_bytes());
    let long = |value: u64| put(argument, &value.to_ne_bytes());
    match command {
        request::BLKGETSIZE => long(sectors),
        request::BLKGETSIZE64 => long(sectors * SECTOR_BYTES as u64),
        request::BLKSSZGET => number(limits.logical_block_bytes),
        request::BLKPBSZGET | request::BLKIOMIN => number(limits.physical_block_bytes),
        request::BLKIOOPT | request::BLKALIGNOFF | request::BLKDISCARDZEROES => number(0),
        request::BLKROTATIONAL => short(limits.rotational.into()),
        request::BLKSECTGET => short(u16::try_from(limits.sectors_max).unwrap_or(u16::MAX)),
        request::BLKRAGET | request::BLKFRAGET if argument.as_u64() == 0 => Err(Error::Invalid),
        request::BLKRAGET | request::BLKFRAGET => {
            long(u64::from(volume.queue().read_ahead().pages()) * PAGE_SECTORS)
        }
        request::BLKRASET | request::BLKFRASET => {
            require_administrator()?;
            let pages = argument.as_u64() / PAGE_SECTORS;
            volume.queue().read_ahead().set_pages(u32::try_from(pages).unwrap_or(u32::MAX));
            Ok(0)
        }
        request::BLKPG => crate::block_partitions::answer(device, argument),
        request::BLKSECDISCARD if !file.flags().writable() => Err(Error::BadDescriptor),
        // No device knows how to make sure that nobody can read it any more.
        request::BLKSECDISCARD => Err(Error::NotSupported),
        request::BLKBSZGET => put(argument, &PAGE_BYTES.to_ne_bytes()),
        request::BLKBSZSET => set_block_size(device, argument),
        request::BLKGETDISKSEQ => long(disk::of(device).map_or(0, |disk| disk.sequence)),
        request::BLKROGET => number(device.is_read_only().into()),
        request::BLKROSET => {
            require_administrator()?;
            device.set_read_only(read_number(argument)? != 0);
            Ok(0)
        }
        request::BLKFLSBUF => {
            require_administrator()?;
            DeviceFiles::of(device)?.empty()?;
            volume.flush().map_err(error_of)?;
            Ok(0)
        }
        request::BLKRRPART => read_table(device),
        request::BLKDISCARD | request::BLKZEROOUT => empty(file, device, command, argument),
        request::HDIO_GETGEO => geometry(volume, argument),
        _ => Err(Error::NotTerminal),
    }
}

pub(crate) fn require_administrator() -> Result<()> {
    if caller_has(Capabilities::SYS_ADMIN) { Ok(()) } else { Err(Error::AccessDenied) }
}

fn read_number(from: UserAddr) -> Result<i32> {
    let mut bytes = [0; 4];
    user_memory::read(&mut bytes, from).map_err(|_| Error::BadAddress)?;
    Ok(i32::from_ne_bytes(bytes))
}

/// The page cache's unit is its own: other sizes are accepted where a device could have them, and change nothing.
fn set_block_size(device: &BlockDevice, argument: UserAddr) -> Result<usize> {
    require_administrator()?;
    let wanted = u32::try_from(read_number(argument)?).map_err(|_| Error::Invalid)?;
    let least = device.volume().queue().limits().logical_block_bytes;
    let possible = wanted.is_power_of_two() && (least..=PAGE_BYTES as u32).contains(&wanted);
    if possible { Ok(0) } else { Err(Error::Invalid) }
}

fn read_table(device: &Arc<BlockDevice>) -> Result<usize> {
    if device.part() > 0 {
        return Err(Error::Invalid);
    }
    require_administrator()?;
    let disk = disk::of(device).ok_or(Error::Invalid)?;
    // The table may have been written through the page cache.
    DeviceFiles::of(device)?.empty()?;
    disk::rescan(&disk).map_err(error_of)?;
    Ok(0)
}

/// Discards or zeroes a range, which a program gives as two numbers: first byte, bytes.
fn empty(file: &OpenFile, device: &Arc<BlockDevice>, command: u32, argument: UserAddr) -> Result<usize> {
    if !file.flags().writable() {
        return Err(Error::BadDescriptor);
    }
    let mut bytes = [0; 16];
    user_memory::read(&mut bytes, argument).map_err(|_| Error::BadAddress)?;
    let half = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    let (start, length) = (half(0), half(8));
    let volume = device.volume();
    let end = start.checked_add(length).ok_or(Error::Invalid)?;
    let block = u64::from(volume.queue().limits().logical_block_bytes);
    if !start.is_multiple_of(block)
        || !length.is_multiple_of(block)
        || end > volume.sectors() * SECTOR_BYTES as u64
    {
        return Err(Error::Invalid);
    }
    if device.is_read_only() {
        return Err(Error::NotPermitted);
    }
    let files = DeviceFiles::of(device)?;
    files.empty()?;
    let (sector, sectors) = (start / SECTOR_BYTES as u64, length / SECTOR_BYTES as u64);
    let limits = volume.queue().limits();
    let outcome = match (command, limits.discard_sectors_max, limits.zeroes_sectors_max) {
        (request::BLKDISCARD, 0, _) => Err(block::Error::NotSupported),
        (request::BLKDISCARD, most, _) => in_parts(volume, Operation::Discard, sector, sectors, most),
        (_, _, 0) => write_zeros(volume, sector, sectors),
        (_, _, most) => in_parts(volume, Operation::WriteZeroes, sector, sectors, most),
    };
    files.empty()?;
    outcome.map_err(error_of)?;
    Ok(0)
}

fn in_parts(
    volume: &Volume,
    operation: Operation,
    sector: u64,
    sectors: u64,
    most: u32,
) -> block::Result<()> {
    let mut done = 0;
    while done < sectors {
        let count = u64::from(most).min(sectors - done);
        volume.transfer(Bio::without_data(operation, sector + done, count, BioFlags::SYNCHRONOUS)?)?;
        done += count;
    }
    Ok(())
}

fn write_zeros(volume: &Volume, sector: u64, sectors: u64) -> block::Result<()> {
    let most = ZEROS_BYTES.min(volume.bytes_max());
    let mut done = 0;
    while done < sectors {
        let count = ((most / SECTOR_BYTES) as u64).min(sectors - done);
        let zeros = vec![0; count as usize * SECTOR_BYTES];
        volume.write(sector + done, Memory::Owned(zeros), BioFlags::empty())?;
        done += count;
    }
    Ok(())
}

/// Cylinders of 64 heads and 32 sectors, as of disks whose own have nothing to say.
fn geometry(volume: &Volume, argument: UserAddr) -> Result<usize> {
    const HEADS: u8 = 64;
    const SECTORS: u8 = 32;
    let per_cylinder = u64::from(HEADS) * u64::from(SECTORS);
    let cylinders = u16::try_from(volume.queue().sectors() / per_cylinder).unwrap_or(u16::MAX);
    let mut bytes = [0; 16];
    bytes[0] = HEADS;
    bytes[1] = SECTORS;
    bytes[2..4].copy_from_slice(&cylinders.to_ne_bytes());
    bytes[8..].copy_from_slice(&volume.start().to_ne_bytes());
    put(argument, &bytes)
}
