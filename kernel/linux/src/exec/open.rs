//! Opening files: for programs, and for execution.

use alloc::sync::Arc;

use vfs::{Access, DescriptorFlags, FileKind, LookupFlags, MountFlags, OpenFile, OpenFlags, OpenHow};

use super::path::{self, AT_FDCWD, Start};
use super::{errno_of, get_any};
use crate::errno::{Errno, SysResult};
use crate::process::limits::Resource;
use crate::task::Task;

/// Opens the file of a program to be executed.
pub fn for_execution(
    task: &Task,
    directory: i32,
    path: &[u8],
    empty_allowed: bool,
    follow: bool,
) -> Result<Arc<OpenFile>, Errno> {
    let start = Start::new(task, directory, path)?;
    let context = start.context(&task.credentials.file);
    let place = if path.is_empty() && empty_allowed && directory != AT_FDCWD {
        get_any(task, directory)?.path_or_detached().map_err(errno_of)?
    } else {
        let flags = if follow { LookupFlags::FOLLOW } else { LookupFlags::empty() };
        context.walk(start.place(), path, flags).map_err(errno_of)?
    };
    let inode = place.inode().map_err(errno_of)?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::SymbolicLink => return Err(Errno::ELOOP),
        _ => return Err(Errno::EACCES),
    }
    context.check_place(&place, Access::EXECUTE).map_err(errno_of)?;
    // Permission to execute was checked; reading the file is then the kernel's business.
    vfs::open_place(place, OpenFlags::empty()).map_err(errno_of)
}

/// Whether the process may read the file it executes: only then may it be dumped and looked into.
pub fn is_readable(task: &Task, file: &OpenFile) -> bool {
    let Some(place) = file.path() else { return true };
    let start = Start::new(task, AT_FDCWD, b"/");
    start.is_ok_and(|start| start.context(&task.credentials.file).check_place(place, Access::READ).is_ok())
}

/// Whether the file's mount allows execution.
pub fn allows_execution(file: &OpenFile) -> bool {
    file.path().is_none_or(|path| !path.mount.flags().contains(MountFlags::NO_EXECUTE))
}

/// Whether the file's mount lets set-id bits count.
pub fn honours_set_id(file: &OpenFile) -> bool {
    file.path().is_none_or(|path| !path.mount.flags().contains(MountFlags::NO_SET_ID))
}

/// Opens a file relative to a directory.
pub fn openat(task: &mut Task, directory: i32, name: u64, flags: u32, mode: u32) -> SysResult {
    let path = path::read(name)?;
    // open() and openat() ignore flags that they do not know.
    let flags = OpenFlags::from_bits_truncate(flags);
    let how = OpenHow { flags, mode: mode & 0o7777, resolve: LookupFlags::empty() };
    let reserved = task.files.reserve(task.process().limit(Resource::OpenFiles)).map_err(errno_of)?;
    let file = {
        let start = Start::new(task, directory, &path)?;
        start.context(&task.credentials.file).open(start.place(), &path, &how).map_err(errno_of)?
    };
    drop(path);
    let mut descriptor_flags = DescriptorFlags::empty();
    descriptor_flags.set(DescriptorFlags::CLOSE_ON_EXEC, flags.contains(OpenFlags::CLOSE_ON_EXEC));
    Ok(reserved.install(file, descriptor_flags) as usize)
}

/// Opens a file.
pub fn open(task: &mut Task, name: u64, flags: u32, mode: u32) -> SysResult {
    openat(task, AT_FDCWD, name, flags, mode)
}

/// Closes a descriptor.
pub fn close(task: &mut Task, descriptor: i32) -> SysResult {
    let descriptor = u32::try_from(descriptor).map_err(|_| Errno::EBADF)?;
    task.files.close(descriptor).map(|()| 0).map_err(errno_of)
}
