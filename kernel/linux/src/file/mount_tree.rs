//! Trees of mounts by descriptor: open_tree(2), move_mount(2), mount_setattr(2).

use vfs::flags::{LookupFlags, MountFlags};
use vfs::mount::{AttributeChange, MountSource, Propagation};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::{AT_EMPTY_PATH, AT_NO_AUTOMOUNT, AT_SYMLINK_NOFOLLOW};
use super::mount::{check_bound_namespace, check_privilege, propagation};
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const OPEN_TREE_CLONE: u32 = 1;
const O_CLOEXEC: u32 = 0o2_000_000;
const AT_RECURSIVE: u32 = 0x8000;

const MOVE_MOUNT_F_SYMLINKS: u32 = 0x01;
const MOVE_MOUNT_F_AUTOMOUNTS: u32 = 0x02;
const MOVE_MOUNT_F_EMPTY_PATH: u32 = 0x04;
const MOVE_MOUNT_T_SYMLINKS: u32 = 0x10;
const MOVE_MOUNT_T_AUTOMOUNTS: u32 = 0x20;
const MOVE_MOUNT_T_EMPTY_PATH: u32 = 0x40;
const MOVE_MOUNT_SET_GROUP: u32 = 0x100;
const MOVE_MOUNT_FLAGS: u32 = MOVE_MOUNT_F_SYMLINKS
    | MOVE_MOUNT_F_AUTOMOUNTS
    | MOVE_MOUNT_F_EMPTY_PATH
    | MOVE_MOUNT_T_SYMLINKS
    | MOVE_MOUNT_T_AUTOMOUNTS
    | MOVE_MOUNT_T_EMPTY_PATH
    | MOVE_MOUNT_SET_GROUP;

/// Where a path leads to from a descriptor, an empty one too if that is allowed.
pub(super) fn place_at(
    task: &Task,
    directory: i32,
    path: u64,
    lookup: LookupFlags,
) -> Result<vfs::Path, Errno> {
    let path = UserPath::read(path)?;
    task.with_places(directory, &path, |context, start, path| Ok(context.walk(start, path, lookup)?))
}

fn lookup(follow: bool, empty: bool) -> LookupFlags {
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, follow);
    lookup.set(LookupFlags::EMPTY_PATH, empty);
    lookup
}

/// A descriptor of a place, or of a copy of the mounts there that is attached nowhere.
#[inline(never)]
pub fn open_tree(task: &mut Task, directory: i32, path: u64, flags: u32) -> SysResult {
    let known =
        AT_EMPTY_PATH | AT_NO_AUTOMOUNT | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW | OPEN_TREE_CLONE | O_CLOEXEC;
    let copies = flags & OPEN_TREE_CLONE != 0;
    if flags & !known != 0 || flags & (AT_RECURSIVE | OPEN_TREE_CLONE) == AT_RECURSIVE {
        return Err(Errno::EINVAL);
    }
    if copies {
        check_privilege(task)?;
    }
    let lookup = lookup(flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0);
    let place = place_at(task, directory, path, lookup)?;
    let places = task.file_system.places();
    let file = if copies {
        check_bound_namespace(&place, &places.namespace)?;
        places.namespace.detached_copy(&place, flags & AT_RECURSIVE != 0)?
    } else {
        task.path_context(&places).open_existing(place, vfs::OpenFlags::PATH)?
    };
    task.install_file(file, flags & O_CLOEXEC != 0)
}

/// Moves a mount, or attaches one that is attached nowhere.
#[inline(never)]
pub fn move_mount(
    task: &mut Task,
    from_directory: i32,
    from_path: u64,
    to_directory: i32,
    to_path: u64,
    flags: u32,
) -> SysResult {
    check_privilege(task)?;
    if flags & !MOVE_MOUNT_FLAGS != 0 {
        return Err(Errno::EINVAL);
    }
    let has = |flag: u32| flags & flag != 0;
    let from = lookup(has(MOVE_MOUNT_F_SYMLINKS), has(MOVE_MOUNT_F_EMPTY_PATH));
    let to = lookup(has(MOVE_MOUNT_T_SYMLINKS), has(MOVE_MOUNT_T_EMPTY_PATH));
    let from = place_at(task, from_directory, from_path, from)?;
    let to = place_at(task, to_directory, to_path, to)?;
    let places = task.file_system.places();
    if has(MOVE_MOUNT_SET_GROUP) {
        places.namespace.copy_propagation(&from, &to)?;
    } else {
        places.namespace.mount(MountSource::Move { source: &from }, &to, MountFlags::empty())?;
    }
    Ok(0)
}

/// `struct mount_attr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    users: u64,
}

/// Bytes of the first version of the structure.
const ATTRIBUTES_BYTES: usize = 32;
const _: () = assert!(size_of::<MountAttributes>() == ATTRIBUTES_BYTES);

/// The bits that say how times of access are kept; they are a number, not flags.
const MOUNT_ATTR_TIMES: u64 = 0x70;
const MOUNT_ATTR_NOATIME: u64 = 0x10;
const MOUNT_ATTR_STRICTATIME: u64 = 0x20;

/// `MOUNT_ATTR_*` and what they are here.
const ATTRIBUTES: [(u64, MountFlags); 6] = [
    (0x01, MountFlags::READ_ONLY),
    (0x02, MountFlags::NO_SET_ID),
    (0x04, MountFlags::NO_DEVICES),
    (0x08, MountFlags::NO_EXECUTE),
    (0x80, MountFlags::NO_DIRECTORY_ACCESS_TIME),
    (0x20_0000, MountFlags::NO_LINKS),
];

/// Flags for all but times of access.
fn plain_flags(bits: u64) -> Result<MountFlags, Errno> {
    let mut left = bits & !MOUNT_ATTR_TIMES;
    let mut flags = MountFlags::empty();
    for (bit, flag) in ATTRIBUTES {
        if left & bit != 0 {
            flags |= flag;
            left &= !bit;
        }
    }
    if left == 0 { Ok(flags) } else { Err(Errno::EINVAL) }
}

fn times(bits: u64) -> Result<MountFlags, Errno> {
    match bits & MOUNT_ATTR_TIMES {
        0 => Ok(MountFlags::RELATIVE_ACCESS_TIME),
        MOUNT_ATTR_NOATIME => Ok(MountFlags::NO_ACCESS_TIME),
        MOUNT_ATTR_STRICTATIME => Ok(MountFlags::STRICT_ACCESS_TIME),
        _ => Err(Errno::EINVAL),
    }
}

/// The flags of a new mount.
///
/// # Errors
/// EINVAL.
pub(super) fn attribute_flags(bits: u64) -> Result<MountFlags, Errno> {
    Ok(plain_flags(bits)? | times(bits)?)
}

impl MountAttributes {
    fn change(&self, recursive: bool) -> Result<AttributeChange, Errno> {
        let propagation: Option<Propagation> = match self.propagation {
            0 => None,
            flags => Some(propagation(flags).map_err(|_| Errno::EINVAL)?),
        };
        let (mut set, mut clear) = (plain_flags(self.set)?, plain_flags(self.clear)?);
        match self.clear & MOUNT_ATTR_TIMES {
            0 if self.set & MOUNT_ATTR_TIMES == 0 => {}
            MOUNT_ATTR_TIMES => {
                clear |= MountFlags::NO_ACCESS_TIME
                    | MountFlags::RELATIVE_ACCESS_TIME
                    | MountFlags::STRICT_ACCESS_TIME;
                set |= times(self.set)?;
            }
            _ => return Err(Errno::EINVAL),
        }
        Ok(AttributeChange { clear, set, propagation, recursive })
    }
}

/// Reads the structure; what a later version has must be zero.
fn read_attributes(address: u64, bytes: usize) -> Result<MountAttributes, Errno> {
    let attributes = UserPointer::<MountAttributes>::new(address).read()?;
    let beyond = address.checked_add(ATTRIBUTES_BYTES as u64).ok_or(Errno::EFAULT)?;
    let mut rest = memory::fallible::try_vec_of(0u8, bytes - ATTRIBUTES_BYTES).map_err(|_| Errno::ENOMEM)?;
    crate::user_pointer::read_bytes(beyond, &mut rest)?;
    if rest.iter().any(|&byte| byte != 0) { Err(Errno::E2BIG) } else { Ok(attributes) }
}

/// Changes properties of a mount, or of all below it too.
#[inline(never)]
pub fn mount_setattr(
    task: &mut Task,
    directory: i32,
    path: u64,
    flags: u32,
    attributes: u64,
    bytes: usize,
) -> SysResult {
    if flags & !(AT_EMPTY_PATH | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) != 0 {
        return Err(Errno::EINVAL);
    }
    if bytes > machine::address::PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    if bytes < ATTRIBUTES_BYTES {
        return Err(Errno::EINVAL);
    }
    check_privilege(task)?;
    let attributes = read_attributes(attributes, bytes)?;
    if attributes.set | attributes.clear | attributes.propagation == 0 {
        return Ok(0);
    }
    let change = attributes.change(flags & AT_RECURSIVE != 0)?;
    let lookup = lookup(flags & AT_SYMLINK_NOFOLLOW == 0, flags & AT_EMPTY_PATH != 0);
    let place = place_at(task, directory, path, lookup)?;
    task.file_system.places().namespace.set_attributes(&place, &change)?;
    Ok(0)
}
