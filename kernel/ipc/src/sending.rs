//! The sending half of an operation; its steps are told in [`endpoint`](crate::endpoint).
//!
//! A receiver of this CPU is the case that the rest makes way for: where it is decided that it is one, the way of all others ends in a
//! function of its own ([`offer_elsewhere`]).

use machine::interrupt::{self, InterruptGuard};
use machine::time_window;
use sched::{HandOver, WaitError, current};

use crate::block::{OwnBlock, RemoteBlock, Waking};
use crate::defects;
use crate::handler;
use crate::id::ThreadId;
use crate::mail::{self, Request, Response};
use crate::operation::{Caller, Error, Failure, Receive, Refusal, Send, Timeout};
use crate::registry;
use crate::state::{Kind, State};
use crate::statistics::{Counter, count};

/// Sends. On success the state is READY or, if a receive follows, RECEIVING or beyond. Returns whether the receiver was on another CPU.
#[inline(always)]
pub(crate) fn send_message(
    own: OwnBlock<'_>,
    id: ThreadId,
    send: &Send,
    receive: Option<&Receive>,
    caller: &Caller,
    claimed: &mut Option<HandOver>,
    off: InterruptGuard,
) -> Result<bool, Failure> {
    let target = registry::find(send.to).ok_or(Failure::Ipc(Error::NotExistent))?;
    if !target.admits(id, caller) {
        return Err(Failure::Refused(Refusal::NotPermitted));
    }
    let local = own.local(&off);
    if let Some(receive) = receive {
        // Before the offer: the partner may answer before this thread runs again.
        local.set_expected(receive.expected());
    }
    let follows = receive.map(|receive| receive.timeout != Timeout::Never);
    let priority = u32::from(current().policy().priority());
    local.prepare_send(send.to, &send.message, priority, State::polling(follows));
    let Some(receiver) = target.local(&off) else {
        return offer_elsewhere(own, id, send, target, off);
    };
    // It still exists: with interrupts off this CPU lets no thread end, and fetches no block but this one's own.
    let waking = if receive.is_some() { Waking::Claim(claimed) } else { Waking::Now };
    let response = handler::deliver(receiver, own.remote(), id, may_wait(send), false, waking);
    if response == Response::Done {
        count(Counter::LocalDeliveries, &off);
        match receive {
            Some(_) => local.accepted(false),
            None => local.set_state(State::READY),
        }
        return Ok(false);
    }
    not_taken(own, send, response, off)
}

fn may_wait(send: &Send) -> bool {
    send.timeout != Timeout::Zero
}

/// Offers the message to the receiver's CPU.
#[inline(never)]
fn offer_elsewhere(
    own: OwnBlock<'_>,
    id: ThreadId,
    send: &Send,
    target: RemoteBlock,
    off: InterruptGuard,
) -> Result<bool, Failure> {
    let request = Request::Send { sender: own.remote().index(), receiver: send.to, may_wait: may_wait(send) };
    let (response, remote) = loop {
        let response = match (target.local(&off), target.owner()) {
            // It has just come here.
            (Some(receiver), _) => {
                break (handler::offer(receiver, own.remote(), id, send.to, may_wait(send), false), false);
            }
            (None, Some(owner)) => mail::request(owner, request, &off),
            (None, None) => Response::NotExistent,
        };
        if response != Response::Moved {
            break (response, true);
        }
    };
    if response == Response::Done {
        if own.state().kind() == Kind::Polling {
            own.local(&off).accepted(remote);
        }
        return Ok(end_send(own, &off));
    }
    not_taken(own, send, response, off)
}

/// The offer did not find its receiver waiting.
#[inline(never)]
fn not_taken(
    own: OwnBlock<'_>,
    send: &Send,
    response: Response,
    off: InterruptGuard,
) -> Result<bool, Failure> {
    match response {
        Response::Pending => {
            drop(off);
            wait_for_receiver(own, send)
        }
        Response::NotDone => Err(give_up(own, Error::SendTimeout.into(), &off)),
        _ => Err(give_up(own, Error::NotExistent.into(), &off)),
    }
}

/// The message was taken: says whether by another CPU. If nothing follows the operation is over.
fn end_send(own: OwnBlock<'_>, off: &InterruptGuard) -> bool {
    let local = own.local(off);
    let state = local.state();
    // What follows a send ends in DONE only with a message or an error, which `receive` finds.
    if state.kind() == Kind::Done && local.remote().expected() == ThreadId::NOBODY {
        local.set_state(State::READY);
    }
    state.is_remote()
}

/// Sleeps as a queued sender until the receiver comes, or it no longer wants to wait.
#[inline(never)]
fn wait_for_receiver(own: OwnBlock<'_>, send: &Send) -> Result<bool, Failure> {
    let deadline_ns = send.timeout.deadline_ns();
    loop {
        let woken = sched::block_interruptible(|| own.state().needs_thread(), deadline_ns);
        time_window!(defects::SENDER_WOKEN);
        let off = interrupt::disable();
        let local = own.local(&off);
        let state = local.state();
        if woken == Err(WaitError::TimedOut) && defect_ends_send(state.kind()) {
            return Err(give_up(own, Error::SendTimeout.into(), &off));
        }
        match state.kind() {
            Kind::Polling => {}
            Kind::Done => match state.error() {
                Some(error @ Error::NotExistent) => return Err(give_up(own, error.into(), &off)),
                // Success, or the fate of the receive that follows.
                _ => return Ok(end_send(own, &off)),
            },
            Kind::Receiving | Kind::Ready => return Ok(end_send(own, &off)),
        }
        let reason = match (state.is_canceled(), woken) {
            (true, _) | (false, Err(WaitError::Interrupted)) => Error::SendCanceled,
            (false, Err(WaitError::TimedOut)) => Error::SendTimeout,
            (false, Ok(())) => continue,
        };
        if cancel_offer(own, send.to, &off) {
            return Err(give_up(own, reason.into(), &off));
        }
        count(Counter::LateCancellations, &off);
        while local.state().kind() == Kind::Polling {
            // The receiver took the message and sent its wakeup in one atomic section: it is in the box.
            mail::serve_waiting(&off);
            machine::cpu::relax();
        }
    }
}

/// Two historic bugs of a deadline that has passed.
#[inline(always)]
fn defect_ends_send(kind: Kind) -> bool {
    kind == Kind::Done && defects::has(defects::TIMEOUT_FIRST)
        || kind == Kind::Receiving && defects::has(defects::TIMEOUT_OUTLIVES)
}

/// Takes the offer back; false if it is too late.
fn cancel_offer(own: OwnBlock<'_>, to: ThreadId, off: &InterruptGuard) -> bool {
    let receiver = registry::block(to.index()).expect("who is queued is queued at a block");
    loop {
        if let Some(local) = receiver.local(off) {
            return handler::take_back(&local, own.remote()) == Response::Done;
        }
        let Some(owner) = receiver.owner() else { return false };
        let cancel = Request::Cancel { sender: own.remote().index(), receiver: receiver.index() };
        match mail::request(owner, cancel, off) {
            Response::Moved => {}
            response => return response == Response::Done || defects::has(defects::LATE_CANCEL),
        }
    }
}

/// The operation has failed before it had an effect.
pub(crate) fn give_up(own: OwnBlock<'_>, failure: Failure, off: &InterruptGuard) -> Failure {
    let local = own.local(off);
    local.set_expected(ThreadId::NOBODY);
    local.set_state(State::READY);
    failure
}
