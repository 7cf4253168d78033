//! Directories: listing, the working directory, the root.

use vfs::flags::LookupFlags;
use vfs::inode::DirectorySink;
use vfs::mount::PathPrefix;
use vfs::{Capabilities, FileKind};

use super::context::{AT_FDCWD, AT_REMOVEDIR};
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::write_bytes;

/// How an entry is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// `struct linux_dirent64`: the type before the name.
    Modern,
    /// `struct linux_dirent`: the type in the last byte.
    Old,
}

/// Bytes before the name: inode, position, length (and type).
const HEADER_BYTES: usize = 18;
const NAME_MAX: usize = 255;
const ENTRY_MAX: usize = (HEADER_BYTES + NAME_MAX + 2).next_multiple_of(8);

struct UserEntries {
    layout: Layout,
    next: u64,
    left: usize,
    written: usize,
    fault: bool,
}

impl DirectorySink for UserEntries {
    fn entry(&mut self, name: &[u8], inode: u64, kind: FileKind, next: u64) -> bool {
        let name_start = if self.layout == Layout::Modern { HEADER_BYTES + 1 } else { HEADER_BYTES };
        let trailer = if self.layout == Layout::Modern { 1 } else { 2 };
        let length = (name_start + name.len() + trailer).next_multiple_of(8);
        if length > self.left || name.len() > NAME_MAX {
            return false;
        }
        let mut entry = [0; ENTRY_MAX];
        entry[..8].copy_from_slice(&inode.to_ne_bytes());
        entry[8..16].copy_from_slice(&next.to_ne_bytes());
        entry[16..18].copy_from_slice(&(length as u16).to_ne_bytes());
        entry[name_start..name_start + name.len()].copy_from_slice(name);
        let kind_at = if self.layout == Layout::Modern { HEADER_BYTES } else { length - 1 };
        entry[kind_at] = kind.directory_entry_type();
        if write_bytes(self.next, &entry[..length]).is_err() {
            self.fault = true;
            return false;
        }
        self.next += length as u64;
        self.left -= length;
        self.written += length;
        true
    }
}

#[inline(never)]
fn list(task: &Task, descriptor: i32, buffer: u64, size: u32, layout: Layout) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let mut entries = UserEntries { layout, next: buffer, left: size as usize, written: 0, fault: false };
    let outcome = file.read_directory(&mut entries)?;
    if entries.written == 0 {
        if entries.fault {
            return Err(Errno::EFAULT);
        }
        if outcome.full {
            return Err(Errno::EINVAL);
        }
    }
    Ok(entries.written)
}

/// Lists a directory.
pub fn getdents64(task: &mut Task, descriptor: i32, buffer: u64, size: u32) -> SysResult {
    list(task, descriptor, buffer, size, Layout::Modern)
}

/// Lists a directory in the old format.
pub fn getdents(task: &mut Task, descriptor: i32, buffer: u64, size: u32) -> SysResult {
    list(task, descriptor, buffer, size, Layout::Old)
}

/// The path of the working directory; the length with its terminator is returned.
#[inline(never)]
pub fn getcwd(task: &mut Task, buffer: u64, size: usize) -> SysResult {
    const UNREACHABLE: &[u8] = b"(unreachable)";
    /// Most paths fit, and a smaller object could lie in a cache line with one of another processor.
    const WHOLE_LINE: usize = 64;
    let places = task.file_system.places();
    if places.cwd.is_deleted() {
        return Err(Errno::ENOENT);
    }
    let mut path = alloc::vec::Vec::new();
    memory::fallible::try_reserve(&mut path, WHOLE_LINE).map_err(|_| Errno::ENOMEM)?;
    let prefix = places.cwd.write_to(&places.root, false, &mut path)?;
    if prefix != PathPrefix::Reachable {
        memory::fallible::try_reserve(&mut path, UNREACHABLE.len()).map_err(|_| Errno::ENOMEM)?;
        path.splice(0..0, UNREACHABLE.iter().copied());
    }
    memory::fallible::try_push(&mut path, 0).map_err(|_| Errno::ENOMEM)?;
    if path.len() > size {
        return Err(Errno::ERANGE);
    }
    write_bytes(buffer, &path)?;
    Ok(path.len())
}

/// Changes the working directory.
pub fn chdir(task: &mut Task, path: u64) -> SysResult {
    let path = UserPath::read(path)?;
    let place = task
        .with_places(AT_FDCWD, &path, |context, start, path| Ok(context.walk_to_directory(start, path)?))?;
    task.file_system.set_cwd(&place)?;
    Ok(0)
}

/// Changes the working directory to an open one.
pub fn fchdir(task: &mut Task, descriptor: i32) -> SysResult {
    let file = task.lent_file(descriptor)?;
    let Some(path) = file.path().filter(|_| file.inode().kind == FileKind::Directory) else {
        return Err(Errno::ENOTDIR);
    };
    let places = task.file_system.places();
    task.path_context(&places).check_directory(path)?;
    task.file_system.set_cwd(path)?;
    Ok(0)
}

/// Changes the root directory.
pub fn chroot(task: &mut Task, path: u64) -> SysResult {
    let path = UserPath::read(path)?;
    let place = task
        .with_places(AT_FDCWD, &path, |context, start, path| Ok(context.walk_to_directory(start, path)?))?;
    if !task.credentials.has_here(Capabilities::SYS_CHROOT) {
        return Err(Errno::EPERM);
    }
    task.file_system.set_root(&place)?;
    Ok(0)
}

/// Makes a directory.
pub fn mkdir(task: &mut Task, path: u64, mode: u32) -> SysResult {
    mkdirat(task, AT_FDCWD, path, mode)
}

/// Makes a directory relative to another.
#[inline(never)]
pub fn mkdirat(task: &mut Task, directory: i32, path: u64, mode: u32) -> SysResult {
    let path = UserPath::read(path)?;
    task.with_places(directory, &path, |context, start, path| {
        context.make_directory(start, path, mode)?;
        Ok(0)
    })
}

/// Removes an empty directory.
pub fn rmdir(task: &mut Task, path: u64) -> SysResult {
    super::names::unlinkat(task, AT_FDCWD, path, AT_REMOVEDIR)
}

/// The umask; returns the old one.
pub fn umask(task: &mut Task, mask: u32) -> SysResult {
    Ok(task.file_system.set_umask(mask) as usize)
}

/// The walk to a directory that must exist, for callers outside of this group.
///
/// # Errors
/// Those of the walk.
pub fn place_of(task: &Task, path: &UserPath, flags: LookupFlags) -> Result<vfs::Path, Errno> {
    task.with_places(AT_FDCWD, path, |context, start, path| Ok(context.walk(start, path, flags)?))
}
