//! What the operations do.
//!
//! Each is a function of the request that says [`Step`]: it has ended; it must wait in a worker; or it keeps the request for itself, armed.
//! Waits that would begin come back as `EINTR` (see the theory of the folder), and [`readiness`] says what a file must be ready for before it is worth another try.

mod file;
mod message;
mod poll;
mod prepare;
mod socket;
pub(super) mod timeout;
mod transfer;

use alloc::sync::Arc;

use vfs::{OpenFile, PollEvents};

pub(super) use poll::{cancels, criteria, events_of as polled_events};
pub(super) use prepare::prepare;

use super::abi::{Entry, entry, operation};
use super::request::Request;
use super::ring::Ring;
use super::submitter::Class;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

/// Whether it completes again and again until it is taken back. Who has it looks between two completions whether it was.
pub(super) fn repeats(entry: &Entry) -> bool {
    match entry.operation {
        operation::POLL_ADD => entry.length & poll::MULTIPLE != 0,
        operation::ACCEPT => entry.priority & socket::ACCEPT_MULTIPLE != 0,
        _ => false,
    }
}

/// What came of an attempt.
pub(super) enum Step {
    /// It has ended so, with these flags of its completion.
    Done(SysResult, u32),
    /// It needs a worker, and may keep it as long as the class says.
    Worker(Class),
    /// The operation has armed the request, and owns it no longer.
    Kept,
}

impl From<SysResult> for Step {
    fn from(result: SysResult) -> Self {
        Self::Done(result, 0)
    }
}

/// What a file must be ready for before an operation that would have waited is tried again.
pub(super) fn readiness(entry: &Entry) -> Option<PollEvents> {
    match entry.operation {
        operation::READ_VECTORS
        | operation::READ_FIXED
        | operation::READ
        | operation::RECEIVE
        | operation::RECEIVE_MESSAGE
            if !socket::wants_all(entry) =>
        {
            Some(PollEvents::INPUT)
        }
        operation::ACCEPT => Some(PollEvents::INPUT),
        operation::WRITE_VECTORS | operation::WRITE_FIXED | operation::WRITE => Some(PollEvents::OUTPUT),
        operation::SEND | operation::SEND_MESSAGE if !socket::wants_all(entry) => Some(PollEvents::OUTPUT),
        _ => None,
    }
}

/// Whether the entry itself says that it does not wait.
pub(super) fn refuses_to_wait(entry: &Entry) -> bool {
    matches!(
        entry.operation,
        operation::SEND | operation::SEND_MESSAGE | operation::RECEIVE | operation::RECEIVE_MESSAGE
    ) && entry.operation_flags & crate::socket::submitted::DO_NOT_WAIT != 0
}

/// Whether the operation is about the file in `descriptor`.
pub(super) fn needs_file(number: u8) -> bool {
    use operation as op;
    matches!(
        number,
        op::READ_VECTORS
            | op::WRITE_VECTORS
            | op::SYNC
            | op::READ_FIXED
            | op::WRITE_FIXED
            | op::POLL_ADD
            | op::SYNC_RANGE
            | op::SEND_MESSAGE
            | op::RECEIVE_MESSAGE
            | op::ACCEPT
            | op::CONNECT
            | op::ALLOCATE
            | op::READ
            | op::WRITE
            | op::ADVISE_FILE
            | op::SEND
            | op::RECEIVE
            | op::SPLICE
            | op::TEE
            | op::SHUT_DOWN
            | op::MESSAGE_RING
            | op::SET_XATTR_OF_FILE
            | op::GET_XATTR_OF_FILE
    )
}

/// The file that a descriptor, or a place in the table of files, stands for.
pub(super) fn file_of(task: &Task, ring: &Ring, number: i32, is_fixed: bool) -> Result<Arc<OpenFile>, Errno> {
    if is_fixed { ring.resources.file(number as u32).ok_or(Errno::EBADF) } else { task.usable_file(number) }
}

/// The request's own file, found on its first attempt.
fn own_file(task: &Task, request: &Request) -> Result<Arc<OpenFile>, Errno> {
    if let Some(file) = &request.changing.lock().file {
        return Ok(file.clone());
    }
    let file = file_of(task, &request.ring, request.entry.descriptor, request.has(entry::FIXED_FILE))?;
    request.changing.lock().file = Some(file.clone());
    Ok(file)
}

/// Executes it, as far as that goes without waiting, or with (`waits`); `told`: it was armed, and told of.
pub(super) fn perform(task: &mut Task, request: &Arc<Request>, waits: bool, told: bool) -> Step {
    use operation as op;
    let number = request.entry.operation;
    if !needs_file(number) {
        return match number {
            op::NOP => Step::Done(Ok(0), 0),
            op::POLL_REMOVE => poll::remove(task, request).into(),
            op::TIMEOUT | op::LINK_TIMEOUT => timeout::perform(request, told),
            op::TIMEOUT_REMOVE => timeout::remove(request).into(),
            op::CANCEL => poll::cancel(task, request).into(),
            op::PROVIDE_BUFFERS => message::provide(request).into(),
            op::REMOVE_BUFFERS => message::remove(request).into(),
            op::FILES_UPDATE => message::update_files(task, request).into(),
            op::SOCKET => socket::create(task, request).into(),
            op::ADVISE_MEMORY if !waits => Step::Worker(Class::Bounded),
            _ => file::by_name(task, request).into(),
        };
    }
    let file = match own_file(task, request) {
        Ok(file) => file,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    match number {
        op::READ_VECTORS | op::READ_FIXED | op::READ => transfer::read(task, request, &file, waits),
        op::WRITE_VECTORS | op::WRITE_FIXED | op::WRITE => transfer::write(task, request, &file, waits),
        op::POLL_ADD => poll::add(request, &file),
        op::SYNC | op::SYNC_RANGE | op::ALLOCATE | op::ADVISE_FILE | op::SPLICE | op::TEE if !waits => {
            let forever = matches!(number, op::SPLICE | op::TEE);
            Step::Worker(if forever { Class::Unbounded } else { Class::Bounded })
        }
        op::SYNC
        | op::SYNC_RANGE
        | op::ALLOCATE
        | op::ADVISE_FILE
        | op::SET_XATTR_OF_FILE
        | op::GET_XATTR_OF_FILE => file::of_file(task, request, &file).into(),
        op::SPLICE | op::TEE => file::splice(task, request, &file).into(),
        op::MESSAGE_RING => message::send_to_ring(task, request, &file).into(),
        _ => socket::perform(task, request, file, waits),
    }
}
