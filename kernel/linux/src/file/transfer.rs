//! Reading, writing and seeking.

use alloc::vec::Vec;

use machine::address::UserAddr;
use memory::buffer::{Sink, Source, UserRange};
use vfs::{OpenFile, SeekFrom};

use crate::abi::IoVector;
use crate::errno::{Errno, SysResult};
use crate::signal::information::SignalInformation;
use crate::signal::set::Signal;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Most bytes that one call moves (`MAX_RW_COUNT`).
pub const TRANSFER_MAX: usize = 0x7fff_f000;
/// Most elements of an iovec list (`UIO_MAXIOV`).
const VECTORS_MAX: usize = 1024;

const RWF_HIPRI: u32 = 1;
const RWF_DSYNC: u32 = 2;
const RWF_SYNC: u32 = 4;
const RWF_NOWAIT: u32 = 8;
const RWF_APPEND: u32 = 16;

/// Checks a user range as the ABI does before anything is transferred.
///
/// # Errors
/// EFAULT when it leaves the user half.
pub(crate) fn user_range(address: u64, length: usize) -> Result<(UserAddr, usize), Errno> {
    // The whole range counts, also what a transfer never reaches.
    let end = address.checked_add(length as u64).ok_or(Errno::EFAULT)?;
    if end > machine::address::USER_END as u64 {
        Err(Errno::EFAULT)
    } else {
        Ok((UserAddr::new(address), length.min(TRANSFER_MAX)))
    }
}

/// Sends SIGPIPE for a write to a broken pipe.
#[inline]
pub fn broken_pipe(task: &Task, result: Result<usize, vfs::Error>) -> SysResult {
    match result {
        Ok(count) => Ok(count),
        Err(error) => Err(not_moved(task, error)),
    }
}

#[cold]
#[inline(never)]
fn not_moved(task: &Task, error: vfs::Error) -> Errno {
    if error == vfs::Error::BrokenPipe {
        let signal = SignalInformation::kernel(Signal::SIGPIPE);
        let _ = crate::signal::send::to_thread(&task.thread, signal);
    }
    error.into()
}

/// The result of a write to a file; sockets of messages fail without a signal.
#[inline(always)]
fn written(task: &Task, file: &OpenFile, result: Result<usize, vfs::Error>) -> SysResult {
    match result {
        Ok(count) => Ok(count),
        Err(error) => Err(not_written(task, file, error)),
    }
}

#[cold]
#[inline(never)]
fn not_written(task: &Task, file: &OpenFile, error: vfs::Error) -> Errno {
    if crate::socket::create::takes_messages(file) { error.into() } else { not_moved(task, error) }
}

/// Keeps a write within RLIMIT_FSIZE: regular files only. Beyond it SIGXFSZ and EFBIG.
#[inline(always)]
fn limit_size(task: &Task, file: &OpenFile, position: u64, length: usize) -> Result<usize, Errno> {
    let limit = task.process().limit(crate::process::limits::Resource::FileSize);
    if limit == u64::MAX || file.inode().kind != vfs::FileKind::Regular {
        return Ok(length);
    }
    let start =
        if file.flags().contains(vfs::flags::OpenFlags::APPEND) { file.inode().size() } else { position };
    if start >= limit && length > 0 {
        let _ = crate::signal::send::to_thread(&task.thread, SignalInformation::kernel(Signal::SIGXFSZ));
        return Err(Errno::EFBIG);
    }
    Ok(length.min(usize::try_from(limit - start.min(limit)).unwrap_or(usize::MAX)))
}

/// Reads from a descriptor.
pub fn read(task: &mut Task, descriptor: i32, buffer: u64, length: usize) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let (address, length) = user_range(buffer, length)?;
    let result = file.read(&mut Sink::user(address, length)).map_err(Errno::from);
    task.thread.transfers.count_read(&result);
    result
}

/// Writes to a descriptor.
pub fn write(task: &mut Task, descriptor: i32, buffer: u64, length: usize) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let (address, length) = user_range(buffer, length)?;
    let length = limit_size(task, &file, file.position(), length)?;
    let result = written(task, &file, file.write(&mut Source::user(address, length)));
    task.thread.transfers.count_written(&result);
    result
}

/// Reads from a position.
pub fn pread64(task: &mut Task, descriptor: i32, buffer: u64, length: usize, position: i64) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let (address, length) = user_range(buffer, length)?;
    let result = file.read_at(position, &mut Sink::user(address, length)).map_err(Errno::from);
    task.thread.transfers.count_read(&result);
    result
}

/// Writes to a position.
pub fn pwrite64(task: &mut Task, descriptor: i32, buffer: u64, length: usize, position: i64) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let (address, length) = user_range(buffer, length)?;
    let length = limit_size(task, &file, position.max(0) as u64, length)?;
    let result = broken_pipe(task, file.write_at(position, &mut Source::user(address, length)));
    task.thread.transfers.count_written(&result);
    result
}

/// Reads and checks an iovec list; the lengths add up to at most [`TRANSFER_MAX`].
///
/// # Errors
/// EINVAL for too many elements or a negative length, EFAULT, ENOMEM.
pub fn read_vectors(list: u64, count: usize) -> Result<Vec<UserRange>, Errno> {
    if count > VECTORS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut ranges = memory::fallible::try_vec(count).map_err(|_| Errno::ENOMEM)?;
    let mut total = 0_usize;
    for at in 0..count {
        let vector: IoVector = UserPointer::new(list).add(at).read()?;
        let length = isize::try_from(vector.length as i64).map_err(|_| Errno::EINVAL)?;
        let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
        let (address, length) = user_range(vector.base, length)?;
        let length = length.min(TRANSFER_MAX - total);
        total += length;
        ranges.push(UserRange { address, length });
    }
    Ok(ranges)
}

/// Reads into several ranges.
#[inline(never)]
pub fn readv(task: &mut Task, descriptor: i32, list: u64, count: usize) -> SysResult {
    let result = read_ranges(task, descriptor, list, count);
    task.thread.transfers.count_read_of_vectors(&result);
    result
}

fn read_ranges(task: &Task, descriptor: i32, list: u64, count: usize) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let ranges = read_vectors(list, count)?;
    file.check_readable()?;
    if ranges.iter().all(|range| range.length == 0) {
        // Unlike `read` of nothing, which some files refuse; but what can't be read at all is refused here, too.
        return if file.object::<vfs::epoll::Epoll>().is_some() { Err(Errno::EINVAL) } else { Ok(0) };
    }
    Ok(file.read(&mut Sink::user_list(&ranges))?)
}

/// Writes from several ranges.
#[inline(never)]
pub fn writev(task: &mut Task, descriptor: i32, list: u64, count: usize) -> SysResult {
    let result = write_vectors(task, descriptor, list, count, None);
    task.thread.transfers.count_written_of_vectors(&result);
    result
}

fn write_vectors(task: &Task, descriptor: i32, list: u64, count: usize, position: Option<i64>) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let ranges = read_vectors(list, count)?;
    write_ranges(task, &file, &ranges, position)
}

/// Writes ranges to a position, or where the file is.
pub(crate) fn write_ranges(
    task: &Task,
    file: &alloc::sync::Arc<OpenFile>,
    ranges: &[UserRange],
    position: Option<i64>,
) -> SysResult {
    let wanted = ranges.iter().map(|range| range.length).sum();
    let at = position.map_or(file.position(), |position| position.max(0) as u64);
    let allowed = limit_size(task, file, at, wanted)?;
    if allowed < wanted {
        let shorter = shorten(ranges, allowed)?;
        return write_ranges_at(task, file, &shorter, position);
    }
    write_ranges_at(task, file, ranges, position)
}

fn write_ranges_at(
    task: &Task,
    file: &alloc::sync::Arc<OpenFile>,
    ranges: &[UserRange],
    position: Option<i64>,
) -> SysResult {
    let mut source = Source::user_list(ranges);
    let result = match position {
        Some(position) => file.write_at(position, &mut source),
        None => file.write(&mut source),
    };
    written(task, file, result)
}

/// The first `length` bytes of a list of ranges.
fn shorten(ranges: &[UserRange], length: usize) -> Result<Vec<UserRange>, Errno> {
    let mut left = length;
    let mut shorter = memory::fallible::try_vec(ranges.len()).map_err(|_| Errno::ENOMEM)?;
    for range in ranges {
        let part = range.length.min(left);
        left -= part;
        shorter.push(UserRange { address: range.address, length: part });
    }
    Ok(shorter)
}

/// Reads into several ranges from a position.
#[inline(never)]
pub fn preadv(task: &mut Task, descriptor: i32, list: u64, count: usize, position: i64) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let ranges = read_vectors(list, count)?;
    let result = file.read_at(position, &mut Sink::user_list(&ranges)).map_err(Errno::from);
    task.thread.transfers.count_read_of_vectors(&result);
    result
}

/// Writes from several ranges to a position.
#[inline(never)]
pub fn pwritev(task: &mut Task, descriptor: i32, list: u64, count: usize, position: i64) -> SysResult {
    let result = write_vectors(task, descriptor, list, count, Some(position));
    task.thread.transfers.count_written_of_vectors(&result);
    result
}

/// As preadv with flags; position −1 is the file's own. RWF_NOWAIT and RWF_HIPRI are refused.
#[inline(never)]
pub fn preadv2(
    task: &mut Task,
    descriptor: i32,
    list: u64,
    count: usize,
    position: i64,
    _position_high: u64,
    flags: u32,
) -> SysResult {
    check_flags(flags)?;
    if position == -1 {
        readv(task, descriptor, list, count)
    } else {
        preadv(task, descriptor, list, count, position)
    }
}

/// As pwritev with flags; position −1 is the file's own. RWF_SYNC and RWF_DSYNC write through, RWF_APPEND and
/// RWF_NOWAIT are refused.
#[inline(never)]
pub fn pwritev2(
    task: &mut Task,
    descriptor: i32,
    list: u64,
    count: usize,
    position: i64,
    _position_high: u64,
    flags: u32,
) -> SysResult {
    check_flags(flags)?;
    let written = if position == -1 {
        writev(task, descriptor, list, count)?
    } else {
        pwritev(task, descriptor, list, count, position)?
    };
    if flags & (RWF_DSYNC | RWF_SYNC) != 0 {
        return make_last(&*task.lent_usable_file(descriptor)?, Ok(written), flags);
    }
    Ok(written)
}

/// Writes through what was written, if the flags say so.
pub(crate) fn make_last(file: &OpenFile, written: SysResult, flags: u32) -> SysResult {
    let written = written?;
    if written > 0 && flags & (RWF_DSYNC | RWF_SYNC) != 0 {
        file.sync_written(0..u64::MAX, flags & RWF_SYNC == 0)?;
    }
    Ok(written)
}

/// Refuses flags that are not known.
pub(crate) fn check_flags(flags: u32) -> Result<(), Errno> {
    const KNOWN: u32 = RWF_HIPRI | RWF_DSYNC | RWF_SYNC | RWF_NOWAIT | RWF_APPEND;
    if flags & !KNOWN != 0 || flags & (RWF_NOWAIT | RWF_APPEND) != 0 {
        Err(Errno::EOPNOTSUPP)
    } else {
        Ok(())
    }
}

/// Moves a file's position.
pub fn lseek(task: &mut Task, descriptor: i32, offset: i64, whence: u32) -> SysResult {
    let file = task.lent_file(descriptor)?;
    let target = match whence {
        0 => SeekFrom::Start(offset),
        1 => SeekFrom::Current(offset),
        2 => SeekFrom::End(offset),
        3 => SeekFrom::Data(offset),
        4 => SeekFrom::Hole(offset),
        _ => return Err(Errno::EINVAL),
    };
    match file.seek(target) {
        Ok(position) => Ok(position as usize),
        // All 64-bit positions fit the result: one that does not exist is a bad argument.
        Err(vfs::Error::Overflow) => Err(Errno::EINVAL),
        Err(error) => Err(error.into()),
    }
}
