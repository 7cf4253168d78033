//! What a file is: stat(2), statx(2), access(2).

use vfs::flags::{Access, LookupFlags};
use vfs::{FileStatus, OpenFile, Timestamp};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::{
    AT_EACCESS, AT_EMPTY_PATH, AT_FDCWD, AT_NO_AUTOMOUNT, AT_SYMLINK_FOLLOW, AT_SYMLINK_NOFOLLOW,
};
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// `struct stat`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatWords {
    device: u64,
    inode: u64,
    links: u64,
    mode: u32,
    user: u32,
    group: u32,
    padding: u32,
    special: u64,
    size: i64,
    block_size: i64,
    blocks: i64,
    times: [[i64; 2]; 3],
    reserved: [i64; 3],
}
const _: () = assert!(size_of::<StatWords>() == 144);

fn time_pair(time: Timestamp) -> [i64; 2] {
    [time.seconds, time.nanoseconds.into()]
}

fn put_status(task: &Task, out: u64, status: &FileStatus) -> SysResult {
    let space = task.credentials.space();
    let words = StatWords {
        device: status.device.encode(),
        inode: status.inode,
        links: status.links.into(),
        mode: status.mode,
        user: space.shown_user(status.user),
        group: space.shown_group(status.group),
        padding: 0,
        special: status.special.encode(),
        size: status.size as i64,
        block_size: status.block_size.into(),
        blocks: status.blocks as i64,
        times: [time_pair(status.accessed), time_pair(status.modified), time_pair(status.changed)],
        reserved: [0; 3],
    };
    UserPointer::new(out).write(&words)?;
    Ok(0)
}

/// The status of an open file.
#[inline(always)]
fn open_status(file: &OpenFile) -> Result<FileStatus, Errno> {
    file.before_status()?;
    Ok(file.status())
}

/// The status of a path or, with an empty path where that is allowed, of a descriptor.
fn status_at(task: &Task, directory: i32, path: &UserPath, flags: u32) -> Result<FileStatus, Errno> {
    if path.as_bytes().is_empty() && flags & AT_EMPTY_PATH != 0 && directory != AT_FDCWD {
        return open_status(&*task.lent_file(directory)?);
    }
    let lookup = lookup_flags(flags);
    task.with_places(directory, path, |context, start, path| Ok(context.status(start, path, lookup)?))
}

/// The walk that the AT_* flags of stat-like calls ask for: links are followed unless told otherwise.
pub fn lookup_flags(flags: u32) -> LookupFlags {
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, flags & AT_SYMLINK_NOFOLLOW == 0);
    lookup.set(LookupFlags::EMPTY_PATH, flags & AT_EMPTY_PATH != 0);
    lookup
}

/// The status of a file.
pub fn stat(task: &mut Task, path: u64, out: u64) -> SysResult {
    let path = UserPath::read(path)?;
    put_status(task, out, &status_at(task, AT_FDCWD, &path, 0)?)
}

/// The status of a file or symbolic link.
pub fn lstat(task: &mut Task, path: u64, out: u64) -> SysResult {
    let path = UserPath::read(path)?;
    put_status(task, out, &status_at(task, AT_FDCWD, &path, AT_SYMLINK_NOFOLLOW)?)
}

/// The status of an open file.
pub fn fstat(task: &mut Task, descriptor: i32, out: u64) -> SysResult {
    put_status(task, out, &open_status(&*task.lent_file(descriptor)?)?)
}

/// The status of a file relative to a directory.
pub fn newfstatat(task: &mut Task, directory: i32, path: u64, out: u64, flags: u32) -> SysResult {
    if flags & !(AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_SYMLINK_FOLLOW) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?;
    put_status(task, out, &status_at(task, directory, &path, flags)?)
}

/// `struct statx_timestamp`.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatxTime {
    seconds: i64,
    nanoseconds: u32,
    padding: i32,
}

impl From<Timestamp> for StatxTime {
    fn from(time: Timestamp) -> StatxTime {
        StatxTime { seconds: time.seconds, nanoseconds: time.nanoseconds, padding: 0 }
    }
}

/// `struct statx`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatxWords {
    mask: u32,
    block_size: u32,
    attributes: u64,
    links: u32,
    user: u32,
    group: u32,
    mode: u16,
    padding: u16,
    inode: u64,
    size: u64,
    blocks: u64,
    attributes_mask: u64,
    accessed: StatxTime,
    born: StatxTime,
    changed: StatxTime,
    modified: StatxTime,
    special_major: u32,
    special_minor: u32,
    device_major: u32,
    device_minor: u32,
    mount_id: u64,
    direct_memory_align: u32,
    direct_offset_align: u32,
    spare: [u64; 12],
}
const _: () = assert!(size_of::<StatxWords>() == 256);

const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
const STATX_MNT_ID: u32 = 0x1000;
const STATX_RESERVED: u32 = 0x8000_0000;
const STATX_ATTR_MOUNT_ROOT: u64 = 0x2000;
/// What can be told of any file: whether something would be mounted on it when it is used, it is a mount's root, its pages are those of the device.
const STATX_ATTR_GENERIC: u64 = 0x1000 | STATX_ATTR_MOUNT_ROOT | 0x20_0000;
const AT_STATX_SYNC_TYPE: u32 = 0x6000;

/// The extended status of a file. All basic fields, the birth time and the mount are always filled in.
#[inline(never)]
pub fn statx(task: &mut Task, directory: i32, path: u64, flags: u32, mask: u32, out: u64) -> SysResult {
    const KNOWN: u32 = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_EMPTY_PATH | AT_STATX_SYNC_TYPE;
    if mask & STATX_RESERVED != 0 || flags & !KNOWN != 0 || flags & AT_STATX_SYNC_TYPE == AT_STATX_SYNC_TYPE {
        return Err(Errno::EINVAL);
    }
    let path = UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?;
    let status = status_at(task, directory, &path, flags)?;
    let space = task.credentials.space();
    let words = StatxWords {
        mask: STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID,
        block_size: status.block_size,
        attributes: u64::from(status.attributes) | if status.mount_root { STATX_ATTR_MOUNT_ROOT } else { 0 },
        links: status.links,
        user: space.shown_user(status.user),
        group: space.shown_group(status.group),
        mode: status.mode as u16,
        padding: 0,
        inode: status.inode,
        size: status.size,
        blocks: status.blocks,
        attributes_mask: STATX_ATTR_GENERIC | u64::from(status.attributes_known),
        accessed: status.accessed.into(),
        born: status.born.into(),
        changed: status.changed.into(),
        modified: status.modified.into(),
        special_major: status.special.major,
        special_minor: status.special.minor,
        device_major: status.device.major,
        device_minor: status.device.minor,
        mount_id: status.mount_id,
        direct_memory_align: 0,
        direct_offset_align: 0,
        spare: [0; 12],
    };
    UserPointer::new(out).write(&words)?;
    Ok(0)
}

/// Whether the caller may access a file, by the real ids.
pub fn access(task: &mut Task, path: u64, mode: u32) -> SysResult {
    access_at(task, AT_FDCWD, path, mode, 0)
}

/// Whether the caller may access a file relative to a directory, by the real ids.
pub fn faccessat(task: &mut Task, directory: i32, path: u64, mode: u32) -> SysResult {
    access_at(task, directory, path, mode, 0)
}

/// Whether the caller may access a file relative to a directory.
pub fn faccessat2(task: &mut Task, directory: i32, path: u64, mode: u32, flags: u32) -> SysResult {
    access_at(task, directory, path, mode, flags)
}

#[inline(never)]
fn access_at(task: &Task, directory: i32, path: u64, mode: u32, flags: u32) -> SysResult {
    if flags & !(AT_EACCESS | AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let access = Access::from_bits(mode).ok_or(Errno::EINVAL)?;
    let path = UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?;
    let real = if flags & AT_EACCESS == 0 { Some(task.credentials.file_with_real_ids()) } else { None };
    let lookup = lookup_flags(flags);
    task.with_places(directory, &path, |context, start, path| {
        let context =
            vfs::walk::PathContext { credentials: real.as_ref().unwrap_or(context.credentials), ..*context };
        context.access(start, path, access, lookup)?;
        Ok(0)
    })
}
