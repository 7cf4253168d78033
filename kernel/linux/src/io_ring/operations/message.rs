//! What concerns rings themselves: provided buffers, the table of files, messages to other rings.

use alloc::sync::Arc;

use vfs::OpenFile;

use super::super::abi::{Completion, Entry};
use super::super::groups::Provided;
use super::super::register;
use super::super::request::Request;
use super::super::ring::RingFile;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Buffers of one call at most, and their length.
const PROVIDED_AT_ONCE_MAX: i32 = 1 << 16;

/// The buffers that an entry provides: the first, and how many.
pub(super) fn provided(entry: &Entry) -> Result<(Provided, usize), Errno> {
    if entry.operation_flags != 0 || entry.other != 0 {
        return Err(Errno::EINVAL);
    }
    if !(1..=PROVIDED_AT_ONCE_MAX).contains(&entry.descriptor) {
        return Err(Errno::E2BIG);
    }
    let count = entry.descriptor as u64;
    let bytes = count.checked_mul(entry.length.into()).ok_or(Errno::EOVERFLOW)?;
    let end = entry.address.checked_add(bytes).ok_or(Errno::EOVERFLOW)?;
    if end > machine::address::USER_END as u64 {
        return Err(Errno::EFAULT);
    }
    let first = u16::try_from(entry.offset).map_err(|_| Errno::E2BIG)?;
    if u64::from(first) + count - 1 > u16::MAX.into() {
        return Err(Errno::EINVAL);
    }
    if entry.length == 0 {
        return Err(Errno::EINVAL);
    }
    Ok((Provided { address: entry.address, length: entry.length, number: first }, count as usize))
}

/// Adds buffers to a group.
pub(super) fn provide(request: &Request) -> SysResult {
    let (first, count) = provided(&request.entry)?;
    request.ring.resources.groups.provide(request.entry.buffer, first, count)?;
    Ok(0)
}

/// Checks an entry that takes buffers away.
pub(super) fn check_remove(entry: &Entry) -> Result<(), Errno> {
    let unused = u64::from(entry.operation_flags) | entry.address | u64::from(entry.length) | entry.offset;
    if unused != 0 || entry.other != 0 || !(1..=PROVIDED_AT_ONCE_MAX).contains(&entry.descriptor) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Takes buffers of a group away.
pub(super) fn remove(request: &Request) -> SysResult {
    request.ring.resources.groups.remove(request.entry.buffer, request.entry.descriptor as usize)
}

/// Changes the table of files.
pub(super) fn update_files(task: &Task, request: &Request) -> SysResult {
    let entry = &request.entry;
    let first = u32::try_from(entry.offset).map_err(|_| Errno::EINVAL)?;
    register::update_files(task, &request.ring, first, entry.address, entry.length)
}

/// Leaves a completion in another ring.
pub(super) fn send_to_ring(_task: &Task, request: &Arc<Request>, file: &Arc<OpenFile>) -> SysResult {
    let entry = &request.entry;
    let target = &file.object::<RingFile>().ok_or(Errno::EBADFD)?.0;
    if !target.is_enabled.load(core::sync::atomic::Ordering::Acquire) {
        return Err(Errno::EBADFD);
    }
    let completion = Completion { user_data: entry.offset, result: entry.length as i32, flags: 0 };
    target.post_foreign(&completion).map_err(|_| Errno::EOVERFLOW)?;
    Ok(0)
}
