//! Names of files: links, removal, renaming, special files.

use vfs::flags::{LookupFlags, RenameFlags};
use vfs::{DeviceNumber, FileKind};

use super::context::{AT_EMPTY_PATH, AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_FOLLOW};
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::write_bytes;

/// Gives a file another name.
pub fn link(task: &mut Task, old: u64, new: u64) -> SysResult {
    linkat(task, AT_FDCWD, old, AT_FDCWD, new, 0)
}

/// Gives a file another name, relative to directories.
#[inline(never)]
pub fn linkat(
    task: &mut Task,
    old_directory: i32,
    old: u64,
    new_directory: i32,
    new: u64,
    flags: u32,
) -> SysResult {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, flags & AT_SYMLINK_FOLLOW != 0);
    lookup.set(LookupFlags::EMPTY_PATH, flags & AT_EMPTY_PATH != 0);
    let (old, new) = (UserPath::read(old)?, UserPath::read(new)?);
    task.with_places(old_directory, &old, |context, old_start, old_path| {
        task.with_places(new_directory, &new, |_, new_start, new_path| {
            context.make_hard_link(old_start, old_path, new_start, new_path, lookup)?;
            Ok(0)
        })
    })
}

/// Makes a symbolic link.
pub fn symlink(task: &mut Task, target: u64, path: u64) -> SysResult {
    symlinkat(task, target, AT_FDCWD, path)
}

/// Makes a symbolic link relative to a directory.
#[inline(never)]
pub fn symlinkat(task: &mut Task, target: u64, directory: i32, path: u64) -> SysResult {
    let (target, path) = (UserPath::read(target)?, UserPath::read(path)?);
    if target.as_bytes().is_empty() {
        return Err(Errno::ENOENT);
    }
    task.with_places(directory, &path, |context, start, path| {
        context.make_symbolic_link(target.as_bytes(), start, path)?;
        Ok(0)
    })
}

/// Where a symbolic link leads to.
pub fn readlink(task: &mut Task, path: u64, buffer: u64, size: i32) -> SysResult {
    readlinkat(task, AT_FDCWD, path, buffer, size)
}

/// Where a symbolic link leads to, relative to a directory; an empty path is the link that the descriptor is.
#[inline(never)]
pub fn readlinkat(task: &mut Task, directory: i32, path: u64, buffer: u64, size: i32) -> SysResult {
    let size = usize::try_from(size).ok().filter(|&size| size > 0).ok_or(Errno::EINVAL)?;
    let path = UserPath::read(path)?;
    let text =
        task.with_places(directory, &path, |context, start, path| Ok(context.read_link(start, path)?))?;
    let shown = &text[..text.len().min(size)];
    write_bytes(buffer, shown)?;
    Ok(shown.len())
}

/// Removes a name.
pub fn unlink(task: &mut Task, path: u64) -> SysResult {
    unlinkat(task, AT_FDCWD, path, 0)
}

/// Removes a name or an empty directory, relative to a directory.
#[inline(never)]
pub fn unlinkat(task: &mut Task, directory: i32, path: u64, flags: u32) -> SysResult {
    if flags & !AT_REMOVEDIR != 0 {
        return Err(Errno::EINVAL);
    }
    let path = UserPath::read(path)?;
    task.with_places(directory, &path, |context, start, path| {
        if flags & AT_REMOVEDIR != 0 {
            context.remove_directory(start, path)?;
        } else {
            context.unlink(start, path)?;
        }
        Ok(0)
    })
}

/// Renames a file.
pub fn rename(task: &mut Task, old: u64, new: u64) -> SysResult {
    renameat2(task, AT_FDCWD, old, AT_FDCWD, new, 0)
}

/// Renames a file, relative to directories.
pub fn renameat(task: &mut Task, old_directory: i32, old: u64, new_directory: i32, new: u64) -> SysResult {
    renameat2(task, old_directory, old, new_directory, new, 0)
}

/// Renames or exchanges files, relative to directories, or leaves a whiteout.
#[inline(never)]
pub fn renameat2(
    task: &mut Task,
    old_directory: i32,
    old: u64,
    new_directory: i32,
    new: u64,
    flags: u32,
) -> SysResult {
    let flags = RenameFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let (old, new) = (UserPath::read(old)?, UserPath::read(new)?);
    task.with_places(old_directory, &old, |context, old_start, old_path| {
        task.with_places(new_directory, &new, |_, new_start, new_path| {
            context.rename(old_start, old_path, new_start, new_path, flags)?;
            Ok(0)
        })
    })
}

/// Makes a file, FIFO, socket or device node.
pub fn mknod(task: &mut Task, path: u64, mode: u32, device: u32) -> SysResult {
    mknodat(task, AT_FDCWD, path, mode, device)
}

/// Makes a file, FIFO, socket or device node relative to a directory.
#[inline(never)]
pub fn mknodat(task: &mut Task, directory: i32, path: u64, mode: u32, device: u32) -> SysResult {
    let kind = FileKind::from_mode(mode).ok_or(Errno::EINVAL)?;
    let path = UserPath::read(path)?;
    match kind {
        FileKind::Directory => return Err(Errno::EPERM),
        FileKind::SymbolicLink => return Err(Errno::EINVAL),
        _ => {}
    }
    let special =
        if kind.is_device() { DeviceNumber::decode(device.into()) } else { DeviceNumber::default() };
    task.with_places(directory, &path, |context, start, path| {
        context.make_node(start, path, kind, mode & 0o7777, special)?;
        Ok(0)
    })
}
