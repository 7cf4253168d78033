//! File handles: name_to_handle_at(2), open_by_handle_at(2).

use vfs::Capabilities;
use vfs::flags::{LookupFlags, OpenFlags};
use vfs::handle::FileHandle;

use super::context::{AT_EMPTY_PATH, AT_FDCWD, descriptor_flags};
use super::open::how_of;
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

const AT_SYMLINK_FOLLOW: u32 = 0x400;
/// `MAX_HANDLE_SZ`
const BYTES_MAX: u32 = 128;
/// Length and kind.
const HEAD_BYTES: u64 = 8;
/// `FILEID_INVALID`
const NO_KIND: u32 = 0xff;

/// Makes a handle of a file.
#[inline(never)]
pub fn name_to_handle_at(
    task: &mut Task,
    directory: i32,
    path: u64,
    handle: u64,
    mount: u64,
    flags: u32,
) -> SysResult {
    if flags & !(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH) != 0 {
        return Err(Errno::EINVAL);
    }
    let path = UserPath::read_or_empty(path, flags & AT_EMPTY_PATH != 0)?;
    if path.as_bytes().is_empty() && flags & AT_EMPTY_PATH == 0 {
        return Err(Errno::ENOENT);
    }
    let mut lookup = LookupFlags::empty();
    lookup.set(LookupFlags::FOLLOW, flags & AT_SYMLINK_FOLLOW != 0);
    let place = if path.as_bytes().is_empty() && directory != AT_FDCWD {
        task.start_of(directory)?
    } else if path.as_bytes().is_empty() {
        task.file_system.places().cwd.clone()
    } else {
        task.with_places(directory, &path, |context, start, path| Ok(context.walk(start, path, lookup)?))?
    };
    let superblock = place.mount.superblock();
    let handles = superblock.operations().handles().ok_or(Errno::EOPNOTSUPP)?;
    let room = UserPointer::<u32>::new(handle).read()?;
    if room > BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    let made = handles.encode(place.inode()?, Some(&place.dentry))?;
    let length = made.as_bytes().len() as u32;
    let fits = length <= room;
    let kind = if fits { made.kind() as u32 } else { NO_KIND };
    UserPointer::new(mount).write(&(place.mount.id() as i32))?;
    UserPointer::new(handle).write(&[length, kind])?;
    if !fits {
        return Err(Errno::EOVERFLOW);
    }
    write_bytes(handle + HEAD_BYTES, made.as_bytes())?;
    Ok(0)
}

/// Opens the file that a handle is of.
#[inline(never)]
pub fn open_by_handle_at(task: &mut Task, mount: i32, handle: u64, flags: u32) -> SysResult {
    if !task.credentials.has(Capabilities::DAC_READ_SEARCH) {
        return Err(Errno::EPERM);
    }
    let [length, kind] = UserPointer::<[u32; 2]>::new(handle).read()?;
    if length == 0 || length > BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; BYTES_MAX as usize];
    let bytes = &mut bytes[..length as usize];
    read_bytes(handle + HEAD_BYTES, bytes)?;
    let places = task.file_system.places();
    let mount = match mount {
        AT_FDCWD => places.cwd.mount.clone(),
        descriptor => task.lent_usable_file(descriptor)?.path_or_detached()?.mount,
    };
    let handle = FileHandle::new(kind as i32, bytes)?;
    let how = how_of(flags, 0)?;
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let file = task.path_context(&places).open_by_handle(&mount, &handle, how.flags)?;
    let close_on_exec = how.flags.contains(OpenFlags::CLOSE_ON_EXEC);
    Ok(reserved.install(file, descriptor_flags(close_on_exec)) as usize)
}
