//! File systems as a whole: statfs(2), and the kinds that there are: sysfs(2).

use vfs::flags::{LookupFlags, MountFlags};
use vfs::mount::Mount;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::directory::place_of;
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::{UserPointer, write_bytes};

/// `struct statfs`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StatfsWords {
    magic: u64,
    block_size: u64,
    blocks: u64,
    blocks_free: u64,
    blocks_available: u64,
    files: u64,
    files_free: u64,
    id: u64,
    name_length: u64,
    fragment_size: u64,
    flags: u64,
    spare: [u64; 4],
}
const _: () = assert!(size_of::<StatfsWords>() == 120);

/// The flags field is filled in.
const ST_VALID: u64 = 0x20;

fn put(out: u64, mount: &Mount) -> SysResult {
    let superblock = mount.superblock();
    let status = superblock.status_for_caller()?;
    let flags = mount.flags();
    // Bits whose ST_* value differs from their MS_* value.
    let mut shown = u64::from(
        (flags
            & (MountFlags::READ_ONLY
                | MountFlags::NO_SET_ID
                | MountFlags::NO_DEVICES
                | MountFlags::NO_EXECUTE
                | MountFlags::SYNCHRONOUS))
            .bits(),
    );
    for (flag, bit) in [
        (MountFlags::NO_ACCESS_TIME, 0x400),
        (MountFlags::NO_DIRECTORY_ACCESS_TIME, 0x800),
        (MountFlags::RELATIVE_ACCESS_TIME, 0x1000),
        (MountFlags::NO_LINKS, 0x2000),
    ] {
        if flags.contains(flag) {
            shown |= bit;
        }
    }
    if superblock.read_only() {
        shown |= 1;
    }
    let words = StatfsWords {
        magic: superblock.magic(),
        block_size: status.block_size,
        blocks: status.blocks,
        blocks_free: status.blocks_free,
        blocks_available: status.blocks_available,
        files: status.files,
        files_free: status.files_free,
        id: status.id,
        name_length: status.name_length,
        fragment_size: status.block_size,
        flags: shown | ST_VALID,
        spare: [0; 4],
    };
    UserPointer::new(out).write(&words)?;
    Ok(0)
}

/// The file system that a path lies in.
#[inline(never)]
pub fn statfs(task: &mut Task, path: u64, out: u64) -> SysResult {
    let place = place_of(task, &UserPath::read(path)?, LookupFlags::FOLLOW)?;
    put(out, &place.mount)
}

/// The file system that an open file lies in.
#[inline(never)]
pub fn fstatfs(task: &mut Task, descriptor: i32, out: u64) -> SysResult {
    let file = task.lent_file(descriptor)?;
    put(out, &file.path_or_detached()?.mount)
}

/// `struct ustat`. What the file system is called is nowhere filled in.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct UstatWords {
    blocks_free: u32,
    padding: u32,
    files_free: u64,
    names: [u8; 16],
}

/// What is free on a file system that is mounted, by its device.
#[inline(never)]
pub fn ustat(task: &mut Task, device: u32, out: u64) -> SysResult {
    let wanted = vfs::DeviceNumber::decode(device.into());
    let superblock = task.file_system.places().namespace.superblock_of(wanted)?.ok_or(Errno::EINVAL)?;
    let status = superblock.status();
    let words = UstatWords {
        blocks_free: status.blocks_free as u32,
        padding: 0,
        files_free: status.files_free,
        names: [0; 16],
    };
    UserPointer::new(out).write(&words)?;
    Ok(0)
}

/// Kinds of file systems: the number of one, the name of one, how many there are.
#[inline(never)]
pub fn sysfs(_task: &mut Task, option: i32, first: u64, second: u64) -> SysResult {
    let mut count = 0;
    let mut found = Err(Errno::EINVAL);
    match option {
        1 => {
            let name = UserPath::read(first)?;
            vfs::superblock::for_each_file_system(|file_system| {
                if file_system.name().as_bytes() == name.as_bytes() {
                    found = Ok(count);
                }
                count += 1;
            });
            found
        }
        2 => {
            vfs::superblock::for_each_file_system(|file_system| {
                if count as u64 == first {
                    found = write_bytes(second, file_system.name().as_bytes())
                        .and_then(|()| write_bytes(second + file_system.name().len() as u64, &[0]))
                        .map(|()| 0);
                }
                count += 1;
            });
            found
        }
        3 => {
            vfs::superblock::for_each_file_system(|_| count += 1);
            Ok(count)
        }
        _ => Err(Errno::EINVAL),
    }
}
