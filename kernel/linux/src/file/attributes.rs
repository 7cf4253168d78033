//! Changing what a file is: mode, owner, times, size.

use vfs::flags::{AllocateMode, LookupFlags};
use vfs::user_space::Ids::{Group, User};
use vfs::{AttributeChange, OpenFile, TimeChange, Timestamp};

use super::context::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW};
use super::path::UserPath;
use super::stat::lookup_flags;
use crate::abi::{Timespec, Timeval};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const MODE_BITS: u32 = 0o7777;

#[inline(never)]
fn change_at(
    task: &Task,
    directory: i32,
    path: &UserPath,
    flags: u32,
    change: &AttributeChange,
) -> SysResult {
    if path.as_bytes().is_empty() && flags & AT_EMPTY_PATH != 0 && directory != AT_FDCWD {
        return change_file(task, directory, change, true);
    }
    let lookup: LookupFlags = lookup_flags(flags);
    task.with_places(directory, path, |context, start, path| {
        let place = context.walk(start, path, lookup)?;
        context.change_attributes(&place, change)?;
        Ok(0)
    })
}

#[inline(never)]
fn change_file(task: &Task, descriptor: i32, change: &AttributeChange, path_handles: bool) -> SysResult {
    let file = if path_handles { task.lent_file(descriptor)? } else { task.lent_usable_file(descriptor)? };
    match file.path() {
        Some(place) => {
            let places = task.file_system.places();
            task.path_context(&places).change_attributes(place, change)?;
        }
        None => vfs::tree::change_inode(file.inode(), change, &task.credentials.file)?,
    }
    Ok(0)
}

fn mode_change(mode: u32) -> AttributeChange {
    AttributeChange { mode: Some(mode & MODE_BITS), ..AttributeChange::default() }
}

/// Changes permission bits.
pub fn chmod(task: &mut Task, path: u64, mode: u32) -> SysResult {
    change_at(task, AT_FDCWD, &UserPath::read(path)?, 0, &mode_change(mode))
}

/// Changes permission bits of an open file.
pub fn fchmod(task: &mut Task, descriptor: i32, mode: u32) -> SysResult {
    change_file(task, descriptor, &mode_change(mode), false)
}

/// Changes permission bits relative to a directory.
pub fn fchmodat(task: &mut Task, directory: i32, path: u64, mode: u32) -> SysResult {
    change_at(task, directory, &UserPath::read(path)?, 0, &mode_change(mode))
}

/// Changes permission bits relative to a directory, with flags.
pub fn fchmodat2(task: &mut Task, directory: i32, path: u64, mode: u32, flags: u32) -> SysResult {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?;
    if flags & AT_SYMLINK_NOFOLLOW != 0 {
        refuse_links(task, directory, &path)?;
    }
    change_at(task, directory, &path, flags, &mode_change(mode))
}

/// Symbolic links have no mode of their own.
fn refuse_links(task: &Task, directory: i32, path: &UserPath) -> Result<(), Errno> {
    let lookup = lookup_flags(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH);
    let status =
        task.with_places(directory, path, |context, start, path| Ok(context.status(start, path, lookup)?))?;
    let is_link = vfs::FileKind::from_mode(status.mode) == Some(vfs::FileKind::SymbolicLink);
    if is_link { Err(Errno::EOPNOTSUPP) } else { Ok(()) }
}

/// The change to owners as the caller calls them.
fn owner_change(task: &Task, user: u32, group: u32) -> Result<AttributeChange, Errno> {
    let given = |ids, id: u32| match id {
        u32::MAX => Ok(None),
        id => task.credentials.space().kernel(ids, id).map(Some).ok_or(Errno::EINVAL),
    };
    Ok(AttributeChange {
        user: given(User, user)?,
        group: given(Group, group)?,
        ..AttributeChange::default()
    })
}

/// Changes the owner.
pub fn chown(task: &mut Task, path: u64, user: u32, group: u32) -> SysResult {
    change_at(task, AT_FDCWD, &UserPath::read(path)?, 0, &owner_change(task, user, group)?)
}

/// Changes the owner of a file or symbolic link.
pub fn lchown(task: &mut Task, path: u64, user: u32, group: u32) -> SysResult {
    change_at(task, AT_FDCWD, &UserPath::read(path)?, AT_SYMLINK_NOFOLLOW, &owner_change(task, user, group)?)
}

/// Changes the owner of an open file.
pub fn fchown(task: &mut Task, descriptor: i32, user: u32, group: u32) -> SysResult {
    change_file(task, descriptor, &owner_change(task, user, group)?, false)
}

/// Changes the owner relative to a directory.
pub fn fchownat(task: &mut Task, directory: i32, path: u64, user: u32, group: u32, flags: u32) -> SysResult {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?;
    change_at(task, directory, &path, flags, &owner_change(task, user, group)?)
}

/// Nanosecond fields that mean something else than nanoseconds.
const UTIME_NOW: i64 = (1 << 30) - 1;
const UTIME_OMIT: i64 = (1 << 30) - 2;

fn time_change(time: &Timespec) -> Result<Option<TimeChange>, Errno> {
    match time.nanoseconds {
        UTIME_NOW => Ok(Some(TimeChange::Now)),
        UTIME_OMIT => Ok(None),
        ns @ 0..1_000_000_000 => {
            Ok(Some(TimeChange::To(Timestamp { seconds: time.seconds, nanoseconds: ns as u32 })))
        }
        _ => Err(Errno::EINVAL),
    }
}

fn change_times(
    task: &Task,
    directory: i32,
    path: u64,
    accessed: Option<TimeChange>,
    modified: Option<TimeChange>,
    flags: u32,
) -> SysResult {
    let change = AttributeChange { accessed, modified, ..AttributeChange::default() };
    if path == 0 && flags & AT_EMPTY_PATH == 0 && directory != AT_FDCWD {
        return change_file(task, directory, &change, false);
    }
    change_at(task, directory, &UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?, flags, &change)
}

/// Sets the times of a file.
#[inline(never)]
pub fn utimensat(task: &mut Task, directory: i32, path: u64, times: u64, flags: u32) -> SysResult {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let (accessed, modified) = match UserPointer::<Timespec>::new(times).given() {
        None => (Some(TimeChange::Now), Some(TimeChange::Now)),
        Some(pointer) => {
            let (accessed, modified) = (pointer.read()?, pointer.add(1).read()?);
            if accessed.nanoseconds == UTIME_OMIT && modified.nanoseconds == UTIME_OMIT {
                return Ok(0);
            }
            (time_change(&accessed)?, time_change(&modified)?)
        }
    };
    change_times(task, directory, path, accessed, modified, flags)
}

fn microseconds(pointer: UserPointer<Timeval>) -> Result<Option<TimeChange>, Errno> {
    let time = pointer.read()?;
    if !(0..1_000_000).contains(&time.microseconds) {
        return Err(Errno::EINVAL);
    }
    let nanoseconds = time.microseconds as u32 * 1000;
    Ok(Some(TimeChange::To(Timestamp { seconds: time.seconds, nanoseconds })))
}

/// Sets the times of a file, in microseconds, relative to a directory.
#[inline(never)]
pub fn futimesat(task: &mut Task, directory: i32, path: u64, times: u64) -> SysResult {
    let (accessed, modified) = match UserPointer::<Timeval>::new(times).given() {
        None => (Some(TimeChange::Now), Some(TimeChange::Now)),
        Some(pointer) => (microseconds(pointer)?, microseconds(pointer.add(1))?),
    };
    change_times(task, directory, path, accessed, modified, 0)
}

/// Sets the times of a file, in microseconds.
pub fn utimes(task: &mut Task, path: u64, times: u64) -> SysResult {
    futimesat(task, AT_FDCWD, path, times)
}

/// Sets the times of a file, in seconds.
#[inline(never)]
pub fn utime(task: &mut Task, path: u64, times: u64) -> SysResult {
    let (accessed, modified) = match UserPointer::<i64>::new(times).given() {
        None => (Some(TimeChange::Now), Some(TimeChange::Now)),
        Some(pointer) => {
            let second = |seconds| Some(TimeChange::To(Timestamp { seconds, nanoseconds: 0 }));
            (second(pointer.read()?), second(pointer.add(1).read()?))
        }
    };
    change_times(task, AT_FDCWD, path, accessed, modified, 0)
}

fn check_file_size(task: &Task, size: i64) -> Result<(), Errno> {
    let limit = task.process().limit(crate::process::limits::Resource::FileSize);
    if size > 0 && size as u64 > limit {
        use crate::signal::information::SignalInformation;
        use crate::signal::set::Signal;
        let _ = crate::signal::send::to_thread(&task.thread, SignalInformation::kernel(Signal::SIGXFSZ));
        return Err(Errno::EFBIG);
    }
    Ok(())
}

/// Sets a file's size.
pub fn truncate(task: &mut Task, path: u64, size: i64) -> SysResult {
    let path = UserPath::read(path)?;
    if size < 0 {
        return Err(Errno::EINVAL);
    }
    check_file_size(task, size)?;
    task.with_places(AT_FDCWD, &path, |context, start, path| {
        context.truncate(start, path, size)?;
        Ok(0)
    })
}

/// Sets an open file's size.
pub fn ftruncate(task: &mut Task, descriptor: i32, size: i64) -> SysResult {
    if size < 0 {
        return Err(Errno::EINVAL);
    }
    let file = task.lent_usable_file(descriptor)?;
    check_file_size(task, size)?;
    file.truncate(size)?;
    Ok(0)
}

/// Allocates or frees a range of a file.
pub fn fallocate(task: &mut Task, descriptor: i32, mode: u32, offset: i64, length: i64) -> SysResult {
    allocate(task, &*task.lent_usable_file(descriptor)?, mode, offset, length)
}

/// The same for an open file.
pub(crate) fn allocate(task: &Task, file: &OpenFile, mode: u32, offset: i64, length: i64) -> SysResult {
    let mode = AllocateMode::from_bits(mode).ok_or(Errno::EOPNOTSUPP)?;
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    if !mode.contains(AllocateMode::KEEP_SIZE) {
        check_file_size(task, offset.checked_add(length).ok_or(Errno::EFBIG)?)?;
    }
    file.allocate(mode, offset, length)?;
    Ok(0)
}
