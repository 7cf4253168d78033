//! Opening files for execution.

use alloc::sync::Arc;

use vfs::{Access, FileKind, LookupFlags, MountFlags, OpenFile, OpenFlags};

use crate::errno::Errno;
use crate::file::context::AT_FDCWD;
use crate::task::Task;

/// Opens the file of a program to be executed.
pub fn for_execution(
    task: &Task,
    directory: i32,
    path: &[u8],
    empty_allowed: bool,
    follow: bool,
) -> Result<Arc<OpenFile>, Errno> {
    let places = task.file_system.places();
    let context = task.path_context(&places);
    let lookup = if follow { LookupFlags::FOLLOW } else { LookupFlags::empty() };
    let relative = directory != AT_FDCWD && path.first() != Some(&b'/');
    let place = match (relative, path.is_empty() && empty_allowed) {
        (true, true) => task.start_of(directory)?,
        (true, false) => context.walk(&task.start_of(directory)?, path, lookup)?,
        _ => context.walk(&places.cwd, path, lookup)?,
    };
    let inode = place.inode()?;
    match inode.kind {
        FileKind::Regular => {}
        FileKind::SymbolicLink => return Err(Errno::ELOOP),
        _ => return Err(Errno::EACCES),
    }
    context.check_place(&place, Access::EXECUTE)?;
    // Permission to execute was checked; reading the file is then the kernel's business.
    Ok(vfs::open_place(place, OpenFlags::empty())?)
}

/// Whether the process may read the file it executes: only then may it be dumped and looked into.
pub fn is_readable(task: &Task, file: &OpenFile) -> bool {
    let Some(place) = file.path() else { return true };
    let places = task.file_system.places();
    task.path_context(&places).check_place(place, Access::READ).is_ok()
}

/// Whether the file's mount allows execution.
pub fn allows_execution(file: &OpenFile) -> bool {
    file.path().is_none_or(|path| !path.mount.flags().contains(MountFlags::NO_EXECUTE))
}

/// Whether the file's mount lets set-id bits count.
pub fn honours_set_id(file: &OpenFile) -> bool {
    file.path().is_none_or(|path| !path.mount.flags().contains(MountFlags::NO_SET_ID))
}
