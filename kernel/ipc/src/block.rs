//! Control blocks, and who may touch what of them (specs/fiasco-mp.md, items 15 and 50).
//!
//! Every block has an *owner*: the CPU that its thread was on in its last operation. While a thread is in an operation it is bound to that
//! CPU; a thread that comes to its next operation on another CPU first asks the old owner to hand the block over. Rules:
//!
//! - Only the owner writes, with interrupts off: that is a [`LocalBlock`], which exists only as long as an interrupt guard and only on the
//!   owner.
//! - Nobody but its own thread asks for a block (and, once that will never run again, who ends its number), so a block stays where it is
//!   during an operation. Its thread makes sure of the owner once, when the operation begins: that is an [`OwnBlock`], which lives as long as
//!   the thread is bound.
//! - Others read atomically: [`RemoteBlock`].
//! - One exception: the links of a waiting sender belong to the CPU that owns the *receiver*, from the offer until the sender is taken out of
//!   the queue. That right is [`QueueLinks`], which only a [`LocalBlock`] of the receiver gives out (`queue`).
//! - A block without a thread belongs to the allocator of numbers (`registry`).
//!
//! All fields are atomics only so that blocks can be shared; the owner's accesses are relaxed and cost what plain ones do. What one owner
//! wrote is visible to the next because the hand-over is a request with its answer.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use machine::cpu::{self, CpuId};
use machine::interrupt::InterruptGuard;
use sched::{Bound, HandOver, ThreadRef, current};
use sync::rcu;

use crate::defects;
use crate::id::ThreadId;
use crate::operation::{Caller, Error, Message, WORDS};
use crate::queue::QueueHead;
use crate::registry;
use crate::state::{Kind, State};

/// Bit of `life`: there is a thread.
const ALIVE: u32 = 1;
/// Takes messages from every user.
pub(crate) const OPEN_TO_ALL: u32 = 1;
/// Partitioned.
pub(crate) const PARTITIONED: u32 = 2;

/// `owner` of a block that never had a thread.
const NO_OWNER: u32 = u32::MAX;

/// See the theory of this file. Four cache lines, by who writes and who reads them.
#[repr(C, align(256))]
pub(crate) struct ControlBlock {
    /// Version of the number above [`ALIVE`]. Written by the registry.
    life: AtomicU32,
    /// The owner, [`NO_OWNER`] before the first. Written by the owner, to hand the block over; by the registry while there is no thread.
    owner: AtomicU32,
    state: AtomicU32,
    /// Flags of the thread.
    flags: AtomicU32,
    /// To whom it sends; valid while POLLING.
    partner: AtomicU64,
    /// From whom it wants to receive; nobody outside of an operation.
    expected: AtomicU64,
    /// See [`Caller::users`].
    users: AtomicU64,
    thread: rcu::Pointer<ThreadRef>,
    /// What it sends; does not change while it waits.
    outgoing: Outgoing,
    links: Links,
    incoming: Incoming,
}

#[repr(C, align(64))]
struct Outgoing {
    words: [AtomicU64; WORDS],
    /// Its place among waiting senders.
    priority: AtomicU32,
}

/// A waiting sender's place in its receiver's queue. Written by the CPU that owns the receiver; numbers of blocks, 0 for none.
#[repr(C, align(64))]
pub(crate) struct Links {
    /// The receiver in whose queue it is.
    pub(crate) queued_at: AtomicU32,
    pub(crate) next: AtomicU32,
    pub(crate) previous: AtomicU32,
    /// First sender of the next lower priority; valid for the first of each priority.
    pub(crate) next_group: AtomicU32,
    /// First sender of the next higher priority; likewise.
    pub(crate) previous_group: AtomicU32,
}

#[repr(C, align(64))]
struct Incoming {
    queue: QueueHead,
    words: [AtomicU64; WORDS],
    source: AtomicU64,
}

const _: () = assert!(size_of::<ControlBlock>() == 256, "sixteen control blocks fill a page");

impl ControlBlock {
    pub(crate) fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self {
            life: zero(),
            owner: AtomicU32::new(NO_OWNER),
            state: zero(),
            flags: zero(),
            partner: AtomicU64::new(0),
            expected: AtomicU64::new(0),
            users: AtomicU64::new(0),
            thread: rcu::Pointer::null(),
            outgoing: Outgoing { words: [const { AtomicU64::new(0) }; WORDS], priority: zero() },
            links: Links {
                queued_at: zero(),
                next: zero(),
                previous: zero(),
                next_group: zero(),
                previous_group: zero(),
            },
            incoming: Incoming {
                queue: QueueHead::new(),
                words: [const { AtomicU64::new(0) }; WORDS],
                source: AtomicU64::new(0),
            },
        }
    }
}

/// A block as CPUs see it that do not own it.
#[derive(Clone, Copy)]
pub(crate) struct RemoteBlock {
    block: &'static ControlBlock,
    index: u32,
}

impl RemoteBlock {
    pub(crate) fn new(block: &'static ControlBlock, index: u32) -> Self {
        Self { block, index }
    }

    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// The number of its thread; nobody if there is none.
    #[inline(always)]
    pub(crate) fn id(self) -> ThreadId {
        // Acquire: pairs with the Release in `bring_to_life`.
        let life = self.block.life.load(Ordering::Acquire);
        if life & ALIVE == 0 { ThreadId::NOBODY } else { ThreadId::new(self.index, life >> 1) }
    }

    /// Whether the number is that of its thread.
    #[inline(always)]
    pub(crate) fn is(self, id: ThreadId) -> bool {
        self.id() == id && id != ThreadId::NOBODY
    }

    #[inline(always)]
    pub(crate) fn owner(self) -> Option<CpuId> {
        let owner = self.block.owner.load(Ordering::Relaxed);
        (owner != NO_OWNER).then(|| CpuId::from_index(owner as usize))
    }

    #[inline(always)]
    pub(crate) fn state(self) -> State {
        State::from_bits(self.block.state.load(Ordering::Relaxed))
    }

    pub(crate) fn expected(self) -> ThreadId {
        ThreadId::from_bits(self.block.expected.load(Ordering::Relaxed))
    }

    pub(crate) fn priority(self) -> u32 {
        self.block.outgoing.priority.load(Ordering::Relaxed)
    }

    /// The receiver in whose queue it waits; 0 for none. Reliable on the CPU that owns that receiver.
    pub(crate) fn queued_at(self) -> u32 {
        self.block.links.queued_at.load(Ordering::Relaxed)
    }

    pub(crate) fn is_partitioned(self) -> bool {
        self.block.flags.load(Ordering::Relaxed) & PARTITIONED != 0
    }

    /// Whether it takes messages from this thread, for whom the caller acts: the rule of kill(2), unless it is open to all or waits for
    /// just this thread's answer.
    pub(crate) fn admits(self, sender: ThreadId, caller: &Caller) -> bool {
        caller.may_send_to(self.block.users.load(Ordering::Relaxed))
            || self.block.flags.load(Ordering::Relaxed) & OPEN_TO_ALL != 0
            || self.expected() == sender
    }

    /// Whether the caller may end its operations: the rule of kill(2).
    pub(crate) fn may_be_canceled_by(self, caller: &Caller) -> bool {
        caller.may_send_to(self.block.users.load(Ordering::Relaxed))
    }

    /// What it sends. The thread waits.
    #[inline(always)]
    fn outgoing(self) -> Message {
        core::array::from_fn(|index| self.block.outgoing.words[index].load(Ordering::Relaxed))
    }

    /// The block as its owner sees it; `None` on other CPUs.
    #[inline(always)]
    pub(crate) fn local(self, _off: &InterruptGuard) -> Option<LocalBlock<'_>> {
        self.is_here().then_some(LocalBlock { remote: self, _off: core::marker::PhantomData })
    }

    /// Whether this CPU is the owner.
    #[inline(always)]
    pub(crate) fn is_here(self) -> bool {
        if cfg!(feature = "local-only") {
            return true;
        }
        let here = cpu::current().index() as u32;
        self.block.owner.load(Ordering::Relaxed) == here
    }

    /// The block as its own thread sees it in an operation. For that thread only, on the owner.
    #[inline(always)]
    pub(crate) fn own<'bond>(self, _bond: &'bond Bond, _off: &InterruptGuard) -> OwnBlock<'bond> {
        debug_assert!(self.is_here(), "a thread fetches its block before it begins an operation");
        OwnBlock { remote: self, _bond: core::marker::PhantomData }
    }

    /// Calls the closure with the thread. Interrupts are off or a read section is open.
    #[inline(always)]
    pub(crate) fn with_thread<R>(self, act: impl FnOnce(&ThreadRef) -> R) -> Option<R> {
        let section = rcu::read();
        self.block.thread.read(&section).map(act)
    }
}

/// The calling thread is bound to its CPU while this lives. Where there is one CPU only, nothing needs to be done for that.
pub(crate) struct Bond {
    _bound: Option<Bound>,
}

impl Bond {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self { _bound: (!cfg!(feature = "local-only")).then(|| current().bind()) }
    }
}

/// The calling thread's block during an operation: this CPU owns it.
#[derive(Clone, Copy)]
pub(crate) struct OwnBlock<'bond> {
    remote: RemoteBlock,
    _bond: core::marker::PhantomData<&'bond Bond>,
}

impl OwnBlock<'_> {
    pub(crate) fn remote(self) -> RemoteBlock {
        self.remote
    }

    pub(crate) fn state(self) -> State {
        self.remote.state()
    }

    #[inline(always)]
    pub(crate) fn local(self, _off: &InterruptGuard) -> LocalBlock<'_> {
        debug_assert!(self.remote.is_here(), "a thread in an operation is on the CPU that owns its block");
        LocalBlock { remote: self.remote, _off: core::marker::PhantomData }
    }
}

/// How a thread whose wait has ended is woken.
pub(crate) enum Waking<'a> {
    /// As usual.
    Now,
    /// Not yet: the caller will sleep, and gives it the CPU then.
    Claim(&'a mut Option<HandOver>),
}

/// A block on the CPU that owns it, with interrupts off.
pub(crate) struct LocalBlock<'off> {
    remote: RemoteBlock,
    _off: core::marker::PhantomData<&'off InterruptGuard>,
}

impl LocalBlock<'_> {
    /// The same again, for who wants it by value: in registers.
    #[inline(always)]
    pub(crate) fn again(&self) -> LocalBlock<'_> {
        LocalBlock { remote: self.remote, _off: core::marker::PhantomData }
    }

    pub(crate) fn remote(&self) -> RemoteBlock {
        self.remote
    }

    fn block(&self) -> &'static ControlBlock {
        self.remote.block
    }

    pub(crate) fn state(&self) -> State {
        self.remote.state()
    }

    #[inline(always)]
    pub(crate) fn set_state(&self, state: State) {
        self.block().state.store(state.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn queue(&self) -> &'static QueueHead {
        &self.block().incoming.queue
    }

    /// Gives the block to another CPU; nothing of it may be written here any more.
    pub(crate) fn hand_over(self, to: CpuId) {
        self.block().owner.store(to.index() as u32, Ordering::Release);
    }

    pub(crate) fn set_users(&self, caller: &Caller) {
        self.block().users.store(caller.users(), Ordering::Relaxed);
    }

    pub(crate) fn add_flags(&self, flags: u32) {
        let word = &self.block().flags;
        word.store(word.load(Ordering::Relaxed) | flags, Ordering::Relaxed);
    }

    /// Prepares an offer.
    #[inline(always)]
    pub(crate) fn prepare_send(&self, to: ThreadId, message: &Message, priority: u32, state: State) {
        debug_assert_eq!(self.state().kind(), Kind::Ready, "a thread is in one operation at a time");
        let block = self.block();
        for (place, word) in block.outgoing.words.iter().zip(message) {
            place.store(*word, Ordering::Relaxed);
        }
        block.outgoing.priority.store(priority, Ordering::Relaxed);
        block.partner.store(to.to_bits(), Ordering::Relaxed);
        self.set_state(state);
    }

    #[inline(always)]
    pub(crate) fn set_expected(&self, from: ThreadId) {
        self.block().expected.store(from.to_bits(), Ordering::Relaxed);
    }

    /// Whether it receives this sender's message at once. Who comes while others wait waits behind them.
    #[inline(always)]
    pub(crate) fn accepts(&self, sender: ThreadId) -> bool {
        let state = self.state();
        if state.kind() != Kind::Receiving || state.is_canceled() {
            return false;
        }
        match self.remote.expected() {
            ThreadId::ANYBODY => self.queue().is_empty(),
            expected => expected == sender,
        }
    }

    /// Takes a waiting sender's message; `id` is its number.
    #[inline(always)]
    pub(crate) fn take_message(&self, sender: RemoteBlock, id: ThreadId) {
        let incoming = &self.block().incoming;
        for (place, word) in incoming.words.iter().zip(sender.outgoing()) {
            place.store(word, Ordering::Relaxed);
        }
        incoming.source.store(id.to_bits(), Ordering::Relaxed);
    }

    /// What was received last.
    #[inline(always)]
    pub(crate) fn incoming(&self) -> (ThreadId, Message) {
        let incoming = &self.block().incoming;
        let message = core::array::from_fn(|index| incoming.words[index].load(Ordering::Relaxed));
        (ThreadId::from_bits(incoming.source.load(Ordering::Relaxed)), message)
    }

    /// Its message has been taken: the receive that follows begins here, whether the thread runs or not.
    #[inline(always)]
    pub(crate) fn accepted(&self, remote: bool) {
        let mut next = self.state().accepted().with_remote(remote);
        if defects::has(defects::LATE_RECEIVE) && next.kind() == Kind::Receiving {
            return self.set_state(State::READY);
        }
        if next.kind() == Kind::Receiving && !self.queue().is_empty() {
            next = next.with_thread_needed();
        }
        self.set_state(next);
        if next.kind() == Kind::Receiving {
            self.abort_if_orphaned();
        }
    }

    /// Begins to receive.
    #[inline(never)]
    pub(crate) fn begin_receiving(self, from: ThreadId) {
        self.set_expected(from);
        self.set_state(State::receiving().with_remote(self.state().is_remote()));
        self.abort_if_orphaned();
    }

    /// A thread that ends looks, after it is marked as dead, for those that wait for it; who begins to wait looks, after that is visible,
    /// whether the other is dead. One of them sees it.
    #[inline(always)]
    fn abort_if_orphaned(&self) {
        let expected = self.remote.expected();
        if expected != ThreadId::ANYBODY {
            if !cfg!(feature = "local-only") {
                // Pairs with the fence in `registry::end`.
                fence(Ordering::SeqCst);
            }
            if !registry::exists(expected) {
                self.set_state(self.state().failed(Error::ReceiveAborted));
            }
        }
    }

    /// Wakes the thread, if it sleeps.
    #[inline(always)]
    pub(crate) fn wake(&self, waking: Waking<'_>) {
        self.remote.with_thread(|thread| match waking {
            Waking::Now => {
                thread.wake();
            }
            Waking::Claim(claimed) => {
                debug_assert!(claimed.is_none(), "a thread gives its CPU to one other");
                *claimed = HandOver::claim(thread);
            }
        });
    }

    /// The right to write the links of a sender that waits here or is about to.
    #[inline(always)]
    pub(crate) fn links_of(&self, sender: RemoteBlock) -> QueueLinks<'_> {
        let links = &sender.block.links;
        debug_assert!(
            [0, self.remote.index].contains(&links.queued_at.load(Ordering::Relaxed)),
            "a sender waits in one queue"
        );
        QueueLinks { links, _receiver: core::marker::PhantomData }
    }
}

/// The links of a sender, on the CPU that owns the receiver.
pub(crate) struct QueueLinks<'local> {
    pub(crate) links: &'static Links,
    _receiver: core::marker::PhantomData<&'local ()>,
}

/// What only the registry does: blocks without a thread.
pub(crate) mod life {
    use super::{ALIVE, ControlBlock, Ordering, RemoteBlock, ThreadId, ThreadRef, cpu, fence, rcu};
    use machine::interrupt::InterruptGuard;

    /// Gives the block its thread, on this CPU. Returns its number.
    pub(crate) fn bring_to_life(
        remote: RemoteBlock,
        thread: rcu::RcuBox<ThreadRef>,
        users: u64,
        flags: u32,
        _off: &InterruptGuard,
    ) -> ThreadId {
        let block: &ControlBlock = remote.block;
        let before = block.life.load(Ordering::Relaxed);
        debug_assert_eq!(before & ALIVE, 0, "a free block has no thread");
        let version = (before >> 1).wrapping_add(1) & (u32::MAX >> 1);
        let version = if version == 0 { 1 } else { version };
        block.state.store(0, Ordering::Relaxed);
        block.expected.store(0, Ordering::Relaxed);
        block.partner.store(0, Ordering::Relaxed);
        block.users.store(users, Ordering::Relaxed);
        block.flags.store(flags, Ordering::Relaxed);
        block.thread.replace(Some(thread));
        block.owner.store(cpu::current().index() as u32, Ordering::Relaxed);
        // Release: pairs with the Acquire in `RemoteBlock::id`.
        block.life.store(version << 1 | ALIVE, Ordering::Release);
        ThreadId::new(remote.index, version)
    }

    /// The number means nobody from here on. On the owner.
    pub(crate) fn mark_dead(remote: RemoteBlock) {
        let life = remote.block.life.load(Ordering::Relaxed);
        debug_assert_eq!(life & ALIVE, ALIVE, "a thread ends once");
        remote.block.life.store(life & !ALIVE, Ordering::Release);
        // Pairs with the fence in `LocalBlock::abort_if_orphaned`.
        fence(Ordering::SeqCst);
    }

    /// Forgets the thread; nobody waits any more.
    pub(crate) fn forget_thread(remote: RemoteBlock) {
        remote.block.thread.replace(None);
    }

    /// A word of a free block, for the list of free ones.
    pub(crate) fn free_link(remote: RemoteBlock) -> &'static core::sync::atomic::AtomicU32 {
        &remote.block.links.next
    }
}
