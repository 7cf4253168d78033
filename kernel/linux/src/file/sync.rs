//! Writing back, and advice about reading ahead.

use vfs::FileKind;

use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Writes all file systems back.
pub fn sync(task: &mut Task) -> SysResult {
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
    let file = task.lent_usable_file(descriptor)?;
    if let Some(path) = file.path() {
        path.mount.superblock().operations().sync()?;
    }
    Ok(0)
}

/// Writes a part of a file back.
pub fn sync_file_range(task: &mut Task, descriptor: i32, offset: i64, length: i64, flags: u32) -> SysResult {
    const KNOWN: u32 = 7;
    let file = task.lent_usable_file(descriptor)?;
    if flags & !KNOWN != 0 || offset < 0 || length < 0 || offset.checked_add(length).is_none() {
        return Err(Errno::EINVAL);
    }
    match file.inode().kind {
        FileKind::Regular | FileKind::BlockDevice | FileKind::Directory => {}
        _ => return Err(Errno::ESPIPE),
    }
    if file.inode().operations().cache().is_some() {
        file.sync(true)?;
    }
    Ok(0)
}

fn check_advice(task: &Task, descriptor: i32) -> Result<(), Errno> {
    let file = task.lent_usable_file(descriptor)?;
    if file.inode().kind == FileKind::Fifo { Err(Errno::ESPIPE) } else { Ok(()) }
}

/// Advice about how a file will be used: checked, and without effect for files that lie in memory.
pub fn fadvise64(task: &mut Task, descriptor: i32, _offset: i64, length: i64, advice: u32) -> SysResult {
    const HIGHEST: u32 = 5;
    check_advice(task, descriptor)?;
    if advice > HIGHEST || length < 0 { Err(Errno::EINVAL) } else { Ok(0) }
}

/// Reads a part of a file ahead: files here lie in memory.
pub fn readahead(task: &mut Task, descriptor: i32, _offset: i64, _count: usize) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    file.check_readable()?;
    if file.inode().kind == FileKind::Regular { Ok(0) } else { Err(Errno::EINVAL) }
}
