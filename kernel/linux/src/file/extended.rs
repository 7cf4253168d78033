//! Extended attributes.

use alloc::sync::Arc;
use alloc::vec::Vec;

use vfs::flags::LookupFlags;
use vfs::inode::SetAttribute;
use vfs::{Inode, OpenFile, Path};

use super::directory::place_of;
use super::path::UserPath;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::{read_bytes, write_bytes};

/// Longest name with its terminator.
const NAME_MAX: usize = 256;
/// Largest value.
const VALUE_MAX: usize = 65536;

/// Whose attribute: reached by a path or a descriptor.
struct Target {
    inode: Arc<Inode>,
    place: Option<Path>,
}

impl Target {
    fn at(task: &Task, path: u64, follow: bool) -> Result<Target, Errno> {
        let flags = if follow { LookupFlags::FOLLOW } else { LookupFlags::empty() };
        let place = place_of(task, &UserPath::read(path)?, flags)?;
        Ok(Target { inode: place.inode()?.clone(), place: Some(place) })
    }

    fn open(task: &Task, descriptor: i32) -> Result<Target, Errno> {
        Ok(Target::of(&*task.lent_usable_file(descriptor)?))
    }

    fn of(file: &OpenFile) -> Target {
        Target { inode: file.inode().clone(), place: file.path().cloned() }
    }

    fn check_writable(&self) -> Result<(), Errno> {
        match &self.place {
            Some(place) => Ok(place.mount.writable()?),
            None => Ok(()),
        }
    }
}

fn read_name(address: u64) -> Result<Vec<u8>, Errno> {
    let mut bytes = memory::fallible::try_vec_of(0, NAME_MAX).map_err(|_| Errno::ENOMEM)?;
    let start = machine::address::UserAddr::new(address);
    match machine::user_memory::read_string(&mut bytes, start) {
        Ok(0) | Err(machine::user_memory::StringError::TooLong) => Err(Errno::ERANGE),
        Ok(length) => {
            bytes.truncate(length);
            Ok(bytes)
        }
        Err(machine::user_memory::StringError::Fault) => Err(Errno::EFAULT),
    }
}

#[inline(never)]
fn get(task: &Task, target: &Target, name: u64, value: u64, size: usize) -> SysResult {
    let name = read_name(name)?;
    let mut buffer = memory::fallible::try_vec_of(0, size.min(VALUE_MAX)).map_err(|_| Errno::ENOMEM)?;
    let length = vfs::tree::get_attribute(&target.inode, &name, &mut buffer, &task.credentials.file)?;
    if size != 0 {
        write_bytes(value, &buffer[..length])?;
    }
    Ok(length)
}

#[inline(never)]
fn set(task: &Task, target: &Target, name: u64, value: u64, size: usize, flags: u32) -> SysResult {
    let how = match flags {
        0 => SetAttribute::Any,
        1 => SetAttribute::Create,
        2 => SetAttribute::Replace,
        _ => return Err(Errno::EINVAL),
    };
    if size > VALUE_MAX {
        return Err(Errno::E2BIG);
    }
    let name = read_name(name)?;
    let mut bytes = memory::fallible::try_vec_of(0, size).map_err(|_| Errno::ENOMEM)?;
    read_bytes(value, &mut bytes)?;
    target.check_writable()?;
    vfs::tree::set_attribute(&target.inode, &name, &bytes, how, &task.credentials.file)?;
    Ok(0)
}

#[inline(never)]
fn list(task: &Task, target: &Target, buffer: u64, size: usize) -> SysResult {
    let names = vfs::tree::list_attributes(&target.inode, &task.credentials.file)?;
    if size != 0 {
        if names.len() > size {
            return Err(Errno::ERANGE);
        }
        write_bytes(buffer, &names)?;
    }
    Ok(names.len())
}

#[inline(never)]
fn remove(task: &Task, target: &Target, name: u64) -> SysResult {
    let name = read_name(name)?;
    target.check_writable()?;
    vfs::tree::remove_attribute(&target.inode, &name, &task.credentials.file)?;
    Ok(0)
}

/// Reads an extended attribute.
pub fn getxattr(task: &mut Task, path: u64, name: u64, value: u64, size: usize) -> SysResult {
    get(task, &Target::at(task, path, true)?, name, value, size)
}

/// Reads an extended attribute of a file or symbolic link.
pub fn lgetxattr(task: &mut Task, path: u64, name: u64, value: u64, size: usize) -> SysResult {
    get(task, &Target::at(task, path, false)?, name, value, size)
}

/// Reads an extended attribute of an open file.
pub fn fgetxattr(task: &mut Task, descriptor: i32, name: u64, value: u64, size: usize) -> SysResult {
    get(task, &Target::open(task, descriptor)?, name, value, size)
}

/// The same, of what is open without a descriptor.
pub(crate) fn get_of_file(task: &Task, file: &OpenFile, name: u64, value: u64, size: usize) -> SysResult {
    get(task, &Target::of(file), name, value, size)
}

/// Sets an extended attribute.
pub fn setxattr(task: &mut Task, path: u64, name: u64, value: u64, size: usize, flags: u32) -> SysResult {
    set(task, &Target::at(task, path, true)?, name, value, size, flags)
}

/// Sets an extended attribute of a file or symbolic link.
pub fn lsetxattr(task: &mut Task, path: u64, name: u64, value: u64, size: usize, flags: u32) -> SysResult {
    set(task, &Target::at(task, path, false)?, name, value, size, flags)
}

/// Sets an extended attribute of an open file.
pub fn fsetxattr(
    task: &mut Task,
    descriptor: i32,
    name: u64,
    value: u64,
    size: usize,
    flags: u32,
) -> SysResult {
    set(task, &Target::open(task, descriptor)?, name, value, size, flags)
}

/// The same, of what is open without a descriptor.
pub(crate) fn set_of_file(
    task: &Task,
    file: &OpenFile,
    name: u64,
    value: u64,
    size: usize,
    flags: u32,
) -> SysResult {
    set(task, &Target::of(file), name, value, size, flags)
}

/// Lists the names of the extended attributes.
pub fn listxattr(task: &mut Task, path: u64, buffer: u64, size: usize) -> SysResult {
    list(task, &Target::at(task, path, true)?, buffer, size)
}

/// Lists the names of the extended attributes of a file or symbolic link.
pub fn llistxattr(task: &mut Task, path: u64, buffer: u64, size: usize) -> SysResult {
    list(task, &Target::at(task, path, false)?, buffer, size)
}

/// Lists the names of the extended attributes of an open file.
pub fn flistxattr(task: &mut Task, descriptor: i32, buffer: u64, size: usize) -> SysResult {
    list(task, &Target::open(task, descriptor)?, buffer, size)
}

/// Removes an extended attribute.
pub fn removexattr(task: &mut Task, path: u64, name: u64) -> SysResult {
    remove(task, &Target::at(task, path, true)?, name)
}

/// Removes an extended attribute of a file or symbolic link.
pub fn lremovexattr(task: &mut Task, path: u64, name: u64) -> SysResult {
    remove(task, &Target::at(task, path, false)?, name)
}

/// Removes an extended attribute of an open file.
pub fn fremovexattr(task: &mut Task, descriptor: i32, name: u64) -> SysResult {
    remove(task, &Target::open(task, descriptor)?, name)
}
