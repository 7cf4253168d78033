//! Being told what happens to files (inotify(7)).

use vfs::flags::{LookupFlags, OpenFlags};
use vfs::inotify::{EventMask, Inotify};

use super::context::AT_FDCWD;
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Makes an instance.
pub fn inotify_init(task: &mut Task) -> SysResult {
    inotify_init1(task, 0)
}

/// Makes an instance with flags.
#[inline(never)]
pub fn inotify_init1(task: &mut Task, flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCK;
    if flags & !known.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    let status = OpenFlags::from_bits_truncate(flags);
    let file = vfs::inotify::create_inotify(status, task.credentials.account.watching())?;
    task.install_file(file, status.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// Watches a file, or changes what it is watched for.
#[inline(never)]
pub fn inotify_add_watch(task: &mut Task, descriptor: i32, path: u64, mask: u32) -> SysResult {
    let mask = EventMask::from_bits_truncate(mask);
    if mask.is_empty() {
        return Err(Errno::EINVAL);
    }
    let file = task.lent_usable_file(descriptor)?;
    let instance = Inotify::of(&file)?;
    let path = UserPath::read(path)?;
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, !mask.contains(EventMask::DO_NOT_FOLLOW));
    lookup.set(LookupFlags::DIRECTORY, mask.contains(EventMask::ONLY_DIRECTORY));
    task.with_places(AT_FDCWD, &path, |context, start, path| {
        let place = context.walk(start, path, lookup)?;
        Ok(instance.add(context, &place, mask)? as usize)
    })
}

/// Ends a watch.
pub fn inotify_rm_watch(task: &mut Task, descriptor: i32, watch: i32) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    Inotify::of(&file)?.remove(watch)?;
    Ok(0)
}
