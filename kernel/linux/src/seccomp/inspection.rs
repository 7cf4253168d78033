//! What a tracer may see of a thread's filters: `PTRACE_SECCOMP_GET_FILTER`, `PTRACE_SECCOMP_GET_METADATA`.

use vfs::Capabilities;

use super::{Restriction, filter::Filter};
use crate::abi::FilterInstruction;
use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::{UserPointer, write_bytes};
use alloc::sync::Arc;

/// A thread's filter by its number, if the caller may see it: who can do everything and has none itself.
fn filter_of(task: &Task, thread: &Thread, index: u64) -> Result<Arc<Filter>, Errno> {
    if task.thread.is_filtered() || !task.credentials.has(Capabilities::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    let Restriction::Filters(last) = thread.restriction() else { return Err(Errno::EINVAL) };
    let index = usize::try_from(index).map_err(|_| Errno::ENOENT)?;
    last.at(index).cloned().ok_or(Errno::ENOENT)
}

/// Writes a filter's instructions, if the caller has room for them; returns how many they are.
pub(crate) fn show_filter(task: &Task, thread: &Thread, index: u64, to: u64) -> SysResult {
    let filter = filter_of(task, thread, index)?;
    let instructions = filter.program().instructions();
    if to != 0 {
        UserPointer::<FilterInstruction>::new(to).write_slice(instructions)?;
    }
    Ok(instructions.len())
}

/// Writes what else there is about a filter: flags, of which only one would be shown.
pub(crate) fn show_metadata(task: &Task, thread: &Thread, bytes: u64, at: u64) -> SysResult {
    const METADATA_BYTES: u64 = 16;
    const FLAGS_OFFSET: u64 = 8;
    if bytes < FLAGS_OFFSET {
        return Err(Errno::EINVAL);
    }
    let index = UserPointer::<u64>::new(at).read()?;
    let filter = filter_of(task, thread, index)?;
    let count = bytes.min(METADATA_BYTES);
    let flags = u64::from(filter.is_logged()) << 1;
    write_bytes(at.wrapping_add(FLAGS_OFFSET), &flags.to_le_bytes()[..(count - FLAGS_OFFSET) as usize])?;
    Ok(count as usize)
}
