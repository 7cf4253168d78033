//! When access times are updated.

use crate::attributes::{FileKind, Timestamp};
use crate::file::OpenFile;
use crate::file_flags::FileFlags;
use crate::flags::{MountFlags, OpenFlags};
use crate::inode::InodeHead;
use crate::mount::Path;

/// Age beyond which `relatime` updates an access time in any case.
const DAY_SECONDS: i64 = 24 * 60 * 60;

/// A file was read through an open file.
#[inline]
pub fn accessed(file: &OpenFile) {
    if file.flags().contains(OpenFlags::NO_ACCESS_TIME) {
        return;
    }
    match file.path() {
        Some(path) => accessed_at(path, file.inode()),
        None => touch(file.inode(), MountFlags::RELATIVE_ACCESS_TIME),
    }
}

/// A file (or symbolic link) was read at a place.
#[inline]
pub fn accessed_at(path: &Path, inode: &InodeHead) {
    let flags = path.mount.flags();
    if flags.intersects(MountFlags::NO_ACCESS_TIME | MountFlags::READ_ONLY) {
        return;
    }
    if inode.kind == FileKind::Directory && flags.contains(MountFlags::NO_DIRECTORY_ACCESS_TIME) {
        return;
    }
    touch(inode, flags);
}

/// With `relatime` (the default): only when the last access is not newer than the last change, or a day old. The clock
/// is read only if the first test does not decide.
#[inline]
fn touch(inode: &InodeHead, flags: MountFlags) {
    let last = inode.accessed().get();
    let strict = flags.contains(MountFlags::STRICT_ACCESS_TIME);
    if !strict && last > inode.modified().get() && last > inode.changed().get() {
        let now = Timestamp::coarse();
        if now.seconds - last.seconds >= DAY_SECONDS {
            update(inode, now);
        }
        return;
    }
    update(inode, Timestamp::coarse());
}

#[inline]
fn update(inode: &InodeHead, now: Timestamp) {
    if !inode.file_flags().contains(FileFlags::NO_ACCESS_TIME) {
        inode.accessed().set(now);
    }
}
