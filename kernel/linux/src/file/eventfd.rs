//! Event counters.

use vfs::flags::OpenFlags;

use crate::errno::{Errno, SysResult};
use crate::task::Task;

const EFD_SEMAPHORE: u32 = 1;

/// Makes an event counter.
pub fn eventfd(task: &mut Task, initial: u32) -> SysResult {
    eventfd2(task, initial, 0)
}

/// Makes an event counter with flags.
#[inline(never)]
pub fn eventfd2(task: &mut Task, initial: u32, flags: u32) -> SysResult {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCK;
    if flags & !(known.bits() | EFD_SEMAPHORE) != 0 {
        return Err(Errno::EINVAL);
    }
    let status = OpenFlags::from_bits_truncate(flags & known.bits());
    let file = vfs::eventfd::create(initial, flags & EFD_SEMAPHORE != 0, status)?;
    task.install_file(file, status.contains(OpenFlags::CLOSE_ON_EXEC))
}
