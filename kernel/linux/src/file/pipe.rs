//! Making pipes.

use vfs::flags::OpenFlags;

use super::context::descriptor_flags;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Makes a pipe.
pub fn pipe(task: &mut Task, descriptors: u64) -> SysResult {
    pipe2(task, descriptors, 0)
}

/// Makes a pipe with flags. O_NOTIFICATION_PIPE is EINVAL.
#[inline(never)]
pub fn pipe2(task: &mut Task, descriptors: u64, flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCK | OpenFlags::DIRECT;
    let flags = OpenFlags::from_bits(flags).filter(|flags| known.contains(*flags)).ok_or(Errno::EINVAL)?;
    let (reader, writer) = vfs::pipe::create_pipe(flags, &task.credentials.file)?;
    let limit = task.descriptor_limit();
    let (first, second) = (task.files.reserve(limit)?, task.files.reserve(limit)?);
    let pair = [first.descriptor() as i32, second.descriptor() as i32];
    UserPointer::<[i32; 2]>::new(descriptors).write(&pair)?;
    let descriptor_flags = descriptor_flags(flags.contains(OpenFlags::CLOSE_ON_EXEC));
    first.install(reader, descriptor_flags);
    second.install(writer, descriptor_flags);
    Ok(0)
}
