//! Being told what happens to files, and asked before (fanotify(7)).

use vfs::fanotify::{FanMask, Fanotify, GroupFlags, MarkFlags, MarkRequest, MarkedKind, create_fanotify};
use vfs::flags::{LookupFlags, OpenFlags};
use vfs::{Capabilities, FileKind};

use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// How descriptors in events may be opened.
const FILE_FLAGS: u32 = OpenFlags::ACCESS_MODE
    | OpenFlags::APPEND.bits()
    | OpenFlags::NON_BLOCK.bits()
    | OpenFlags::FILE_SYNC.bits()
    | OpenFlags::DATA_SYNC.bits()
    | OpenFlags::CLOSE_ON_EXEC.bits()
    | OpenFlags::LARGE_FILE.bits()
    | OpenFlags::NO_ACCESS_TIME.bits();

/// Makes a group.
#[inline(never)]
pub fn fanotify_init(task: &mut Task, flags: u32, file_flags: u32) -> SysResult {
    let known = GroupFlags::all().difference(GroupFlags::UNPRIVILEGED);
    let mut group = GroupFlags::from_bits_retain(flags);
    let is_privileged = task.credentials.has(Capabilities::SYS_ADMIN);
    if !is_privileged && (group.intersects(GroupFlags::PRIVILEGED) || !group.intersects(GroupFlags::HANDLES))
    {
        return Err(Errno::EPERM);
    }
    let both = |first, second| group.contains(first | second);
    let needs = |flag, others| group.contains(flag) && !group.contains(others);
    let has_class = group.intersects(GroupFlags::CLASS_CONTENT | GroupFlags::CLASS_PRE_CONTENT);
    if flags & !known.bits() != 0
        || both(GroupFlags::REPORT_PIDFD, GroupFlags::REPORT_TID)
        || file_flags & !FILE_FLAGS != 0
        || file_flags & OpenFlags::ACCESS_MODE == OpenFlags::ACCESS_MODE
        || both(GroupFlags::CLASS_CONTENT, GroupFlags::CLASS_PRE_CONTENT)
        || has_class && group.intersects(GroupFlags::HANDLES)
        || needs(GroupFlags::REPORT_NAME, GroupFlags::REPORT_DIRECTORY)
        || needs(GroupFlags::REPORT_TARGET, GroupFlags::REPORT_NAME | GroupFlags::REPORT_FID)
    {
        return Err(Errno::EINVAL);
    }
    group.set(GroupFlags::UNPRIVILEGED, !is_privileged);
    let file_flags = OpenFlags::from_bits_retain(file_flags);
    let file = create_fanotify(group, file_flags, task.credentials.account.watching())?;
    task.install_file(file, group.contains(GroupFlags::CLOSE_ON_EXEC))
}

/// What a request says, as far as it can be judged by itself.
fn request_of(flags: u32, mask: u64) -> Result<MarkRequest, Errno> {
    let (flags, mask) = (MarkFlags::from_bits(flags), u32::try_from(mask).map(FanMask::from_bits));
    let (Some(flags), Ok(Some(mask))) = (flags, mask) else { return Err(Errno::EINVAL) };
    let kind = match flags & (MarkFlags::MOUNT | MarkFlags::FILE_SYSTEM) {
        kind if kind.is_empty() => MarkedKind::Inode,
        MarkFlags::MOUNT => MarkedKind::Mount,
        MarkFlags::FILE_SYSTEM => MarkedKind::FileSystem,
        _ => return Err(Errno::EINVAL),
    };
    match flags & (MarkFlags::ADD | MarkFlags::REMOVE | MarkFlags::FLUSH) {
        MarkFlags::ADD | MarkFlags::REMOVE if !mask.is_empty() => {}
        MarkFlags::FLUSH
            if (flags - MarkFlags::FLUSH - MarkFlags::MOUNT - MarkFlags::FILE_SYSTEM).is_empty() => {}
        _ => return Err(Errno::EINVAL),
    }
    if !FanMask::MARKABLE.contains(mask)
        || flags.contains(MarkFlags::IGNORED_MASK | MarkFlags::IGNORE)
        || flags.contains(MarkFlags::EVICTABLE) && kind != MarkedKind::Inode
    {
        return Err(Errno::EINVAL);
    }
    Ok(MarkRequest { flags, kind, mask })
}

/// Adds marks, takes them back.
#[inline(never)]
pub fn fanotify_mark(
    task: &mut Task,
    descriptor: i32,
    flags: u32,
    mask: u64,
    directory: i32,
    path: u64,
) -> SysResult {
    let request = request_of(flags, mask)?;
    let file = task.lent_usable_file(descriptor)?;
    let instance = Fanotify::of(&file)?;
    let group = instance.flags();
    if group.contains(GroupFlags::UNPRIVILEGED) && request.kind != MarkedKind::Inode {
        return Err(Errno::EPERM);
    }
    let has_class = group.intersects(GroupFlags::CLASS_CONTENT | GroupFlags::CLASS_PRE_CONTENT);
    let wants_handles = !(request.mask - FanMask::OF_FILES - FanMask::MODIFIERS).is_empty();
    if request.mask.intersects(FanMask::PERMISSIONS) && !has_class
        || wants_handles && (!group.intersects(GroupFlags::HANDLES) || request.kind == MarkedKind::Mount)
        || request.mask.contains(FanMask::RENAME) && !group.contains(GroupFlags::REPORT_NAME)
    {
        return Err(Errno::EINVAL);
    }
    if request.flags.contains(MarkFlags::FLUSH) {
        instance.flush(request.kind);
        return Ok(0);
    }
    let only_directory = request.flags.contains(MarkFlags::ONLY_DIRECTORY);
    if path == 0 {
        let place = task.lent_usable_file(directory)?.path_or_detached()?;
        if only_directory && place.inode()?.kind != FileKind::Directory {
            return Err(Errno::ENOTDIR);
        }
        let places = task.file_system.places();
        instance.mark(&task.path_context(&places), &place, &request)?;
        return Ok(0);
    }
    let path = UserPath::read(path)?;
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, !request.flags.contains(MarkFlags::DO_NOT_FOLLOW));
    lookup.set(LookupFlags::DIRECTORY, only_directory);
    task.with_places(directory, &path, |context, start, path| {
        let place = context.walk(start, path, lookup)?;
        instance.mark(context, &place, &request)?;
        Ok(0)
    })
}
