//! The receiving half of an operation; its steps are told in [`endpoint`](crate::endpoint).

use machine::interrupt::{self, InterruptGuard};
use machine::time_window;
use sched::{HandOver, WaitError};

use crate::block::{OwnBlock, RemoteBlock};
use crate::defects;
use crate::handler;
use crate::id::ThreadId;
use crate::mail::Event;
use crate::operation::{Error, Failure, Receive, Received, Timeout};
use crate::queue;
use crate::registry;
use crate::sending::give_up;
use crate::state::{Kind, State};
use crate::statistics::{Counter, count};

/// The receiving half; interrupts are on. The state is READY, or what a send made of it.
#[inline(always)]
pub(crate) fn receive_message(
    own: OwnBlock<'_>,
    receive: &Receive,
    mut claimed: Option<HandOver>,
) -> Result<Received, Failure> {
    let from = receive.expected();
    let mut deadline_ns = None;
    let mut waits = false;
    loop {
        let off = interrupt::disable();
        let local = own.local(&off);
        let state = local.state();
        if state.kind() == Kind::Done {
            return finish(own, &off);
        }
        if state.is_canceled() {
            return Err(give_up(own, Error::ReceiveCanceled.into(), &off));
        }
        if let Some(sender) = queue::first(&local, from) {
            return Ok(take_from(own, sender, &off));
        }
        let begun = state.kind() == Kind::Receiving;
        if !begun {
            check_partner(from)?;
        }
        if receive.timeout == Timeout::Zero {
            return Err(give_up(own, Error::ReceiveTimeout.into(), &off));
        }
        if begun {
            local.set_state(state.thread_sleeps());
        } else {
            local.begin_receiving(from);
        }
        if claimed.is_some() {
            count(Counter::HandOvers, &off);
        }
        drop(off);
        if !waits {
            (waits, deadline_ns) = (true, receive.timeout.deadline_ns());
        }
        let condition = || own.state().needs_thread();
        let woken = match claimed.take() {
            Some(next) => sched::block_interruptible_handing_over(next, condition, deadline_ns),
            None => sched::block_interruptible(condition, deadline_ns),
        };
        if let Err(reason) = woken
            && let Some(result) = stop_receiving(own, reason)
        {
            return result;
        }
    }
}

/// A closed receive from nobody fails at once.
#[inline(never)]
fn check_partner(from: ThreadId) -> Result<(), Failure> {
    if from != ThreadId::ANYBODY && !registry::exists(from) {
        return Err(Error::NotExistent.into());
    }
    Ok(())
}

/// The wait was ended from outside, or by the deadline; unless the message came first.
#[inline(never)]
fn stop_receiving(own: OwnBlock<'_>, reason: WaitError) -> Option<Result<Received, Failure>> {
    time_window!(defects::RECEIVER_WOKEN);
    let off = interrupt::disable();
    if own.state().kind() != Kind::Receiving {
        return None;
    }
    let error = match reason {
        WaitError::TimedOut => Error::ReceiveTimeout,
        WaitError::Interrupted => Error::ReceiveCanceled,
    };
    Some(Err(give_up(own, error.into(), &off)))
}

/// Takes the message of a sender that waits in the queue, and tells it: one atomic section.
#[inline(never)]
fn take_from(own: OwnBlock<'_>, sender: RemoteBlock, off: &InterruptGuard) -> Received {
    let local = own.local(off);
    // Nobody delivers while this CPU waits for the sender's.
    let remote = local.state().is_remote() || sender.local(off).is_none();
    local.set_state(State::READY);
    local.set_expected(ThreadId::NOBODY);
    queue::remove(&local, sender);
    local.take_message(sender, sender.id());
    let (from, message) = local.incoming();
    count(Counter::TakenFromQueue, off);
    handler::tell(sender, Event::Delivered, off);
    Received { from, message, remote }
}

/// The operation is done.
#[inline(always)]
fn finish(own: OwnBlock<'_>, off: &InterruptGuard) -> Result<Received, Failure> {
    let local = own.local(off);
    let state = local.state();
    let (from, message) = local.incoming();
    local.set_state(State::READY);
    local.set_expected(ThreadId::NOBODY);
    match state.error() {
        None => Ok(Received { from, message, remote: state.is_remote() }),
        Some(error) => Err(error.into()),
    }
}
