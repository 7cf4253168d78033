//! ioctl(2): the requests that concern any file; the others go to the file.

use machine::address::UserAddr;
use vfs::file_flags::{self, ExtendedFlags, FlagChange};
use vfs::{FileKind, OpenFile};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::{descriptor_flags, descriptor_number};
use crate::errno::SysResult;
use crate::task::Task;
use crate::user_pointer::UserPointer;

const FIONCLEX: u32 = 0x5450;
const FIOCLEX: u32 = 0x5451;
const FIOASYNC: u32 = 0x5452;
const FIOQSIZE: u32 = 0x5460;
const FIONBIO: u32 = 0x5421;
const FIONREAD: u32 = 0x541b;
const FIGETBSZ: u32 = 2;
const FS_IOC_GETFLAGS: u32 = 0x8008_6601;
const FS_IOC_SETFLAGS: u32 = 0x4008_6602;
const FS_IOC_GETVERSION: u32 = 0x8008_7601;
const FS_IOC_FSGETXATTR: u32 = 0x801c_581f;
const FS_IOC_FSSETXATTR: u32 = 0x401c_5820;

/// Device-specific requests.
#[inline(never)]
pub fn ioctl(task: &mut Task, descriptor: i32, command: u32, argument: u64) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let number = descriptor_number(descriptor)?;
    match command {
        FIOCLEX | FIONCLEX => {
            task.files.set_flags(number, descriptor_flags(command == FIOCLEX))?;
            Ok(0)
        }
        FIONBIO => {
            file.set_non_block(UserPointer::<i32>::new(argument).read()? != 0);
            Ok(0)
        }
        FIOASYNC => {
            UserPointer::<i32>::new(argument).read()?;
            Ok(0)
        }
        FIOQSIZE if matches!(file.inode().kind, FileKind::Regular | FileKind::Directory) => {
            UserPointer::<u64>::new(argument).write(&file.inode().size())?;
            Ok(0)
        }
        FIGETBSZ if file.path().is_some() => {
            UserPointer::<i32>::new(argument).write(&(machine::address::PAGE_SIZE as i32))?;
            Ok(0)
        }
        FIONREAD if file.inode().kind == FileKind::Regular => {
            let left = file.inode().size().saturating_sub(file.position());
            UserPointer::<i32>::new(argument).write(&(left.min(i32::MAX as u64) as i32))?;
            Ok(0)
        }
        FS_IOC_GETFLAGS | FS_IOC_SETFLAGS | FS_IOC_GETVERSION | FS_IOC_FSGETXATTR | FS_IOC_FSSETXATTR => {
            flags(task, &file, command, argument)
        }
        _ => Ok(file.operations().ioctl(&file, command, UserAddr::new(argument))?),
    }
}

/// `struct fsxattr`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ExtendedWords {
    flags: u32,
    extent_bytes: u32,
    extents: u32,
    project: u32,
    copy_extent_bytes: u32,
    reserved: [u32; 2],
}
const _: () = assert!(size_of::<ExtendedWords>() == 28);

/// Flags of a file (ioctl_iflags(2)). They are of 32 bits, though the requests' numbers say 64.
#[cold]
#[inline(never)]
fn flags(task: &Task, file: &OpenFile, command: u32, argument: u64) -> SysResult {
    let (inode, words) = (file.inode(), UserPointer::<ExtendedWords>::new(argument));
    let wanted = match command {
        FS_IOC_SETFLAGS => FlagChange::Flags(UserPointer::new(argument).read()?),
        FS_IOC_FSSETXATTR => {
            let words = words.read()?;
            let (flags, project) = (words.flags, words.project);
            let (extent_bytes, copy_extent_bytes) = (words.extent_bytes, words.copy_extent_bytes);
            FlagChange::Extended(ExtendedFlags { flags, extent_bytes, project, copy_extent_bytes })
        }
        FS_IOC_FSGETXATTR => {
            let told = ExtendedFlags::from(file_flags::settings(inode)?);
            let (extent_bytes, copy_extent_bytes) = (told.extent_bytes, told.copy_extent_bytes);
            let (extents, reserved) = (0, [0; 2]);
            let (flags, project) = (told.flags, told.project);
            words.write(&ExtendedWords {
                flags,
                extent_bytes,
                extents,
                project,
                copy_extent_bytes,
                reserved,
            })?;
            return Ok(0);
        }
        _ => {
            let told = match command {
                FS_IOC_GETVERSION => inode.operations().generation()?,
                _ => file_flags::settings(inode)?.flags.bits(),
            };
            UserPointer::new(argument).write(&told)?;
            return Ok(0);
        }
    };
    file_flags::change(file.path(), inode, wanted, &task.credentials.file)?;
    Ok(0)
}
