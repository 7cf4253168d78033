//! What a CPU does with the blocks that it owns when somebody asks: another CPU by request, or a thread of its own.
//!
//! All of it runs with interrupts off and is short; that is what makes it atomic against the operations of the CPU's own threads.

use machine::cpu::CpuId;
use machine::interrupt::InterruptGuard;

use crate::block::{LocalBlock, RemoteBlock, Waking};
use crate::id::ThreadId;
use crate::mail::{self, Event, Request, Response};
use crate::operation::Error;
use crate::queue;
use crate::registry;
use crate::state::Kind;

/// Handles a request of another CPU.
pub(crate) fn handle(request: Request, asking: CpuId, off: &InterruptGuard) -> Response {
    match request {
        Request::Send { sender, receiver, may_wait } => {
            let (Some(sender), Some(target)) = (registry::block(sender), registry::block(receiver.index()))
            else {
                return Response::NotExistent;
            };
            match target.local(off) {
                Some(local) => offer(local, sender, sender.id(), receiver, may_wait, true),
                None => Response::Moved,
            }
        }
        Request::Wakeup { thread, event } => match registry::find(thread) {
            None => Response::NotExistent,
            Some(block) => match block.local(off) {
                Some(local) => end_wait(&local, event, true),
                None => Response::Moved,
            },
        },
        Request::Cancel { sender, receiver } => {
            let (Some(sender), Some(receiver)) = (registry::block(sender), registry::block(receiver)) else {
                return Response::NotDone;
            };
            match receiver.local(off) {
                Some(local) => take_back(&local, sender),
                None => Response::Moved,
            }
        }
        Request::Adopt { block } => {
            if let Some(local) = registry::block(block).and_then(|block| block.local(off)) {
                local.hand_over(asking);
            }
            Response::Done
        }
    }
}

/// [`deliver`] to a receiver that may have ended: where its block is, it cannot meanwhile.
#[inline(never)]
pub(crate) fn offer(
    receiver: LocalBlock<'_>,
    sender: RemoteBlock,
    id: ThreadId,
    to: ThreadId,
    may_wait: bool,
    remote: bool,
) -> Response {
    if !receiver.remote().is(to) {
        return Response::NotExistent;
    }
    deliver(receiver, sender, id, may_wait, remote, Waking::Now)
}

/// Gives a sender's message to a receiver if it waits for it; else queues the sender, if it may wait. `id` is the sender's number.
#[inline(always)]
pub(crate) fn deliver(
    receiver: LocalBlock<'_>,
    sender: RemoteBlock,
    id: ThreadId,
    may_wait: bool,
    remote: bool,
    waking: Waking<'_>,
) -> Response {
    if receiver.accepts(id) {
        receiver.take_message(sender, id);
        receiver.set_state(receiver.state().delivered().with_remote(remote));
        receiver.wake(waking);
        return Response::Done;
    }
    refuse(receiver, sender, may_wait)
}

/// The receiver does not wait for the sender: that one waits, if it may.
#[inline(never)]
fn refuse(receiver: LocalBlock<'_>, sender: RemoteBlock, may_wait: bool) -> Response {
    if !may_wait {
        return Response::NotDone;
    }
    queue::push(&receiver, sender);
    Response::Pending
}

/// Ends a thread's wait on the CPU that owns it, or makes it go on as a receiver.
pub(crate) fn end_wait(local: &LocalBlock<'_>, event: Event, remote: bool) -> Response {
    let state = local.state();
    match (event, state.kind()) {
        (Event::Delivered, Kind::Polling) => local.accepted(remote),
        (Event::ReceiverGone, Kind::Polling) => local.set_state(state.failed(Error::NotExistent)),
        (Event::PartnerGone(partner), Kind::Receiving) if local.remote().expected() == partner => {
            local.set_state(state.failed(Error::ReceiveAborted));
        }
        (Event::Canceled, Kind::Receiving) => local.set_state(state.failed(Error::ReceiveCanceled)),
        (Event::Canceled, Kind::Polling) => local.set_state(state.canceled()),
        _ => return Response::NotDone,
    }
    if local.state().needs_thread() {
        local.wake(Waking::Now);
    }
    Response::Done
}

/// Takes a sender out of the queue that it wants to leave.
pub(crate) fn take_back(receiver: &LocalBlock<'_>, sender: RemoteBlock) -> Response {
    if !queue::holds(receiver, sender) {
        return Response::NotDone;
    }
    queue::remove(receiver, sender);
    Response::Done
}

/// Tells a waiting thread, wherever it is, what became of its wait. The caller is a thread with interrupts off.
pub(crate) fn tell(thread: RemoteBlock, event: Event, off: &InterruptGuard) -> Response {
    let id = thread.id();
    loop {
        let response = match (thread.local(off), thread.owner()) {
            (Some(local), _) if local.remote().is(id) => end_wait(&local, event, false),
            (None, Some(owner)) => mail::request(owner, Request::Wakeup { thread: id, event }, off),
            _ => Response::NotExistent,
        };
        if response != Response::Moved {
            return response;
        }
    }
}
