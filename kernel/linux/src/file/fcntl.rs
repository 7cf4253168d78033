//! Operations on descriptors and locks: fcntl(2), flock(2).

use alloc::sync::Arc;

use vfs::dnotify::{self, NoticeMask};
use vfs::file_flags::FileFlags;
use vfs::flags::OpenFlags;
use vfs::lock::{FlockHolder, FlockKind, LockKind, LockOwner, RecordRequest, lease};
use vfs::{Capabilities, OpenFile};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::{descriptor_flags, descriptor_number};
use super::owner::{self, F_GETOWN, F_GETOWN_EX, F_GETSIG, F_SETOWN, F_SETOWN_EX, F_SETSIG};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const F_DUPFD: u32 = 0;
const F_GETFD: u32 = 1;
const F_SETFD: u32 = 2;
const F_GETFL: u32 = 3;
const F_SETFL: u32 = 4;
const F_GETLK: u32 = 5;
const F_SETLK: u32 = 6;
const F_SETLKW: u32 = 7;
const F_OFD_GETLK: u32 = 36;
const F_OFD_SETLK: u32 = 37;
const F_OFD_SETLKW: u32 = 38;
const F_SETLEASE: u32 = 1024;
const F_GETLEASE: u32 = 1025;
const F_NOTIFY: u32 = 1026;
const F_DUPFD_CLOEXEC: u32 = 1030;
const F_SETPIPE_SZ: u32 = 1031;
const F_GETPIPE_SZ: u32 = 1032;
const F_ADD_SEALS: u32 = 1033;
const F_GET_SEALS: u32 = 1034;
const FD_CLOEXEC: u64 = 1;
const F_UNLCK: i16 = 2;

/// Operates on a descriptor.
#[inline(never)]
pub fn fcntl(task: &mut Task, descriptor: i32, command: u32, argument: u64) -> SysResult {
    let file = task.lent_file(descriptor)?;
    if file.flags().contains(OpenFlags::PATH)
        && !matches!(command, F_DUPFD | F_DUPFD_CLOEXEC | F_GETFD | F_SETFD | F_GETFL)
    {
        return Err(Errno::EBADF);
    }
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => duplicate(task, file.counted(), command, argument),
        F_GETFD => Ok(task.files.flags(descriptor_number(descriptor)?)?.bits() as usize),
        F_SETFD => {
            let flags = descriptor_flags(argument & FD_CLOEXEC != 0);
            task.files.set_flags(descriptor_number(descriptor)?, flags)?;
            Ok(0)
        }
        F_GETFL => Ok(file.flags().bits() as usize),
        F_SETFL => set_status(task, &file, argument),
        F_GETLK | F_OFD_GETLK => test_lock(task, &file, argument, command == F_OFD_GETLK),
        F_SETLK | F_SETLKW => set_lock(task, &file, argument, command == F_SETLKW, false),
        F_OFD_SETLK | F_OFD_SETLKW => set_lock(task, &file, argument, command == F_OFD_SETLKW, true),
        F_SETOWN | F_GETOWN | F_SETSIG | F_GETSIG | F_SETOWN_EX | F_GETOWN_EX => {
            owner::change(task, &file, command, argument)
        }
        F_SETLEASE => set_lease(task, file.counted(), descriptor, argument),
        F_GETLEASE => Ok(lease::lease_of(&file).map_or(F_UNLCK, number_of) as usize),
        F_NOTIFY => {
            let mask = NoticeMask::from_bits_truncate(argument as u32);
            dnotify::notify(&file.counted(), task.files.id(), descriptor, mask, owner::calling(task))?;
            Ok(0)
        }
        F_SETPIPE_SZ => {
            let pipe = file.operations().pipe().ok_or(Errno::EBADF)?;
            let privileged = task.credentials.file.has(Capabilities::SYS_RESOURCE);
            let bytes = usize::try_from(argument as i32).map_err(|_| Errno::EINVAL)?;
            Ok(pipe.set_capacity(bytes, privileged)?)
        }
        F_GETPIPE_SZ => Ok(file.operations().pipe().ok_or(Errno::EBADF)?.capacity_bytes()),
        F_ADD_SEALS | F_GET_SEALS => seals(&file, command, argument),
        _ => Err(Errno::EINVAL),
    }
}

fn duplicate(task: &Task, file: Arc<OpenFile>, command: u32, minimum: u64) -> SysResult {
    let limit = task.descriptor_limit();
    let minimum = u32::try_from(minimum as i32).map_err(|_| Errno::EINVAL)?;
    if u64::from(minimum) >= limit {
        return Err(Errno::EINVAL);
    }
    Ok(task.files.install(file, descriptor_flags(command == F_DUPFD_CLOEXEC), minimum, limit)? as usize)
}

fn set_status(task: &Task, file: &OpenFile, flags: u64) -> SysResult {
    let wanted = OpenFlags::from_bits_truncate(flags as u32);
    let gains_no_access_time =
        wanted.contains(OpenFlags::NO_ACCESS_TIME) && !file.flags().contains(OpenFlags::NO_ACCESS_TIME);
    let credentials = &task.credentials.file;
    if (wanted ^ file.flags()).contains(OpenFlags::APPEND)
        && file.inode().file_flags().contains(FileFlags::APPEND_ONLY)
    {
        return Err(Errno::EPERM);
    }
    if gains_no_access_time
        && credentials.user != file.inode().user()
        && !credentials.has_over(file.inode(), Capabilities::FOWNER)
    {
        return Err(Errno::EPERM);
    }
    file.set_flags(wanted)?;
    Ok(0)
}

/// `struct flock`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LockWords {
    kind: i16,
    whence: i16,
    padding: u32,
    start: i64,
    length: i64,
    pid: i32,
    tail: u32,
}
const _: () = assert!(size_of::<LockWords>() == 32);

/// `F_RDLCK` or `F_WRLCK`.
fn number_of(kind: LockKind) -> i16 {
    match kind {
        LockKind::Read => 0,
        LockKind::Write => 1,
    }
}

const LAST_BYTE: u64 = i64::MAX as u64;

fn request(task: &Task, file: &OpenFile, words: &LockWords, of_file: bool) -> Result<RecordRequest, Errno> {
    let kind = match words.kind {
        0 => Some(LockKind::Read),
        1 => Some(LockKind::Write),
        F_UNLCK => None,
        _ => return Err(Errno::EINVAL),
    };
    if of_file && words.pid != 0 {
        return Err(Errno::EINVAL);
    }
    let base = match words.whence {
        0 => 0,
        1 => file.position() as i64,
        2 => file.inode().size() as i64,
        _ => return Err(Errno::EINVAL),
    };
    let start = base.checked_add(words.start).ok_or(Errno::EOVERFLOW)?;
    let (start, end) = match words.length {
        0 => (start, i64::MAX),
        length if length > 0 => (start, start.checked_add(length - 1).ok_or(Errno::EOVERFLOW)?),
        length => (start.checked_add(length).ok_or(Errno::EINVAL)?, start - 1),
    };
    let (start, end) = (u64::try_from(start).map_err(|_| Errno::EINVAL)?, end as u64);
    let owner = if of_file {
        LockOwner::File { id: file.id() }
    } else {
        LockOwner::Process { id: task.files.id(), pid: task.process().pid() as i32 }
    };
    Ok(RecordRequest { owner, kind, start, end })
}

fn test_lock(task: &Task, file: &OpenFile, pointer: u64, of_file: bool) -> SysResult {
    let pointer = UserPointer::<LockWords>::new(pointer);
    let mut words = pointer.read()?;
    let request = request(task, file, &words, of_file)?;
    if request.kind.is_none() && !of_file {
        return Err(Errno::EINVAL);
    }
    match file.inode().existing_locks().and_then(|locks| locks.test_record(&request)) {
        None => words.kind = F_UNLCK,
        Some(found) => {
            words.kind = number_of(found.kind);
            words.whence = 0;
            words.start = found.start as i64;
            words.length = if found.end >= LAST_BYTE { 0 } else { (found.end - found.start + 1) as i64 };
            words.pid = match found.owner {
                LockOwner::Process { pid, .. } => task.seen_number(pid as u32) as i32,
                LockOwner::File { .. } => -1,
            };
        }
    }
    pointer.write(&words)?;
    Ok(0)
}

fn set_lock(task: &Task, file: &OpenFile, pointer: u64, wait: bool, of_file: bool) -> SysResult {
    let words = UserPointer::<LockWords>::new(pointer).read()?;
    let request = request(task, file, &words, of_file)?;
    match request.kind {
        Some(LockKind::Read) => file.check_readable()?,
        Some(LockKind::Write) => file.check_writable()?,
        None => {}
    }
    if request.kind.is_none() && file.inode().existing_locks().is_none() {
        return Ok(0);
    }
    let account = task.credentials.account.locks();
    file.inode().locks()?.set_record_for(&request, wait, Some(account))?;
    Ok(0)
}

/// Takes, changes or gives back a lease.
fn set_lease(task: &Task, file: Arc<OpenFile>, descriptor: i32, kind: u64) -> SysResult {
    let kind = match kind as i16 {
        0 => Some(LockKind::Read),
        1 => Some(LockKind::Write),
        F_UNLCK => None,
        _ => return Err(Errno::EINVAL),
    };
    let credentials = &task.credentials.file;
    if credentials.user != file.inode().user() && !credentials.has(Capabilities::LEASE) {
        return Err(Errno::EACCES);
    }
    match kind {
        None => lease::end_lease(&file)?,
        Some(kind) => lease::set_lease(&file, kind, descriptor, owner::calling(task))?,
    }
    Ok(0)
}

fn seals(file: &OpenFile, command: u32, argument: u64) -> SysResult {
    if command == F_GET_SEALS {
        return Ok(tmpfs::memory_file::seals(file)? as usize);
    }
    let seals = u32::try_from(argument).map_err(|_| Errno::EINVAL)?;
    tmpfs::memory_file::add_seals(file, seals)?;
    Ok(0)
}

const LOCK_SH: u32 = 1;
const LOCK_EX: u32 = 2;
const LOCK_NB: u32 = 4;
const LOCK_UN: u32 = 8;

/// Locks a whole file.
#[inline(never)]
pub fn flock(task: &mut Task, descriptor: i32, operation: u32) -> SysResult {
    let kind = match operation & !LOCK_NB {
        LOCK_SH => Some(FlockKind::Shared),
        LOCK_EX => Some(FlockKind::Exclusive),
        LOCK_UN => None,
        _ => return Err(Errno::EINVAL),
    };
    let file = task.lent_usable_file(descriptor)?;
    let holder = FlockHolder { file: file.id(), pid: task.process().pid() as i32 };
    file.inode().locks()?.set_flock(holder, kind, operation & LOCK_NB == 0)?;
    Ok(0)
}
