//! A thread's part in message passing: its number, its block, and its operations (specs/fiasco-mp.md, items 11, 25-28).
//!
//! # Sending
//! *S1* (interrupts off): fetch the own block if the thread has migrated; write message, partner and the receive that follows into
//! the block; offer the message to the receiver, here or by a *send* request. Delivered → the state is RECEIVING or the operation is
//! done. Not delivered and no time-out → error. Queued → sleep.
//! *S2* (interrupts off, after waking): the state tells whether the receiver came. If not, the reason for waking (time-out, attention, cancel)
//! leads to a *cancellation*, here or by request.
//! *S3*: it succeeded → error by reason. Too late → the receiver has taken the message and its wakeup request is in the box already, or
//! was served while this CPU waited: handle it; the operation has succeeded, and only a receive that follows can still be cancelled.
//!
//! # Receiving
//! The receiver first looks into its queue. A waiting sender is taken out, its message copied from its block, and it is told (*wakeup*). With nobody
//! there the state becomes RECEIVING, and the thread sleeps until somebody delivers.
//!
//! # From sending to receiving
//! is one step: whoever accepts the message makes the state RECEIVING, so the partner may answer with time-out zero at once. The thread
//! itself may run much later. The deadline of the send has no say after that, because the state is looked at before the reason.
//!
//! # On one CPU
//! no requests are needed, and a thread that will sleep anyway gives the CPU to the one that it has just made ready ([`HandOver`]).
//!
//! While it is in an operation a thread is [bound](sched::Bound) to its CPU.

use core::sync::atomic::{AtomicBool, Ordering};

use machine::cpu::{self, CpuId};
use machine::interrupt::{self, InterruptGuard};
use machine::{preempt, time_window};
use memory::OutOfMemory;
use sched::{HandOver, ThreadRef, WaitError, current};
use sync::rcu::RcuBox;

use crate::block::{LocalBlock, OPEN_TO_ALL, PARTITIONED, RemoteBlock, Waking, life};
use crate::defects;
use crate::handler;
use crate::id::ThreadId;
use crate::mail::{self, Event, Request, Response};
use crate::operation::{Caller, Error, Failure, Operation, Receive, Received, Refusal, Send, Timeout};
use crate::queue;
use crate::registry;
use crate::state::{Kind, State};
use crate::statistics::{Counter, count};

/// Whether every thread that registers is partitioned.
static ALL_PARTITIONED: AtomicBool = AtomicBool::new(false);

/// Makes every thread that registers from now on partitioned (`ipc=partitioned` on the command line).
pub fn partition_all() {
    ALL_PARTITIONED.store(true, Ordering::Relaxed);
}

/// Connects the message boxes with what this crate does. Once, at start-up.
pub fn initialize() {
    mail::set_handlers();
}

pub(crate) fn all_are_partitioned() -> bool {
    ALL_PARTITIONED.load(Ordering::Relaxed)
}

/// What a thread wants to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// It takes messages from every user.
    pub open_to_all: bool,
    /// It stays on its CPU for good, and acts on other CPUs' threads by messages only.
    pub partitioned: bool,
}

/// The calling thread's part. Belongs to that thread; dropping it ends its number.
pub struct Endpoint {
    block: RemoteBlock,
    id: ThreadId,
}

impl core::fmt::Debug for Endpoint {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Endpoint({:?})", self.id)
    }
}

impl Endpoint {
    /// Gives the calling thread a number.
    ///
    /// # Errors
    /// [`OutOfMemory`], also when all numbers (of this CPU, for partitioned threads) are in use.
    pub fn register(caller: &Caller, options: Options) -> Result<Endpoint, OutOfMemory> {
        memory::fallible::fail_point()?;
        let partitioned = options.partitioned || all_are_partitioned();
        let thread = RcuBox::try_new(current().to_ref()).ok_or(OutOfMemory)?;
        if partitioned {
            current().bind_for_good();
        }
        let block = registry::take(partitioned)?;
        let flags =
            if options.open_to_all { OPEN_TO_ALL } else { 0 } | if partitioned { PARTITIONED } else { 0 };
        let off = interrupt::disable();
        let id = registry::bring_to_life(block, thread, caller, flags, &off);
        drop(off);
        Ok(Endpoint { block, id })
    }

    /// Its number.
    pub fn id(&self) -> ThreadId {
        self.id
    }

    /// Whether it is partitioned.
    pub fn is_partitioned(&self) -> bool {
        self.block.is_partitioned()
    }

    /// Takes messages from every user from now on.
    pub fn open_to_all(&mut self) {
        let _bond = current().bind();
        let off = interrupt::disable();
        self.own(&off);
        self.local(&off).add_flags(OPEN_TO_ALL);
    }

    /// Does an operation.
    ///
    /// # Errors
    /// [`Failure`].
    pub fn operate(&mut self, operation: &Operation, caller: &Caller) -> Result<Received, Failure> {
        let to = operation.send.as_ref().map(|send| send.to);
        let from = operation.receive.as_ref().and_then(|receive| receive.from);
        if to == Some(self.id) || from == Some(self.id) {
            return Err(Failure::Refused(Refusal::OwnId));
        }
        let bond = current().bind();
        let result = self.operate_here(operation, caller);
        drop(bond);
        // Who was woken with interrupts off may be more urgent.
        if preempt::need_resched() {
            drop(preempt::disable());
        }
        result
    }

    fn operate_here(&mut self, operation: &Operation, caller: &Caller) -> Result<Received, Failure> {
        let mut claimed = None;
        let off = interrupt::disable();
        self.own(&off);
        self.local(&off).set_users(caller);
        count(Counter::Operations, &off);
        let remote = match &operation.send {
            Some(send) => self.send(send, operation.receive.as_ref(), caller, &mut claimed, off)?,
            None => {
                drop(off);
                false
            }
        };
        match &operation.receive {
            Some(receive) => self.receive(receive, claimed),
            None => Ok(Received { from: ThreadId::NOBODY, message: [0; crate::WORDS], remote }),
        }
    }

    /// Fetches the block, if the thread has migrated since its last operation. The thread is bound.
    #[inline(always)]
    fn own(&self, off: &InterruptGuard) {
        while self.block.local(off).is_none() {
            let owner = self.block.owner().expect("a registered thread's block has an owner");
            mail::request(owner, Request::Adopt { block: self.block.index() }, off);
        }
    }

    #[inline(always)]
    fn local<'off>(&self, off: &'off InterruptGuard) -> LocalBlock<'off> {
        self.block.local(off).expect("a thread in an operation is on the CPU that owns its block")
    }

    /// The sending half. On success the state is READY or, if a receive follows, RECEIVING or beyond. Returns whether the receiver was on
    /// another CPU.
    #[inline(always)]
    fn send(
        &mut self,
        send: &Send,
        receive: Option<&Receive>,
        caller: &Caller,
        claimed: &mut Option<HandOver>,
        off: InterruptGuard,
    ) -> Result<bool, Failure> {
        let local = self.local(&off);
        if let Some(receive) = receive {
            // Before the offer: the partner may answer before this thread runs again.
            local.set_expected(receive.expected());
        }
        let follows = receive.map(|receive| receive.timeout != Timeout::Never);
        let priority = u32::from(current().policy().priority());
        local.prepare_send(send.to, &send.message, priority, State::polling(follows));
        let (response, remote) = match self.offer(send, receive.is_some(), caller, claimed, &off) {
            Ok(answer) => answer,
            Err(failure) => return Err(self.give_up(failure, &off)),
        };
        match response {
            Response::Done => {
                if local.state().kind() == Kind::Polling {
                    local.accepted(remote);
                }
                Ok(self.end_send(&off))
            }
            Response::Pending => {
                drop(off);
                self.wait_for_receiver(send)
            }
            Response::NotDone => Err(self.give_up(Error::SendTimeout.into(), &off)),
            Response::NotExistent | Response::Moved => Err(self.give_up(Error::NotExistent.into(), &off)),
        }
    }

    /// Offers the message: to the receiver here, or to its CPU. Also says whether it was another CPU.
    #[inline(always)]
    fn offer(
        &self,
        send: &Send,
        will_sleep: bool,
        caller: &Caller,
        claimed: &mut Option<HandOver>,
        off: &InterruptGuard,
    ) -> Result<(Response, bool), Failure> {
        let target = registry::find(send.to).ok_or(Failure::Ipc(Error::NotExistent))?;
        if !target.admits(self.id, caller) {
            return Err(Failure::Refused(Refusal::NotPermitted));
        }
        let may_wait = send.timeout != Timeout::Zero;
        loop {
            if let Some(receiver) = target.local(off) {
                let waking = if will_sleep { Waking::Claim(claimed) } else { Waking::Now };
                let response = handler::deliver(&receiver, self.block, send.to, may_wait, false, waking);
                if response == Response::Done {
                    count(Counter::LocalDeliveries, off);
                }
                return Ok((response, false));
            }
            let response = self.offer_to_other_cpu(target, send.to, may_wait, off);
            if response != Response::Moved {
                return Ok((response, true));
            }
        }
    }

    #[inline(never)]
    fn offer_to_other_cpu(
        &self,
        target: RemoteBlock,
        receiver: ThreadId,
        may_wait: bool,
        off: &InterruptGuard,
    ) -> Response {
        let here = cpu::current();
        match target.owner() {
            Some(owner) if owner != here => {
                mail::request(owner, Request::Send { sender: self.block.index(), receiver, may_wait }, off)
            }
            // It has just come here.
            Some(_) => Response::Moved,
            None => Response::NotExistent,
        }
    }

    /// The operation has failed before it had an effect.
    fn give_up(&self, failure: Failure, off: &InterruptGuard) -> Failure {
        let local = self.local(off);
        local.set_expected(ThreadId::NOBODY);
        local.set_state(State::READY);
        failure
    }

    /// The message was taken: says whether by another CPU. If nothing follows the operation is over.
    fn end_send(&self, off: &InterruptGuard) -> bool {
        let local = self.local(off);
        let state = local.state();
        // What follows a send ends in DONE only with a message or an error, which `receive` finds.
        if state.kind() == Kind::Done && local.remote().expected() == ThreadId::NOBODY {
            local.set_state(State::READY);
        }
        state.is_remote()
    }

    /// Sleeps as a queued sender until the receiver comes, or it no longer wants to wait.
    #[inline(never)]
    fn wait_for_receiver(&mut self, send: &Send) -> Result<bool, Failure> {
        let deadline_ns = send.timeout.deadline_ns();
        loop {
            let woken = sched::block_interruptible(|| self.block.state().needs_thread(), deadline_ns);
            time_window!(defects::SENDER_WOKEN);
            let off = interrupt::disable();
            let local = self.local(&off);
            let state = local.state();
            if woken == Err(WaitError::TimedOut) && Self::defect_ends_send(state.kind()) {
                return Err(self.give_up(Error::SendTimeout.into(), &off));
            }
            match state.kind() {
                Kind::Polling => {}
                Kind::Done => match state.error() {
                    Some(error @ Error::NotExistent) => return Err(self.give_up(error.into(), &off)),
                    // Success, or the fate of the receive that follows.
                    _ => return Ok(self.end_send(&off)),
                },
                Kind::Receiving | Kind::Ready => return Ok(self.end_send(&off)),
            }
            let reason = match (state.is_canceled(), woken) {
                (true, _) | (false, Err(WaitError::Interrupted)) => Error::SendCanceled,
                (false, Err(WaitError::TimedOut)) => Error::SendTimeout,
                (false, Ok(())) => continue,
            };
            if self.cancel_offer(send.to, &off) {
                return Err(self.give_up(reason.into(), &off));
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
    fn cancel_offer(&self, to: ThreadId, off: &InterruptGuard) -> bool {
        let receiver = registry::block(to.index()).expect("who is queued is queued at a block");
        loop {
            if let Some(local) = receiver.local(off) {
                return handler::take_back(&local, self.block) == Response::Done;
            }
            let Some(owner) = receiver.owner() else { return false };
            let cancel = Request::Cancel { sender: self.block.index(), receiver: receiver.index() };
            match mail::request(owner, cancel, off) {
                Response::Moved => {}
                response => return response == Response::Done || defects::has(defects::LATE_CANCEL),
            }
        }
    }

    /// The receiving half; interrupts are on. The state is READY, or what a send made of it.
    #[inline(always)]
    fn receive(&mut self, receive: &Receive, mut claimed: Option<HandOver>) -> Result<Received, Failure> {
        let from = receive.expected();
        let mut deadline_ns = None;
        let mut waits = false;
        loop {
            let off = interrupt::disable();
            let local = self.local(&off);
            let state = local.state();
            if state.kind() == Kind::Done {
                return self.finish(&off);
            }
            if state.is_canceled() {
                return Err(self.give_up(Error::ReceiveCanceled.into(), &off));
            }
            if let Some(sender) = queue::first(&local, from) {
                return Ok(self.take_from(sender, &off));
            }
            let begun = state.kind() == Kind::Receiving;
            if !begun {
                self.check_partner(from)?;
            }
            if receive.timeout == Timeout::Zero {
                return Err(self.give_up(Error::ReceiveTimeout.into(), &off));
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
            let condition = || self.block.state().needs_thread();
            let woken = match claimed.take() {
                Some(next) => sched::block_interruptible_handing_over(next, condition, deadline_ns),
                None => sched::block_interruptible(condition, deadline_ns),
            };
            if let Err(reason) = woken
                && let Some(result) = self.stop_receiving(reason)
            {
                return result;
            }
        }
    }

    /// A closed receive from nobody fails at once.
    fn check_partner(&self, from: ThreadId) -> Result<(), Failure> {
        if from != ThreadId::ANYBODY && !registry::exists(from) {
            return Err(Error::NotExistent.into());
        }
        Ok(())
    }

    /// The wait was ended from outside, or by the deadline; unless the message came first.
    #[inline(never)]
    fn stop_receiving(&mut self, reason: WaitError) -> Option<Result<Received, Failure>> {
        time_window!(defects::RECEIVER_WOKEN);
        let off = interrupt::disable();
        if self.local(&off).state().kind() != Kind::Receiving {
            return None;
        }
        let error = match reason {
            WaitError::TimedOut => Error::ReceiveTimeout,
            WaitError::Interrupted => Error::ReceiveCanceled,
        };
        Some(Err(self.give_up(error.into(), &off)))
    }

    /// Takes the message of a sender that waits in the queue, and tells it: one atomic section.
    #[inline(never)]
    fn take_from(&mut self, sender: RemoteBlock, off: &InterruptGuard) -> Received {
        let local = self.local(off);
        // Nobody delivers while this CPU waits for the sender's.
        let remote = local.state().is_remote() || sender.local(off).is_none();
        local.set_state(State::READY);
        local.set_expected(ThreadId::NOBODY);
        queue::remove(&local, sender);
        local.take_message(sender);
        let (from, message) = local.incoming();
        count(Counter::TakenFromQueue, off);
        handler::tell(sender, Event::Delivered, off);
        Received { from, message, remote }
    }

    /// The operation is done.
    #[inline(always)]
    fn finish(&mut self, off: &InterruptGuard) -> Result<Received, Failure> {
        let local = self.local(off);
        let state = local.state();
        let (from, message) = local.incoming();
        local.set_state(State::READY);
        local.set_expected(ThreadId::NOBODY);
        match state.error() {
            None => Ok(Received { from, message, remote: state.is_remote() }),
            Some(error) => Err(error.into()),
        }
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        end(self.block, self.id);
    }
}

/// Ends the number of a thread that died without dropping its [`Endpoint`]; nothing if there is no such thread (any more).
pub fn end_abandoned(id: ThreadId) {
    if let Some(block) = registry::find(id) {
        end(block, id);
    }
}

/// The number means nobody from here on: who waits for the thread is told, and the block is free.
#[inline(never)]
fn end(block: RemoteBlock, id: ThreadId) {
    let bond = current().bind();
    {
        let off = interrupt::disable();
        while block.local(&off).is_none() {
            let Some(owner) = block.owner() else { break };
            mail::request(owner, Request::Adopt { block: block.index() }, &off);
        }
        if !block.is(id) {
            return;
        }
        leave_queue(block, &off);
        life::mark_dead(block);
    }
    drain(block);
    for other in registry::all() {
        if other.expected() == id {
            let off = interrupt::disable();
            handler::tell(other, Event::PartnerGone(id), &off);
        }
    }
    life::forget_thread(block);
    drop(bond);
    registry::give_back(block);
}

/// A thread that died in the midst of a send may still be queued.
fn leave_queue(block: RemoteBlock, off: &InterruptGuard) {
    while let Some(receiver) = registry::block(block.queued_at()) {
        match (receiver.local(off), receiver.owner()) {
            (Some(local), _) => {
                handler::take_back(&local, block);
            }
            (None, Some(owner)) => {
                let cancel = Request::Cancel { sender: block.index(), receiver: receiver.index() };
                mail::request(owner, cancel, off);
            }
            (None, None) => return,
        }
    }
}

/// Tells the senders that wait for a thread that has ended. Each of them in an atomic section of its own.
fn drain(block: RemoteBlock) {
    while !defects::has(defects::FORGETS_QUEUE) {
        let off = interrupt::disable();
        let Some(local) = block.local(&off) else { return };
        let Some(sender) = queue::first(&local, ThreadId::ANYBODY) else { return };
        queue::remove(&local, sender);
        handler::tell(sender, Event::ReceiverGone, &off);
    }
}

/// Ends the operation that a thread is in, if it is in one: lthread_ex_regs' part in message passing. Returns whether there was one.
///
/// # Errors
/// [`Failure`].
pub fn cancel(id: ThreadId, caller: &Caller, canceler: Option<&Endpoint>) -> Result<bool, Failure> {
    let target = registry::find(id).ok_or(Failure::Ipc(Error::NotExistent))?;
    if canceler.is_some_and(|endpoint| endpoint.id == id) {
        return Err(Failure::Refused(Refusal::OwnId));
    }
    if !target.may_be_canceled_by(caller) {
        return Err(Failure::Refused(Refusal::NotPermitted));
    }
    let off = interrupt::disable();
    let partitioned = target.is_partitioned() || canceler.is_some_and(|own| own.block.is_partitioned());
    if partitioned && target.local(&off).is_none() {
        return Err(Failure::Refused(Refusal::OtherCpu));
    }
    match handler::tell(target, Event::Canceled, &off) {
        Response::NotExistent => Err(Error::NotExistent.into()),
        response => Ok(response == Response::Done),
    }
}

/// Whether the caller may send to a thread and, where either is partitioned, is on the same CPU: what it takes to make it a pager, or to give it pages.
///
/// # Errors
/// [`Failure`].
pub fn check_reach(id: ThreadId, caller: &Caller, own: Option<&Endpoint>) -> Result<(), Failure> {
    let target = registry::find(id).ok_or(Failure::Ipc(Error::NotExistent))?;
    let own_id = own.map_or(ThreadId::NOBODY, |endpoint| endpoint.id);
    if own_id == id {
        return Err(Failure::Refused(Refusal::OwnId));
    }
    if !target.admits(own_id, caller) {
        return Err(Failure::Refused(Refusal::NotPermitted));
    }
    let partitioned = target.is_partitioned() || own.is_some_and(|own| own.block.is_partitioned());
    let off = interrupt::disable();
    if partitioned && target.local(&off).is_none() {
        return Err(Failure::Refused(Refusal::OtherCpu));
    }
    Ok(())
}

/// The thread that has a number.
pub fn thread_of(id: ThreadId) -> Option<ThreadRef> {
    let block = registry::find(id)?;
    let thread = block.with_thread(ThreadRef::clone)?;
    // Numbers are not used again, but blocks are.
    block.is(id).then_some(thread)
}

/// The CPU that a thread was on in its last operation.
pub fn cpu_of(id: ThreadId) -> Option<CpuId> {
    registry::find(id)?.owner()
}
