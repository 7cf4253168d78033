//! Mounting: mount(2), umount2(2), pivot_root(2).

use alloc::sync::Arc;
use alloc::vec::Vec;

use block::registry::{BlockDevice, DeviceNumber};

use vfs::Capabilities;
use vfs::UserSpace;
use vfs::flags::{LookupFlags, MountFlags, UnmountFlags};
use vfs::mount::{MountNamespace, MountSource, Path, Propagation, policy};
use vfs::superblock::{FileSystemType, MountedBy, Superblock, mount_device};

use super::directory::place_of;
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::read_bytes;

const MS_REMOUNT: u64 = 32;
const MS_BIND: u64 = 4096;
const MS_MOVE: u64 = 8192;
const MS_REC: u64 = 16384;
const MS_UNBINDABLE: u64 = 1 << 17;
const MS_PRIVATE: u64 = 1 << 18;
const MS_SLAVE: u64 = 1 << 19;
const MS_SHARED: u64 = 1 << 20;
const MS_MGC_VALUE: u64 = 0xc0ed_0000;
const MS_MGC_MASK: u64 = 0xffff_0000;
const PROPAGATION: u64 = MS_UNBINDABLE | MS_PRIVATE | MS_SLAVE | MS_SHARED;

/// Bytes of mount options: one page.
const OPTIONS_BYTES: usize = 4096;

pub(super) fn check_privilege(task: &Task) -> Result<(), Errno> {
    task.credentials.require_in(task.file_system.places().namespace.owner(), Capabilities::SYS_ADMIN)
}

/// Whether the caller may change mounts only as a normal user may, in a name space that is private to him.
///
/// # Errors
/// EPERM when he may not at all.
fn acts_as_user(task: &Task) -> Result<bool, Errno> {
    let privileged = check_privilege(task);
    let private_to = task.file_system.places().namespace.user();
    let own = policy::user_mounts() && private_to == Some(task.credentials.user.effective);
    if privileged.is_err() && own { Ok(true) } else { privileged.map(|()| false) }
}

/// A normal user covers only what he may write.
///
/// # Errors
/// EPERM.
fn check_covered(task: &Task, target: &Path) -> Result<(), Errno> {
    const STICKY: u32 = 0o1000;
    let inode = target.inode()?;
    let sticky = inode.kind == vfs::FileKind::Directory && inode.mode() & STICKY != 0;
    let writable = vfs::permission::check_access(inode, vfs::Access::WRITE, &task.credentials.file);
    if writable.is_err() || sticky && policy::user_mounts_sticky() { Err(Errno::EPERM) } else { Ok(()) }
}

/// The name space of users that a new instance of a file system belongs to, if the caller may make one; none for an instance that is there already, whoever
/// mounts it.
fn owner_of_new(task: &Task, file_system: &dyn FileSystemType) -> Result<Option<UserSpace>, Errno> {
    let own = task.credentials.space();
    let (owner, over) = match file_system.mounted_by() {
        MountedBy::Administrator => (None, UserSpace::FIRST),
        MountedBy::OwnersOfContent => match task.process().space() {
            Some(space) if file_system.name() == "proc" => (Some(space.owner().clone()), space.owner()),
            _ if file_system.name() == "mqueue" => {
                let owner = task.ipc_space().owner();
                (Some(owner.clone()), owner)
            }
            _ if file_system.name() == "sysfs" => (None, task.network().owner()),
            _ => (None, UserSpace::FIRST),
        },
        MountedBy::Everybody => (None, own),
        MountedBy::Users => (Some(own.clone()), own),
    };
    if file_system.is_safe_for_users() && acts_as_user(task) == Ok(true) {
        return Ok(None);
    }
    task.credentials.require_in(over, Capabilities::SYS_ADMIN)?;
    Ok(owner)
}

/// The option string: what is readable of a page, up to the terminator.
fn read_options(address: u64) -> Result<Vec<u8>, Errno> {
    if address == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = memory::fallible::try_vec_of(0, OPTIONS_BYTES).map_err(|_| Errno::ENOMEM)?;
    let in_page = OPTIONS_BYTES - (address as usize % OPTIONS_BYTES);
    if read_bytes(address, &mut bytes).is_err() {
        bytes.truncate(in_page);
        read_bytes(address, &mut bytes)?;
    }
    let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len() - 1);
    bytes.truncate(length);
    Ok(bytes)
}

/// Mounts a file system, binds, moves or changes a mount.
#[inline(never)]
pub fn mount(task: &mut Task, source: u64, target: u64, kind: u64, flags: u64, options: u64) -> SysResult {
    let kind = if kind == 0 { None } else { Some(UserPath::read(kind)?) };
    let source = if source == 0 { None } else { Some(UserPath::read(source)?) };
    let options = read_options(options)?;
    let target = UserPath::read(target)?;
    let flags = if flags & MS_MGC_MASK == MS_MGC_VALUE { flags & !MS_MGC_MASK } else { flags };
    let target = place_of(task, &target, LookupFlags::FOLLOW)?;
    let as_user = acts_as_user(task)?;
    if as_user && flags & (MS_REMOUNT | PROPAGATION) == 0 {
        check_covered(task, &target)?;
    }
    let places = task.file_system.places();
    let namespace = &places.namespace;
    let recursive = flags & MS_REC != 0;
    let mount_flags = mount_flags(flags);
    let source_place = |task: &Task| match &source {
        Some(source) => place_of(task, source, LookupFlags::FOLLOW),
        None => Err(Errno::EINVAL),
    };
    if flags & MS_REMOUNT != 0 {
        let file_system = if flags & MS_BIND == 0 { Some(options.as_slice()) } else { None };
        if file_system.is_some() {
            task.credentials.require_in(target.mount.superblock().owner(), Capabilities::SYS_ADMIN)?;
        }
        namespace.remount(&target, mount_flags, file_system)?;
    } else if flags & MS_BIND != 0 {
        let source = source_place(task)?;
        check_bound_namespace(&source, namespace)?;
        namespace.mount(MountSource::Bind { source: &source, recursive }, &target, mount_flags)?;
    } else if flags & PROPAGATION != 0 {
        namespace.set_propagation(&target, propagation(flags)?, recursive)?;
    } else if flags & MS_MOVE != 0 {
        let source = source_place(task)?;
        namespace.mount(MountSource::Move { source: &source }, &target, mount_flags)?;
    } else {
        let kind = kind.ok_or(Errno::EINVAL)?;
        let file_system = vfs::superblock::find_file_system(kind.as_bytes())?;
        let name = source.as_ref().map_or(&b"none"[..], |source| source.as_bytes());
        let made = source.as_ref().map(|source| source.as_bytes());
        let read_only = mount_flags.contains(MountFlags::READ_ONLY);
        let superblock = instance_of(task, file_system, made, &options, read_only)?;
        if let Some(subtype) = vfs::superblock::subtype_of(kind.as_bytes()) {
            superblock.set_subtype(subtype)?;
        }
        if superblock.is_on_device() {
            // What is mounted there already is not mounted on itself; a bind may do that.
            let place = target.clone().onto_mounts();
            if Arc::ptr_eq(place.mount.superblock(), &superblock) && place.is_mount_root() {
                return Err(Errno::EBUSY);
            }
        }
        namespace.mount(MountSource::Made { superblock, source: name }, &target, mount_flags)?;
    }
    Ok(0)
}

/// An instance of a file system with these options: a new one, or that of its device.
///
/// # Errors
/// Those of the file system; those of the walk to the device, EINVAL when none is named.
pub(super) fn instance_of(
    task: &Task,
    file_system: &'static dyn FileSystemType,
    source: Option<&[u8]>,
    options: &[u8],
    read_only: bool,
) -> Result<Arc<Superblock>, Errno> {
    let owner = owner_of_new(task, file_system)?;
    let places = task.file_system.places();
    let context = task.path_context(&places);
    if file_system.needs_device() {
        let place = context.walk(&places.cwd, source.ok_or(Errno::EINVAL)?, LookupFlags::FOLLOW)?;
        return Ok(mount_device(file_system, &device_at(&place)?, read_only, options)?);
    }
    let superblock = file_system.mount_at(&context, source.unwrap_or(b"none"), options)?;
    if let Some(owner) = &owner {
        superblock.set_owner(owner);
    }
    Ok(superblock)
}

/// A name space of mounts is kept by older ones only: there is no circle of name spaces that keep each other.
pub(super) fn check_bound_namespace(source: &Path, binding: &MountNamespace) -> Result<(), Errno> {
    match source.inode()?.operations().mount_namespace() {
        Some(bound) if bound.id() <= binding.id() => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

/// The block device whose node is at a place.
fn device_at(place: &Path) -> Result<Arc<BlockDevice>, Errno> {
    let inode = place.inode()?;
    if inode.kind != vfs::FileKind::BlockDevice {
        return Err(Errno::ENOTBLK);
    }
    if place.mount.flags().contains(MountFlags::NO_DEVICES) {
        return Err(Errno::EACCES);
    }
    let number = DeviceNumber { major: inode.special.major, minor: inode.special.minor };
    block::registry::find(number).ok_or(Errno::ENXIO)
}

fn mount_flags(flags: u64) -> MountFlags {
    let mut wanted = MountFlags::from_bits_truncate(flags as u32);
    let explicit = MountFlags::NO_ACCESS_TIME | MountFlags::STRICT_ACCESS_TIME;
    if !wanted.intersects(explicit) {
        wanted |= MountFlags::RELATIVE_ACCESS_TIME;
    }
    wanted
}

pub(super) fn propagation(flags: u64) -> Result<Propagation, Errno> {
    match flags & PROPAGATION {
        MS_PRIVATE => Ok(Propagation::Private),
        MS_SHARED => Ok(Propagation::Shared),
        MS_SLAVE => Ok(Propagation::Slave),
        MS_UNBINDABLE => Ok(Propagation::Unbindable),
        _ => Err(Errno::EINVAL),
    }
}

/// Unmounts a file system.
#[inline(never)]
pub fn umount2(task: &mut Task, target: u64, flags: u32) -> SysResult {
    let flags = UnmountFlags::from_bits(flags).ok_or(Errno::EINVAL)?;
    let target = UserPath::read(target)?;
    let follow =
        if flags.contains(UnmountFlags::NO_FOLLOW) { LookupFlags::empty() } else { LookupFlags::FOLLOW };
    let place = place_of(task, &target, follow)?;
    acts_as_user(task)?;
    let places = task.file_system.places();
    // What is mounted on a directory that somebody stands in is meant, though `.` does not lead there (pivot_root(2) takes the old root away so).
    places.namespace.unmount(place.onto_mounts(), flags, &places.root)?;
    Ok(0)
}

/// Exchanges the root mount.
#[inline(never)]
pub fn pivot_root(task: &mut Task, new_root: u64, put_old: u64) -> SysResult {
    check_privilege(task)?;
    let (new_root, put_old) = (UserPath::read(new_root)?, UserPath::read(put_old)?);
    let flags = LookupFlags::FOLLOW | LookupFlags::DIRECTORY;
    let (new_root, put_old) = (place_of(task, &new_root, flags)?, place_of(task, &put_old, flags)?);
    let places = task.file_system.places();
    places.namespace.pivot_root(&new_root, &put_old, &places.root)?;
    crate::process::table::for_each_file_system_context(|context| {
        context.move_root(&places.root, &new_root)
    })?;
    crate::helper::move_root(&places.root, &new_root)?;
    Ok(0)
}
