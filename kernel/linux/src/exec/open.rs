//! Opening files for execution.

use alloc::sync::Arc;

use vfs::{Access, FileKind, LookupFlags, MountFlags, OpenFile, PathContext, UserSpace};

use crate::errno::Errno;
use crate::file::context::AT_FDCWD;
use crate::process::thread::Thread;
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
    Ok(open(&context, place)?)
}

/// The same for a thread that names a file which others will execute.
pub(crate) fn for_thread(thread: &Thread, path: &[u8]) -> vfs::Result<Arc<OpenFile>> {
    let file_system = thread.file_system().ok_or(vfs::Error::NotFound)?;
    let places = file_system.places();
    let credentials = thread.credentials();
    let context = PathContext { places: &places, credentials: &credentials.file, umask: 0 };
    let place = context.walk(&places.cwd, path, LookupFlags::FOLLOW)?;
    open(&context, place)
}

fn open(context: &PathContext<'_>, place: vfs::Path) -> vfs::Result<Arc<OpenFile>> {
    match place.inode()?.kind {
        FileKind::Regular => {}
        FileKind::SymbolicLink => return Err(vfs::Error::Loop),
        _ => return Err(vfs::Error::AccessDenied),
    }
    context.check_place(&place, Access::EXECUTE)?;
    // Permission to execute was checked; reading the file is then the kernel's business.
    vfs::tree::open_for_execution(place)
}

/// Whether the process may read the file it executes: only then may it be dumped and looked into.
pub fn is_readable(task: &Task, file: &OpenFile) -> bool {
    let Some(place) = file.path() else { return true };
    let places = task.file_system.places();
    task.path_context(&places).check_place(place, Access::READ).is_ok()
}

/// The name space of users that a new program's memory belongs to: the caller's, or the next one above in which the file's owners are known when the caller
/// may not read it, so that nobody reads it who is privileged in one that he made for that.
pub fn space_of_memory(task: &Task, file: &OpenFile) -> UserSpace {
    let mut space = task.credentials.space();
    if !space.is_first() && !is_readable(task, file) {
        let (user, group) = (file.inode().user(), file.inode().group());
        while let Some(parent) = space.parent().filter(|_| !space.knows(user, group)) {
            space = parent;
        }
    }
    space.clone()
}

/// Whether the file's mount allows execution.
pub fn allows_execution(file: &OpenFile) -> bool {
    file.path().is_none_or(|path| !path.mount.flags().contains(MountFlags::NO_EXECUTE))
}

/// Whether set-id bits count: not on a mount of another name space, or of a file system that belongs to a name space of users in which the caller is not.
pub fn honours_set_id(task: &Task, file: &OpenFile) -> bool {
    file.path().is_none_or(|path| {
        let mount = &path.mount;
        !mount.flags().contains(MountFlags::NO_SET_ID)
            && task.file_system.places().namespace.contains(mount)
            && task.credentials.space().is_within(mount.superblock().owner())
    })
}
