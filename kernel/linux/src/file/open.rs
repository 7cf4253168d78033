//! Opening and closing files, and copying descriptors.

use core::mem::size_of;

use vfs::flags::{LookupFlags, OpenFlags};
use vfs::tree::OpenHow;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::{AT_FDCWD, descriptor_flags, descriptor_number};
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::read_bytes;

/// All flags that open(2) knows; others are ignored there and refused by openat2(2).
const KNOWN_FLAGS: u32 = OpenFlags::all().bits();
const O_TMPFILE: u32 = OpenFlags::TEMPORARY_FILE.bits() | OpenFlags::DIRECTORY.bits();
const MODE_BITS: u32 = 0o7777;

pub(crate) fn open_at(task: &mut Task, directory: i32, path: u64, how: &OpenHow) -> SysResult {
    let path = UserPath::read(path)?;
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let file = open_from(task, directory, &path, how)?;
    let close_on_exec = how.flags.contains(OpenFlags::CLOSE_ON_EXEC);
    Ok(reserved.install(file, descriptor_flags(close_on_exec)) as usize)
}

/// Opens a file that gets no descriptor.
pub(crate) fn open_file(
    task: &Task,
    directory: i32,
    path: u64,
    how: &OpenHow,
) -> Result<alloc::sync::Arc<vfs::OpenFile>, Errno> {
    let path = UserPath::read(path)?;
    open_from(task, directory, &path, how)
}

/// Where the directory is the root of the walk, it counts for absolute paths as well.
#[inline(always)]
fn open_from(
    task: &Task,
    directory: i32,
    path: &UserPath,
    how: &OpenHow,
) -> Result<alloc::sync::Arc<vfs::OpenFile>, Errno> {
    if how.resolve.contains(LookupFlags::IN_ROOT) && directory != AT_FDCWD {
        let root = task.start_of(directory)?;
        let places = task.file_system.places();
        return Ok(task.path_context(&places).open(&root, path.as_bytes(), how)?);
    }
    task.with_places(directory, path, |context, start, path| Ok(context.open(start, path, how)?))
}

/// The how of open(2): unknown flags are dropped, O_PATH keeps only what goes with it.
#[inline(always)]
pub(crate) fn how_of(flags: u32, mode: u32) -> Result<OpenHow, Errno> {
    let mut flags = OpenFlags::from_bits_truncate(flags & KNOWN_FLAGS);
    if flags.contains(OpenFlags::PATH) {
        flags &= OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NO_FOLLOW | OpenFlags::CLOSE_ON_EXEC;
    } else {
        // Every 64-bit program opens large files, and F_GETFL shows it.
        flags |= OpenFlags::LARGE_FILE;
    }
    check_temporary(flags)?;
    let creates = flags.contains(OpenFlags::CREATE) || flags.bits() & O_TMPFILE == O_TMPFILE;
    Ok(OpenHow { flags, mode: if creates { mode & MODE_BITS } else { 0 }, resolve: LookupFlags::empty() })
}

fn check_temporary(flags: OpenFlags) -> Result<(), Errno> {
    if flags.contains(OpenFlags::TEMPORARY_FILE)
        && (flags.bits() & O_TMPFILE != O_TMPFILE || !flags.writable())
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Opens a file.
#[inline(never)]
pub fn open(task: &mut Task, path: u64, flags: u32, mode: u32) -> SysResult {
    open_at(task, AT_FDCWD, path, &how_of(flags, mode)?)
}

/// Opens a file relative to a directory.
#[inline(never)]
pub fn openat(task: &mut Task, directory: i32, path: u64, flags: u32, mode: u32) -> SysResult {
    open_at(task, directory, path, &how_of(flags, mode)?)
}

/// Creates a file.
#[inline(never)]
pub fn creat(task: &mut Task, path: u64, mode: u32) -> SysResult {
    let flags = OpenFlags::CREATE | OpenFlags::WRITE_ONLY | OpenFlags::TRUNCATE;
    open_at(task, AT_FDCWD, path, &how_of(flags.bits(), mode)?)
}

/// `struct open_how`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct OpenHowWords {
    flags: u64,
    mode: u64,
    resolve: u64,
}

/// Reads an extensible structure: bytes beyond what this kernel knows must be zero.
///
/// # Errors
/// E2BIG, EFAULT, EINVAL when it is shorter than its first version.
pub fn read_extensible(
    address: u64,
    size: usize,
    into: &mut [u8],
    first_version: usize,
) -> Result<(), Errno> {
    const PAGE: usize = 4096;
    if size < first_version {
        return Err(Errno::EINVAL);
    }
    if size > PAGE {
        return Err(Errno::E2BIG);
    }
    let known = size.min(into.len());
    read_bytes(address, &mut into[..known])?;
    let mut at = known;
    while at < size {
        let mut rest = [0; 32];
        let count = (size - at).min(rest.len());
        read_bytes(address.wrapping_add(at as u64), &mut rest[..count])?;
        if rest[..count].iter().any(|&byte| byte != 0) {
            return Err(Errno::E2BIG);
        }
        at += count;
    }
    Ok(())
}

/// Opens a file with restrictions on the walk.
#[inline(never)]
pub fn openat2(task: &mut Task, directory: i32, path: u64, how: u64, size: usize) -> SysResult {
    open_at(task, directory, path, &how_of_words(how, size)?)
}

/// The how of openat2(2).
pub(crate) fn how_of_words(how: u64, size: usize) -> Result<OpenHow, Errno> {
    let mut words = OpenHowWords { flags: 0, mode: 0, resolve: 0 };
    read_extensible(how, size, words.as_mut_bytes(), size_of::<OpenHowWords>())?;
    let flags = u32::try_from(words.flags).map_err(|_| Errno::EINVAL)?;
    let creates = flags & OpenFlags::CREATE.bits() != 0 || flags & O_TMPFILE == O_TMPFILE;
    let mode = u32::try_from(words.mode).map_err(|_| Errno::EINVAL)?;
    if flags & !KNOWN_FLAGS != 0 || mode & !MODE_BITS != 0 || (!creates && mode != 0) {
        return Err(Errno::EINVAL);
    }
    let path_flags = OpenFlags::PATH | OpenFlags::DIRECTORY | OpenFlags::NO_FOLLOW | OpenFlags::CLOSE_ON_EXEC;
    if flags & OpenFlags::PATH.bits() != 0 && flags & !path_flags.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    let resolve = resolve_flags(words.resolve)?;
    if resolve.contains(LookupFlags::CACHED) && flags & (OpenFlags::TRUNCATE | OpenFlags::CREATE).bits() != 0
    {
        return Err(Errno::EAGAIN);
    }
    let flags = OpenFlags::from_bits_truncate(flags);
    check_temporary(flags)?;
    Ok(OpenHow { flags, mode, resolve })
}

/// The RESOLVE_* flags.
fn resolve_flags(bits: u64) -> Result<LookupFlags, Errno> {
    const FLAGS: [(u64, LookupFlags); 6] = [
        (0x01, LookupFlags::NO_CROSSING),
        (0x02, LookupFlags::NO_MAGIC_LINKS),
        (0x04, LookupFlags::NO_LINKS),
        (0x08, LookupFlags::BENEATH),
        (0x10, LookupFlags::IN_ROOT),
        (0x20, LookupFlags::CACHED),
    ];
    let known = FLAGS.iter().fold(0, |sum, (bit, _)| sum | bit);
    let both = LookupFlags::BENEATH | LookupFlags::IN_ROOT;
    let flags = FLAGS
        .iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(LookupFlags::empty(), |sum, (_, flag)| sum | *flag);
    if bits & !known != 0 || flags.contains(both) { Err(Errno::EINVAL) } else { Ok(flags) }
}

/// Closes a descriptor.
pub fn close(task: &mut Task, descriptor: i32) -> SysResult {
    match task.files.close(descriptor_number(descriptor)?) {
        Ok(()) => Ok(0),
        // The descriptor is closed in any case: the call must not be restarted.
        Err(vfs::Error::Interrupted) => Err(Errno::EINTR),
        Err(error) => Err(error.into()),
    }
}

const CLOSE_RANGE_UNSHARE: u32 = 2;
const CLOSE_RANGE_CLOEXEC: u32 = 4;

/// Closes a range of descriptors, or marks it to be closed on exec.
#[inline(never)]
pub fn close_range(task: &mut Task, first: u32, last: u32, flags: u32) -> SysResult {
    if flags & !(CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC) != 0 || first > last {
        return Err(Errno::EINVAL);
    }
    if flags & CLOSE_RANGE_UNSHARE != 0 {
        // Descriptors that are about to be closed need not be copied when they are the last ones.
        let closes_rest = flags & CLOSE_RANGE_CLOEXEC == 0 && last as usize >= task.files.size();
        let copy = task.files.duplicate_range(if closes_rest { first } else { u32::MAX })?;
        task.replace_files(copy);
    }
    if flags & CLOSE_RANGE_CLOEXEC != 0 {
        task.files.mark_range(first, last);
    } else {
        task.files.close_range(first, last);
    }
    Ok(0)
}

/// Copies a descriptor to the lowest free number.
pub fn dup(task: &mut Task, descriptor: i32) -> SysResult {
    let file = task.file(descriptor)?;
    Ok(task.files.install(file, descriptor_flags(false), 0, task.descriptor_limit())? as usize)
}

pub(crate) fn dup_to(
    task: &Task,
    file: alloc::sync::Arc<vfs::OpenFile>,
    target: u32,
    close_on_exec: bool,
) -> SysResult {
    let flags = descriptor_flags(close_on_exec);
    let replaced = task.files.replace(file, flags, target, task.descriptor_limit())?;
    if let Some(replaced) = replaced {
        // Errors of the implied close are not reported.
        let _ = replaced.closed_by(task.files.id());
    }
    Ok(target as usize)
}

/// Copies a descriptor to a certain number.
pub fn dup2(task: &mut Task, descriptor: i32, target: i32) -> SysResult {
    let file = task.file(descriptor)?;
    if descriptor == target {
        return Ok(target as usize);
    }
    dup_to(task, file, descriptor_number(target)?, false)
}

/// Copies a descriptor to a certain other number, with flags.
pub fn dup3(task: &mut Task, descriptor: i32, target: i32, flags: u32) -> SysResult {
    if flags & !OpenFlags::CLOSE_ON_EXEC.bits() != 0 || descriptor == target {
        return Err(Errno::EINVAL);
    }
    let target = descriptor_number(target)?;
    let file = task.file(descriptor)?;
    dup_to(task, file, target, flags != 0)
}
