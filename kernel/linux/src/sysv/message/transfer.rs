//! Sending and receiving: looking, waiting, looking again.

use alloc::sync::Arc;

use super::queue::{Delivery, Message, Queue, Receiver, Sender, State};
use super::selection::Selection;
use crate::errno::Errno;
use crate::sysv::permissions::{READ, WRITE};
use crate::sysv::waiting::Waiting;
use crate::task::Task;

fn waiting<T>() -> Result<Arc<Waiting<T>>, Errno> {
    memory::fallible::try_arc(Waiting::new()).map_err(|_| Errno::ENOMEM)
}

/// Sends a message, after waiting for room unless that is not wanted.
///
/// # Errors
/// EACCES, EIDRM, EAGAIN, ENOMEM; EINTR when a signal handler ran.
pub(super) fn send(task: &Task, queue: &Queue, message: Message, waits: bool) -> Result<(), Errno> {
    let mut message = Some(message);
    let mut was_told = false;
    loop {
        let mut state = queue.state.lock();
        let step = put_or_queue(task, &mut state, &mut message, waits);
        // The room that it was told of may be there still: it failed, somebody else took a part, or a receiver waited for the message itself.
        if was_told {
            state.tell_senders();
        }
        let Some(waiting) = step? else { return Ok(()) };
        drop(state);
        if waiting.wait(None).is_err() {
            let mut state = queue.state.lock();
            if waiting.take().is_none() {
                state.senders.retain(|sender| !Arc::ptr_eq(&sender.waiting, &waiting));
                return Err(Errno::ERESTARTNOHAND);
            }
        }
        was_told = true;
    }
}

/// Puts the message into the queue if there is room; else the sender goes among those that wait, and is told by what is returned.
fn put_or_queue(
    task: &Task,
    state: &mut State,
    message: &mut Option<Message>,
    waits: bool,
) -> Result<Option<Arc<Waiting<()>>>, Errno> {
    state.permissions.check(&task.credentials, task.ipc_space().owner(), WRITE)?;
    if state.is_removed {
        return Err(Errno::EIDRM);
    }
    let bytes = message.as_ref().map_or(0, |message| message.text.len() as u64);
    if state.has_room_for(bytes) {
        if let Some(message) = message.take() {
            state.put(message, task.process().pid())?;
        }
        return Ok(None);
    }
    if !waits {
        return Err(Errno::EAGAIN);
    }
    let waiting = waiting()?;
    state.senders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    state.senders.push_back(Sender { waiting: waiting.clone(), bytes });
    Ok(Some(waiting))
}

/// How to receive.
#[derive(Clone, Copy)]
pub(super) struct Receiving {
    pub(super) selection: Selection,
    /// Bytes that the receiver has room for.
    pub(super) room: usize,
    /// A longer message is cut, instead of refused (MSG_NOERROR).
    pub(super) cuts: bool,
    /// Wait for a message.
    pub(super) waits: bool,
}

/// Receives a message, after waiting for it unless that is not wanted.
///
/// # Errors
/// EACCES, EIDRM, E2BIG, ENOMSG, ENOMEM; EINTR when a signal handler ran.
pub(super) fn receive(task: &Task, queue: &Queue, how: Receiving) -> Result<Message, Errno> {
    let process = task.process().pid();
    let bytes_max = if how.cuts { usize::MAX } else { how.room };
    loop {
        let mut state = queue.state.lock();
        state.permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
        if state.is_removed {
            return Err(Errno::EIDRM);
        }
        if let Some((index, message)) = state.find(how.selection) {
            if message.text.len() > bytes_max {
                return Err(Errno::E2BIG);
            }
            if matches!(how.selection, Selection::Place(_)) {
                // A copy is not cut.
                if message.text.len() > how.room {
                    return Err(Errno::EINVAL);
                }
                let text = memory::fallible::try_copy(&message.text).map_err(|_| Errno::ENOMEM)?;
                return Ok(Message { kind: message.kind, text });
            }
            return state.receive(index, process).ok_or(Errno::ENOMSG);
        }
        if !how.waits {
            return Err(Errno::ENOMSG);
        }
        let waiting = waiting()?;
        state.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        state.receivers.push_back(Receiver {
            waiting: waiting.clone(),
            selection: how.selection,
            bytes_max,
            process,
        });
        drop(state);
        let slept = waiting.wait(None);
        let outcome = match slept {
            Ok(()) => waiting.take(),
            Err(_) => {
                let mut state = queue.state.lock();
                let outcome = waiting.take();
                if outcome.is_none() {
                    state.receivers.retain(|receiver| !Arc::ptr_eq(&receiver.waiting, &waiting));
                    return Err(Errno::ERESTARTNOHAND);
                }
                outcome
            }
        };
        match outcome {
            Some(Delivery::Message(message)) => return Ok(message),
            Some(Delivery::Error(errno)) => return Err(errno),
            Some(Delivery::LookAgain) | None => {}
        }
    }
}
