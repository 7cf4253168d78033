//! Operations on sockets.

use alloc::sync::Arc;

use vfs::OpenFile;
use vfs::flags::OpenFlags;

use super::super::abi::{Completion, Entry, completion, entry, operation};
use super::super::request::{Prepared, Request};
use super::super::submitter::Class;
use super::Step;
use super::poll::POSTS_AT_ONCE;
use super::transfer::{give_back, with_buffer};
use crate::errno::{Errno, SysResult};
use crate::file::context::descriptor_flags;
use crate::file::transfer::user_range;
use crate::socket::submitted;
use crate::task::Task;

/// In `ioprio`: poll before the first attempt; connections until it is taken back.
pub(super) const POLL_FIRST: u16 = 1;
pub(super) const ACCEPT_MULTIPLE: u16 = 1;

/// Whether it takes or sends all that it is asked for, as one that waits can.
pub(super) fn wants_all(entry: &Entry) -> bool {
    matches!(
        entry.operation,
        operation::SEND | operation::SEND_MESSAGE | operation::RECEIVE | operation::RECEIVE_MESSAGE
    ) && entry.operation_flags & submitted::WAIT_ALL != 0
}

pub(super) fn perform(task: &mut Task, request: &Arc<Request>, file: Arc<OpenFile>, waits: bool) -> Step {
    let entry = &request.entry;
    if wants_all(entry) && !waits {
        return Step::Worker(Class::Unbounded);
    }
    match entry.operation {
        operation::SEND | operation::SEND_MESSAGE => send(task, request, file).into(),
        operation::RECEIVE => receive(request, file),
        operation::RECEIVE_MESSAGE => receive_message(task, request, file),
        operation::ACCEPT => accept(task, request, &file),
        operation::CONNECT => match &request.prepared {
            Prepared::Address(address) => submitted::connect(task, file, address).into(),
            _ => Step::Done(Err(Errno::EINVAL), 0),
        },
        operation::SHUT_DOWN => submitted::shut_down(file, entry.length as i32).into(),
        _ => Step::Done(Err(Errno::EINVAL), 0),
    }
}

fn send(task: &Task, request: &Request, file: Arc<OpenFile>) -> SysResult {
    let entry = &request.entry;
    if let Prepared::Message(header, ranges) = &request.prepared {
        return submitted::send_message(task, file, header, ranges, entry.operation_flags);
    }
    let (address, length) = user_range(entry.address, entry.length as usize)?;
    let range = ::memory::buffer::UserRange { address, length };
    submitted::send(task, file, &[range], entry.operation_flags)
}

fn receive(request: &Request, file: Arc<OpenFile>) -> Step {
    let entry = &request.entry;
    let (address, length, chosen) = if request.has(entry::SELECT_BUFFER) {
        match request.ring.resources.groups.take(entry.buffer) {
            Ok(chosen) => {
                let length = if entry.length == 0 { chosen.length } else { entry.length.min(chosen.length) };
                (chosen.address, length, Some(chosen))
            }
            Err(errno) => return Step::Done(Err(errno), 0),
        }
    } else {
        (entry.address, entry.length, None)
    };
    let result = user_range(address, length as usize).and_then(|(address, length)| {
        let range = ::memory::buffer::UserRange { address, length };
        submitted::receive(file.clone(), &[range], entry.operation_flags)
    });
    let more = result.is_ok() && submitted::has_more(&file);
    with_more(with_buffer(request, chosen, result), more)
}

/// Says in the completion whether the socket has more.
fn with_more(step: Step, more: bool) -> Step {
    match step {
        Step::Done(result, flags) if more => Step::Done(result, flags | completion::SOCKET_NOT_EMPTY),
        step => step,
    }
}

fn receive_message(task: &Task, request: &Request, file: Arc<OpenFile>) -> Step {
    let entry = &request.entry;
    let Prepared::Message(header, ranges) = &request.prepared else {
        return Step::Done(Err(Errno::EINVAL), 0);
    };
    let message = (entry.address, *header);
    let flags = entry.operation_flags;
    if !request.has(entry::SELECT_BUFFER) {
        let result = submitted::receive_message(task, file.clone(), message, ranges, flags);
        let more = result.is_ok() && submitted::has_more(&file);
        return with_more(Step::Done(result, 0), more);
    }
    let chosen = match request.ring.resources.groups.take(entry.buffer) {
        Ok(chosen) => chosen,
        Err(errno) => return Step::Done(Err(errno), 0),
    };
    let wanted = ranges.first().map_or(0, |range| range.length);
    let length = if wanted == 0 { chosen.length as usize } else { wanted.min(chosen.length as usize) };
    match user_range(chosen.address, length) {
        Ok((address, length)) => {
            let range = [::memory::buffer::UserRange { address, length }];
            let result = submitted::receive_message(task, file.clone(), message, &range, flags);
            let more = result.is_ok() && submitted::has_more(&file);
            with_more(with_buffer(request, Some(chosen), result), more)
        }
        Err(errno) => {
            give_back(request, Some(chosen));
            Step::Done(Err(errno), 0)
        }
    }
}

/// Takes connections: one, or all that come until it is taken back.
fn accept(task: &Task, request: &Arc<Request>, file: &Arc<OpenFile>) -> Step {
    let multiple = request.entry.priority & ACCEPT_MULTIPLE != 0;
    for _ in 0..POSTS_AT_ONCE {
        let result = accept_one(task, request, file);
        let Ok(number) = result else { return Step::Done(result, 0) };
        if !multiple {
            return Step::Done(Ok(number), 0);
        }
        let one =
            Completion { user_data: request.user_data(), result: number as i32, flags: completion::MORE };
        if !request.ring.post_if_room(&one) {
            return Step::Done(Ok(number), 0);
        }
        if request.is_cancelled() {
            return Step::Done(Err(Errno::ECANCELED), 0);
        }
    }
    request.yield_turn();
    Step::Kept
}

fn accept_one(task: &Task, request: &Request, file: &Arc<OpenFile>) -> SysResult {
    let entry = &request.entry;
    let flags = OpenFlags::from_bits_truncate(entry.operation_flags);
    let address = (entry.address, entry.offset);
    if entry.other != 0 {
        let accepted = submitted::accept(task, file.clone(), address, flags)?;
        return request.ring.resources.install(entry.other, accepted);
    }
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let accepted = submitted::accept(task, file.clone(), address, flags)?;
    Ok(reserved.install(accepted, descriptor_flags(flags.contains(OpenFlags::CLOSE_ON_EXEC))) as usize)
}

/// Makes a socket.
pub(super) fn create(task: &mut Task, request: &Request) -> SysResult {
    let entry = &request.entry;
    if entry.other != 0 {
        return Err(Errno::EINVAL);
    }
    crate::socket::create::socket(task, entry.descriptor, entry.offset as u32, entry.length as i32)
}
