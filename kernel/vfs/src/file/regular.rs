//! Reading, writing and seeking in files whose bytes are in a [`FileCache`]: what file systems call from their
//! [`FileOperations`](super::FileOperations).
//!
//! A write holds the inode's lock exclusively: writes to one file are atomic with respect to each other, and `O_APPEND`
//! sees the true end. Reads take no lock of the inode's.

use memory::buffer::{Sink, Source};
use memory::file_cache::{CacheError, FileCache};

use super::open_file::{OpenFile, SeekFrom};
use crate::attributes::{AttributeChange, FileKind, MODE_MASK, SET_GROUP_ID, SET_USER_ID};
use crate::credentials::{Capabilities, caller_has};
use crate::flags::OpenFlags;
use crate::inode::Inode;
use crate::{Error, Result};

impl From<CacheError> for Error {
    fn from(error: CacheError) -> Self {
        match error {
            CacheError::BadAddress => Self::BadAddress,
            CacheError::OutOfMemory => Self::OutOfMemory,
            CacheError::NoSpace => Self::NoSpace,
            CacheError::TooBig => Self::FileTooLarge,
            CacheError::InputOutput => Self::Io,
            CacheError::NoDevice => Self::NoDevice,
            CacheError::ReadOnly => Self::ReadOnly,
            CacheError::NotPermitted => Self::NotPermitted,
        }
    }
}

impl From<machine::fault::Fault> for Error {
    fn from(_: machine::fault::Fault) -> Self {
        Self::BadAddress
    }
}

/// Largest file size.
pub(crate) const SIZE_MAX: u64 = i64::MAX as u64;

/// Reads from the pages; stamps the access.
#[inline]
pub fn read_cache(
    file: &OpenFile,
    cache: &FileCache,
    position: &mut u64,
    sink: &mut Sink<'_>,
) -> Result<usize> {
    let number = cache.read_at(*position, sink)?;
    *position += number as u64;
    crate::time::accessed(file);
    Ok(number)
}

/// Writes to the pages: at the end with `O_APPEND`, else at the position; stamps the modification, and takes
/// set-user-id and set-group-id bits away.
pub fn write_cache(
    file: &OpenFile,
    cache: &FileCache,
    position: &mut u64,
    source: &mut Source<'_>,
) -> Result<usize> {
    write_cache_piece(file, cache, position, u64::MAX, source)
}

/// The same, at most so many bytes.
#[inline(always)]
pub(crate) fn write_cache_piece(
    file: &OpenFile,
    cache: &FileCache,
    position: &mut u64,
    most: u64,
    source: &mut Source<'_>,
) -> Result<usize> {
    let inode = file.inode();
    if source.is_empty() {
        return Ok(0);
    }
    let appends = file.flags().contains(OpenFlags::APPEND);
    let end = position.saturating_add(most.min(source.remaining() as u64));
    if !appends && end <= inode.size() && !inode.may_give_privileges() {
        let number = cache.write_within(*position, most, source)?;
        *position += number as u64;
        inode.touch_modified();
        if source.is_empty() || number as u64 == most || number > 0 && *position < cache.size() {
            return Ok(number);
        }
        // The file was cut off meanwhile: the rest makes it longer again.
        let rest = extend(file, cache, position, most - number as u64, source);
        return if number > 0 { Ok(number + rest.unwrap_or(0)) } else { rest };
    }
    extend(file, cache, position, most, source)
}

/// A write that may change the size or the mode.
fn extend(
    file: &OpenFile,
    cache: &FileCache,
    position: &mut u64,
    most: u64,
    source: &mut Source<'_>,
) -> Result<usize> {
    let inode = file.inode();
    let appends = file.flags().contains(OpenFlags::APPEND);
    let _exclusive = inode.lock().write();
    if appends {
        *position = cache.size();
    }
    if *position >= SIZE_MAX {
        return Err(Error::FileTooLarge);
    }
    take_privileges(inode)?;
    let number = cache.write_some(*position, most, source)?;
    *position += number as u64;
    inode.set_size(cache.size());
    inode.touch_modified();
    Ok(number)
}

/// Takes away what the file gives to those who execute it, as a write does: before it changes anything, and where the file system keeps that, too.
/// Capabilities go whoever writes; set-user-id, and set-group-id if it is one (with group execution), if that is somebody who lacks the capability
/// to keep them.
pub(crate) fn take_privileges(inode: &Inode) -> Result<()> {
    if !inode.may_give_privileges() || inode.kind != FileKind::Regular {
        return Ok(());
    }
    if inode.may_have_capabilities() {
        crate::file_capabilities::remove(inode)?;
    }
    let mode = inode.mode();
    if mode & (SET_USER_ID | SET_GROUP_ID) == 0 {
        return Ok(());
    }
    if caller_has(Capabilities::FSETID) {
        return Ok(());
    }
    let mut stripped = mode & !SET_USER_ID;
    if mode & 0o010 != 0 {
        stripped &= !SET_GROUP_ID;
    }
    if stripped != mode {
        let change = AttributeChange { mode: Some(stripped & MODE_MASK), ..AttributeChange::default() };
        inode.operations().change_attributes(inode, &change)?;
        inode.set_mode(stripped);
    }
    Ok(())
}

/// Where a seek in a file with pages leads to: knows data from holes.
pub fn seek_cache(cache: &FileCache, current: u64, target: SeekFrom) -> Result<u64> {
    let size = cache.size();
    match target {
        SeekFrom::Data(offset) => {
            let offset = within(offset, size)?;
            cache.next_data(offset).ok_or(Error::NoDeviceAddress)
        }
        SeekFrom::Hole(offset) => {
            let offset = within(offset, size)?;
            Ok(cache.next_hole(offset).unwrap_or(size))
        }
        _ => seek_plain(current, size, target),
    }
}

fn within(offset: i64, size: u64) -> Result<u64> {
    match u64::try_from(offset) {
        Ok(offset) if offset < size => Ok(offset),
        _ => Err(Error::NoDeviceAddress),
    }
}

/// Where a seek leads to in a file that is all data.
pub(crate) fn seek_plain(current: u64, size: u64, target: SeekFrom) -> Result<u64> {
    let (base, offset) = match target {
        SeekFrom::Start(offset) => (0, offset),
        SeekFrom::Current(offset) => (current, offset),
        SeekFrom::End(offset) => (size, offset),
        SeekFrom::Data(offset) => return within(offset, size),
        SeekFrom::Hole(offset) => return within(offset, size).map(|_| size),
    };
    let position =
        i64::try_from(base).map_err(|_| Error::Overflow)?.checked_add(offset).ok_or(Error::Overflow)?;
    u64::try_from(position).map_err(|_| Error::Invalid)
}
