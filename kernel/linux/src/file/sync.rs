//! Writing back, and advice about reading ahead.

use memory::file_cache::Census;
use vfs::disk::Advice;
use vfs::file::{FileMappingKind, RangeSteps};
use vfs::flags::Access;
use vfs::{FileKind, OpenFile};

use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Writes all file systems back.
pub fn sync(task: &mut Task) -> SysResult {
    vfs::disk::flusher::sync_all();
    let places = task.file_system.places();
    // sync(2) always succeeds; errors are for those who wrote.
    let _ = places.namespace.describe(&places.root, |mount| {
        let _ = mount.mount.superblock().operations().sync();
        Ok(())
    });
    Ok(0)
}

/// Writes a file back.
pub fn fsync(task: &mut Task, descriptor: i32) -> SysResult {
    task.lent_usable_file(descriptor)?.sync(false)?;
    Ok(0)
}

/// Writes a file's data back.
pub fn fdatasync(task: &mut Task, descriptor: i32) -> SysResult {
    task.lent_usable_file(descriptor)?.sync(true)?;
    Ok(0)
}

/// Writes the file system of an open file back.
pub fn syncfs(task: &mut Task, descriptor: i32) -> SysResult {
    task.lent_usable_file(descriptor)?.sync_file_system()?;
    Ok(0)
}

/// Writes a part of a file back.
pub fn sync_file_range(task: &mut Task, descriptor: i32, offset: i64, length: i64, flags: u32) -> SysResult {
    write_range(&*task.lent_usable_file(descriptor)?, offset, length, flags)
}

/// The same for an open file.
pub(crate) fn write_range(file: &OpenFile, offset: i64, length: i64, flags: u32) -> SysResult {
    let steps = RangeSteps::from_bits(flags).ok_or(Errno::EINVAL)?;
    if offset < 0 || length < 0 || offset.checked_add(length).is_none() {
        return Err(Errno::EINVAL);
    }
    match file.inode().kind {
        FileKind::Regular | FileKind::BlockDevice | FileKind::Directory => {}
        _ => return Err(Errno::ESPIPE),
    }
    let (start, end) = (offset as u64, if length == 0 { u64::MAX } else { (offset + length) as u64 });
    file.operations().write_range(file, start, end, steps)?;
    Ok(0)
}

/// Advice about how a file will be used; without effect for files that lie in memory.
pub fn fadvise64(task: &mut Task, descriptor: i32, offset: i64, length: i64, advice: u32) -> SysResult {
    advise(&*task.lent_usable_file(descriptor)?, offset, length, advice)
}

/// The same for an open file.
pub(crate) fn advise(file: &OpenFile, offset: i64, length: i64, advice: u32) -> SysResult {
    if file.inode().kind == FileKind::Fifo {
        return Err(Errno::ESPIPE);
    }
    let advice = match advice {
        0 => Advice::Normal,
        1 => Advice::Random,
        2 => Advice::Sequential,
        3 => Advice::WillNeed,
        4 => Advice::DontNeed,
        5 => Advice::NoReuse,
        _ => return Err(Errno::EINVAL),
    };
    let length = u64::try_from(length).map_err(|_| Errno::EINVAL)?;
    match u64::try_from(offset) {
        Ok(offset) => file.operations().advise(file, offset, length, advice),
        // Nothing is there, but how the file is read is said of all of it.
        Err(_) if matches!(advice, Advice::Normal | Advice::Random | Advice::Sequential) => {
            file.operations().advise(file, 0, 0, advice);
        }
        Err(_) => {}
    }
    Ok(0)
}

/// Says how many pages of a part of a file are in memory, and in which state. Which were given up of late is not known: 0.
#[inline(never)]
pub fn cachestat(task: &mut Task, descriptor: i32, range: u64, out: u64, flags: u32) -> SysResult {
    const PAGE: u64 = machine::address::PAGE_SIZE as u64;
    let file = task.usable_file(descriptor)?;
    let [start, length]: [u64; 2] = UserPointer::new(range).read()?;
    let inode = file.inode();
    let is_allowed = file.check_writable().is_ok()
        || vfs::permission::owns(inode, &task.credentials.file)
        || vfs::permission::check_access(inode, Access::WRITE, &task.credentials.file).is_ok();
    if !is_allowed {
        return Err(Errno::EPERM);
    }
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let last = if length == 0 { u64::MAX } else { start.wrapping_add(length).wrapping_sub(1) };
    let pages = match file.operations().mapping(&file) {
        Ok(FileMappingKind::Pages(cache)) => cache.census(start / PAGE, last / PAGE + 1),
        _ => Census::default(),
    };
    UserPointer::new(out).write(&[pages.cached, pages.dirty, pages.write_back, 0, 0])?;
    Ok(0)
}

/// Reads a part of a file ahead; without effect for files that lie in memory.
pub fn readahead(task: &mut Task, descriptor: i32, offset: i64, count: usize) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    file.check_readable()?;
    if !matches!(file.inode().kind, FileKind::Regular | FileKind::BlockDevice) {
        return Err(Errno::EINVAL);
    }
    if let Ok(offset) = u64::try_from(offset)
        && count > 0
    {
        file.operations().advise(&file, offset, count as u64, Advice::WillNeed);
    }
    Ok(0)
}
