//! process_madvise(2): advice about another process's memory. What can be said of others changes nothing that their programs could notice.

use machine::address::UserAddr;
use vfs::Capabilities;

use crate::abi::IoVector;
use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

const WILL_NEED: i32 = 3;
const COLD: i32 = 20;
const PAGE_OUT: i32 = 21;
const COLLAPSE: i32 = 25;

/// Tells what ranges of a process's memory will be used for.
#[inline(never)]
pub fn process_madvise(
    task: &mut Task,
    descriptor: i32,
    vector: u64,
    count: u64,
    number: i32,
    flags: u32,
) -> SysResult {
    const VECTORS_MAX: u64 = 1024;
    if flags != 0 || count > VECTORS_MAX {
        return Err(Errno::EINVAL);
    }
    let ranges = UserPointer::<IoVector>::new(vector).read_vector(count as usize)?;
    let process = crate::pidfd::process_of(task, descriptor)?;
    if !matches!(number, WILL_NEED | COLD | PAGE_OUT | COLLAPSE) {
        return Err(Errno::EINVAL);
    }
    let advice = crate::memory::advice(number).ok_or(Errno::EINVAL)?;
    // EACCES, unlike what the manual says and other calls answer.
    let inspected = Inspector::calling(task).inspect(&process, || process.address_space());
    let space = inspected.map_err(|_| Errno::EACCES)?.ok_or(Errno::ESRCH)?;
    task.credentials.require(Capabilities::SYS_NICE)?;
    let mut done = 0;
    for range in ranges {
        let advised = space.advise(UserAddr::new(range.base), range.length, advice);
        match advised {
            Err(error) if done == 0 => return Err(crate::memory::errno_of(error)),
            Err(_) => break,
            Ok(()) => done += range.length as usize,
        }
    }
    Ok(done)
}
