//! ioctl(2): the requests that concern any file; the others go to the file.

use machine::address::UserAddr;
use vfs::FileKind;

use super::context::{descriptor_flags, descriptor_number};
use crate::errno::{Errno, SysResult};
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
        FS_IOC_GETFLAGS => Err(Errno::ENOTTY),
        _ => Ok(file.operations().ioctl(&file, command, UserAddr::new(argument))?),
    }
}
