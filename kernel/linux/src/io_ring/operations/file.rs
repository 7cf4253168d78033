//! Operations on files that are not transfers, and on names.

use alloc::sync::Arc;

use vfs::OpenFile;

use super::super::abi::{Entry, entry, operation};
use super::super::request::Request;
use super::file_of;
use crate::errno::{Errno, SysResult};
use crate::file;
use crate::task::Task;

/// Only the data (IORING_FSYNC_DATASYNC).
pub(super) const DATA_ONLY: u32 = 1;
/// The input of a splice is a registered file.
const INPUT_IS_FIXED: u32 = 1 << 31;

/// Operations on an open file.
pub(super) fn of_file(task: &Task, request: &Request, file: &Arc<OpenFile>) -> SysResult {
    let entry = &request.entry;
    let offset = entry.offset as i64;
    match entry.operation {
        operation::SYNC => {
            synchronize(file, entry.offset, entry.length, entry.operation_flags & DATA_ONLY != 0)
        }
        operation::SYNC_RANGE => {
            file::sync::write_range(file, offset, i64::from(entry.length), entry.operation_flags)
        }
        operation::ALLOCATE => {
            file::attributes::allocate(task, file, entry.length, offset, entry.address as i64)
        }
        operation::ADVISE_FILE => {
            file::sync::advise(file, offset, i64::from(entry.length), entry.operation_flags)
        }
        operation::SET_XATTR_OF_FILE => {
            let (name, value, size) = attribute_of(entry);
            file::extended::set_of_file(task, file, name, value, size, entry.operation_flags)
        }
        operation::GET_XATTR_OF_FILE => {
            let (name, value, size) = attribute_of(entry);
            file::extended::get_of_file(task, file, name, value, size)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Where the name of an extended attribute and its value are, and how long that is.
fn attribute_of(entry: &Entry) -> (u64, u64, usize) {
    (entry.address, entry.offset, entry.length as usize)
}

fn synchronize(file: &OpenFile, offset: u64, length: u32, data_only: bool) -> SysResult {
    if length == 0 && offset == 0 {
        file.sync(data_only)?;
    } else {
        let end = if length == 0 { u64::MAX } else { offset.saturating_add(length.into()) };
        file.operations().sync_range(file, offset, end, data_only)?;
    }
    Ok(0)
}

/// Moves data between a pipe and another file, or copies it from pipe to pipe.
pub(super) fn splice(task: &Task, request: &Request, output: &Arc<OpenFile>) -> SysResult {
    let entry = &request.entry;
    let flags = entry.operation_flags & !INPUT_IS_FIXED;
    let is_fixed = entry.operation_flags & INPUT_IS_FIXED != 0;
    let input = file_of(task, &request.ring, entry.other as i32, is_fixed)?;
    if entry.operation == operation::TEE {
        return file::splice::tee_files(task, &input, output, entry.length as usize, flags);
    }
    let place = |offset: u64| match offset as i64 {
        -1 => Ok(None),
        offset => u64::try_from(offset).map(Some).map_err(|_| Errno::EINVAL),
    };
    let (mut from, mut to) = (place(entry.address)?, place(entry.offset)?);
    file::splice::splice_files(
        task,
        (&input, from.as_mut()),
        (output, to.as_mut()),
        entry.length as usize,
        flags,
    )
}

/// Operations on names, and on descriptors by their number.
pub(super) fn by_name(task: &mut Task, request: &Request) -> SysResult {
    let entry = request.entry;
    let (descriptor, length, flags) = (entry.descriptor, entry.length, entry.operation_flags);
    match entry.operation {
        operation::OPEN | operation::OPEN2 => open(task, request),
        operation::CLOSE if entry.other != 0 => {
            let former = request.ring.resources.replace_file(entry.other - 1, None)?;
            former.map(|_| 0).ok_or(Errno::EBADF)
        }
        operation::CLOSE => {
            if super::super::is_ring(&*task.lent_file(descriptor)?) {
                return Err(Errno::EBADF);
            }
            file::open::close(task, descriptor)
        }
        operation::STATUS => file::stat::statx(task, descriptor, entry.address, flags, length, entry.offset),
        operation::ADVISE_MEMORY => crate::memory::madvise(task, entry.address, length.into(), flags as i32),
        operation::EPOLL_CONTROL => {
            file::epoll::epoll_ctl(task, descriptor, length as i32, entry.offset as i32, entry.address)
        }
        operation::RENAME => {
            file::names::renameat2(task, descriptor, entry.address, length as i32, entry.offset, flags)
        }
        operation::UNLINK => file::names::unlinkat(task, descriptor, entry.address, flags),
        operation::MAKE_DIRECTORY => file::directory::mkdirat(task, descriptor, entry.address, length),
        operation::SYMBOLIC_LINK => file::names::symlinkat(task, entry.address, descriptor, entry.offset),
        operation::HARD_LINK => {
            file::names::linkat(task, descriptor, entry.address, length as i32, entry.offset, flags)
        }
        operation::SET_XATTR => {
            let (name, value, size) = attribute_of(&entry);
            file::extended::setxattr(task, entry.address3, name, value, size, flags)
        }
        operation::GET_XATTR => {
            let (name, value, size) = attribute_of(&entry);
            file::extended::getxattr(task, entry.address3, name, value, size)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Opens a file, as a descriptor or in a place of the table of files.
fn open(task: &mut Task, request: &Request) -> SysResult {
    let entry = request.entry;
    let (directory, path) = (entry.descriptor, entry.address);
    let how = match entry.operation {
        operation::OPEN => file::open::how_of(entry.operation_flags, entry.length)?,
        _ => file::open::how_of_words(entry.offset, entry.length as usize)?,
    };
    if entry.other == 0 {
        return file::open::open_at(task, directory, path, &how);
    }
    if how.flags.contains(vfs::OpenFlags::CLOSE_ON_EXEC) {
        return Err(Errno::EINVAL);
    }
    let opened = file::open::open_file(task, directory, path, &how)?;
    request.ring.resources.install(entry.other, opened)
}

/// Whether the entry says that it is about a registered file where it can't be.
pub(super) fn refuses_fixed(request_flags: u8) -> bool {
    request_flags & entry::FIXED_FILE != 0
}
