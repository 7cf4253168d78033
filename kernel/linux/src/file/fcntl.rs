//! Operations on descriptors and locks: fcntl(2), flock(2).

use alloc::sync::Arc;

use vfs::flags::OpenFlags;
use vfs::lock::{FlockKind, LockKind, LockOwner, RecordRequest};
use vfs::{Capabilities, FileOwner, OpenFile};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::{descriptor_flags, descriptor_number};
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
const F_SETOWN: u32 = 8;
const F_GETOWN: u32 = 9;
const F_SETSIG: u32 = 10;
const F_GETSIG: u32 = 11;
const F_SETOWN_EX: u32 = 15;
const F_GETOWN_EX: u32 = 16;
const F_OFD_GETLK: u32 = 36;
const F_OFD_SETLK: u32 = 37;
const F_OFD_SETLKW: u32 = 38;
const F_SETLEASE: u32 = 1024;
const F_GETLEASE: u32 = 1025;
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
            owner(task, &file, command, argument)
        }
        F_SETLEASE => Err(Errno::EINVAL),
        // There are no leases, so nobody has one.
        F_GETLEASE => Ok(F_UNLCK as usize),
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
            words.kind = match found.kind {
                LockKind::Read => 0,
                LockKind::Write => 1,
            };
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

/// What the caller calls who is an owner of a file: a process, or a group as a negative number.
fn seen_owner(task: &Task, owner: i32) -> i32 {
    task.seen_number(owner.unsigned_abs()) as i32 * owner.signum()
}

/// Who is called so by the caller.
fn named_owner(task: &Task, owner: i32) -> Result<i32, Errno> {
    let number = task.kernel_number(owner.unsigned_abs()).filter(|_| owner != 0);
    match owner {
        0 => Ok(0),
        _ => number.map(|number| number as i32 * owner.signum()).ok_or(Errno::ESRCH),
    }
}

fn owner(task: &Task, file: &OpenFile, command: u32, argument: u64) -> SysResult {
    const F_OWNER_PID: i32 = 1;
    const F_OWNER_PGRP: i32 = 2;
    const SIGNALS: u64 = 64;
    let mut owner = file.owner();
    match command {
        F_GETOWN => return Ok(seen_owner(task, owner.owner) as isize as usize),
        F_GETSIG => return Ok(owner.signal as usize),
        F_SETOWN => owner.owner = named_owner(task, argument as i32)?,
        F_SETSIG if argument > SIGNALS => return Err(Errno::EINVAL),
        F_SETSIG => owner.signal = argument as u32,
        F_SETOWN_EX => {
            let pair = UserPointer::<[i32; 2]>::new(argument).read()?;
            let wanted = match pair[0] {
                F_OWNER_PGRP => pair[1].wrapping_neg(),
                0 | F_OWNER_PID => pair[1],
                _ => return Err(Errno::EINVAL),
            };
            owner.owner = named_owner(task, wanted)?;
        }
        _ => {
            owner.owner = seen_owner(task, owner.owner);
            let pair =
                if owner.owner < 0 { [F_OWNER_PGRP, -owner.owner] } else { [F_OWNER_PID, owner.owner] };
            UserPointer::<[i32; 2]>::new(argument).write(&pair)?;
            return Ok(0);
        }
    }
    file.set_owner(FileOwner { ..owner });
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
    file.inode().locks()?.set_flock(file.id(), kind, operation & LOCK_NB == 0)?;
    Ok(0)
}
