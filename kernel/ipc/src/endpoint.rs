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
//! no requests are needed, and a thread that will sleep anyway gives the CPU to the one that it has just made ready ([`HandOver`](sched::HandOver)).
//!
//! While it is in an operation a thread is [bound](sched::Bound) to its CPU.

use core::sync::atomic::{AtomicBool, Ordering};

use machine::cpu::CpuId;
use machine::interrupt::{self, InterruptGuard};
use machine::preempt;
use memory::OutOfMemory;
use sched::{ThreadRef, current};
use sync::rcu::RcuBox;

use crate::block::{Bond, OPEN_TO_ALL, OwnBlock, PARTITIONED, RemoteBlock, life};
use crate::defects;
use crate::handler;
use crate::id::ThreadId;
use crate::mail::{self, Event, Request, Response};
use crate::operation::{Caller, Error, Failure, Operation, Received, Refusal};
use crate::queue;
use crate::receiving::receive_message;
use crate::registry;
use crate::sending::send_message;
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
        let bond = Bond::new();
        let off = interrupt::disable();
        self.own(&bond, &off).local(&off).add_flags(OPEN_TO_ALL);
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
        let bond = Bond::new();
        let result = self.operate_here(operation, caller, &bond);
        drop(bond);
        // Who was woken with interrupts off may be more urgent.
        if preempt::need_resched() {
            drop(preempt::disable());
        }
        result
    }

    fn operate_here(
        &mut self,
        operation: &Operation,
        caller: &Caller,
        bond: &Bond,
    ) -> Result<Received, Failure> {
        let mut claimed = None;
        let off = interrupt::disable();
        let own = self.own(bond, &off);
        own.local(&off).set_users(caller);
        count(Counter::Operations, &off);
        let remote = match &operation.send {
            Some(send) => {
                send_message(own, self.id, send, operation.receive.as_ref(), caller, &mut claimed, off)?
            }
            None => {
                drop(off);
                false
            }
        };
        match &operation.receive {
            Some(receive) => receive_message(own, receive, claimed),
            None => Ok(Received { from: ThreadId::NOBODY, message: [0; crate::WORDS], remote }),
        }
    }

    /// The block, for an operation of the thread.
    #[inline(always)]
    fn own<'bond>(&self, bond: &'bond Bond, off: &InterruptGuard) -> OwnBlock<'bond> {
        if !self.block.is_here() {
            self.fetch(off);
        }
        self.block.own(bond, off)
    }

    /// Fetches the block: the thread has migrated since its last operation.
    #[cold]
    #[inline(never)]
    fn fetch(&self, off: &InterruptGuard) {
        while !self.block.is_here() {
            let owner = self.block.owner().expect("a registered thread's block has an owner");
            mail::request(owner, Request::Adopt { block: self.block.index() }, off);
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
    let bond = Bond::new();
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
