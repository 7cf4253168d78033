//! One end of a pair: what waits to be read there, and what its socket has under way.
//!
//! # State
//! The inbox is under a sleeping lock, since a reader of a stream copies to user memory while it holds it. `queued` mirrors
//! its length for who waits or polls. `state` collects what has become of the socket: bits are only ever set. `error` is reported once
//! by the next call. `charged` is what this end's messages in the other's inbox count.
//!
//! # Locking
//! A thread holds one inbox at a time, and drops no message while it does: the last reference of a passed file may be in it.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use sched::{WaitError, WaitQueue};
use sync::Once;
use vfs::poll::{PollEvents, PollList};
use vfs::{Error, OpenFile, Result, allocation};

use super::endpoint::Endpoint;
use super::identity::Principal;
use super::listen::Listener;
use super::message::Message;
use super::name::Name;
use super::options::{Direction, Options};

/// Bits of an end's state.
pub(super) mod state {
    /// Nothing more will be received (`RCV_SHUTDOWN`).
    pub(in super::super) const RECEIVE_SHUT: u8 = 1;
    /// Nothing more can be sent.
    pub(in super::super) const SEND_SHUT: u8 = 2;
    /// Both.
    pub(in super::super) const SHUT: u8 = 3;
    /// Its socket is gone.
    pub(in super::super) const CLOSED: u8 = 4;
    /// The two ends of the pair are a connection.
    pub(in super::super) const CONNECTED: u8 = 8;
    /// Others may connect to it.
    pub(in super::super) const LISTENING: u8 = 16;
    /// A datagram socket that sends to what its link says, not to the other end.
    pub(in super::super) const REDIRECTED: u8 = 32;
}

/// See `max_dgram_qlen`.
const DATAGRAMS_DEFAULT: u32 = super::options::settings::DATAGRAMS_DEFAULT;

/// All events, for changes that concern everybody.
const EVERYTHING: PollEvents = PollEvents::INPUT
    .union(PollEvents::OUTPUT)
    .union(PollEvents::ALWAYS)
    .union(PollEvents::WRITE_BAND)
    .union(PollEvents::READ_HANG_UP);

/// What a socket is connected to, as far as that can change.
pub(super) struct Link {
    /// Of a datagram socket that is redirected.
    pub(super) remote: Option<Endpoint>,
    /// Whose the other end is, or of a listening socket: whose it is itself (`SO_PEERCRED`). Unless somebody made both ends at once.
    pub(super) peer: Option<Principal>,
}

/// What a peek with an offset has passed over without finding anything.
#[derive(Clone, Copy)]
pub(super) struct Passed {
    messages: usize,
    turn: u32,
}

/// An end of a pair.
pub(super) struct End {
    pub(super) inbox: sched::Mutex<VecDeque<Message>>,
    queued: AtomicUsize,
    state: AtomicU8,
    error: AtomicU32,
    /// There is a byte out of band. Written with the inbox locked.
    pub(super) is_urgent: AtomicBool,
    /// The open file of its socket, whose owner is told of bytes out of band. Set once, when there is one.
    pub(super) file: Once<Weak<OpenFile>>,
    /// Locked, too, while the socket gets a name or a connection.
    pub(super) link: sched::Mutex<Link>,
    /// Set once, with the link locked.
    pub(super) name: Once<Arc<Name>>,
    /// Of the name as it was bound. Written before the name.
    pub(super) bound_hash: AtomicU64,
    /// Of a listening socket; set once, with the link locked.
    pub(super) listener: Once<Box<Listener>>,
    /// The number of the listening socket where this end waits to be accepted; 0: nowhere.
    pub(super) queued_at: AtomicU64,
    /// Connections that may wait, or messages that others may leave; one more than this may.
    pub(super) backlog: AtomicU32,
    charged: AtomicUsize,
    readers: WaitQueue,
    writers: WaitQueue,
    pub(super) pollers: PollList,
    pub(super) options: Options,
}

impl End {
    pub(super) const fn new(state: u8) -> Self {
        Self {
            inbox: sched::Mutex::new(VecDeque::new()),
            queued: AtomicUsize::new(0),
            state: AtomicU8::new(state),
            error: AtomicU32::new(0),
            is_urgent: AtomicBool::new(false),
            file: Once::new(),
            link: sched::Mutex::named("link of a socket", Link { remote: None, peer: None }),
            name: Once::new(),
            bound_hash: AtomicU64::new(0),
            listener: Once::new(),
            queued_at: AtomicU64::new(0),
            backlog: AtomicU32::new(DATAGRAMS_DEFAULT),
            charged: AtomicUsize::new(0),
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            pollers: PollList::new(),
            options: Options::new(),
        }
    }

    /// Whether any of the bits is set.
    pub(super) fn has(&self, bits: u8) -> bool {
        self.state() & bits != 0
    }

    pub(super) fn state(&self) -> u8 {
        // Acquire: pairs with the AcqRel in `enter`.
        self.state.load(Ordering::Acquire)
    }

    /// Sets bits of the state and tells everybody.
    pub(super) fn enter(&self, bits: u8) {
        self.state.fetch_or(bits, Ordering::AcqRel);
        self.tell_everybody();
    }

    fn tell_everybody(&self) {
        self.readers.wake_all();
        self.writers.wake_all();
        self.pollers.notify(EVERYTHING);
    }

    /// Leaves an error for the next call.
    pub(super) fn fail(&self, error: Error) {
        self.error.store(error as u32, Ordering::Release);
    }

    /// Whether there is an error to report.
    pub(super) fn has_error(&self) -> bool {
        self.error.load(Ordering::Acquire) != 0
    }

    /// Takes the error; 0: none.
    pub(super) fn take_error(&self) -> u32 {
        if self.has_error() { self.error.swap(0, Ordering::AcqRel) } else { 0 }
    }

    /// Fails with the error that was left, once.
    pub(super) fn report_error(&self) -> Result<()> {
        // A connection that was reset is the only error there is.
        if self.take_error() != 0 { Err(Error::ConnectionReset) } else { Ok(()) }
    }

    /// Publishes how many messages are queued; with the inbox locked.
    pub(super) fn publish(&self, inbox: &VecDeque<Message>) {
        self.publish_length(inbox.len());
    }

    /// The same, of whatever waits here.
    pub(super) fn publish_length(&self, length: usize) {
        // Release: pairs with the Acquire in `is_empty` and `is_over_backlog`.
        self.queued.store(length, Ordering::Release);
    }

    /// Whether more waits here than shall.
    pub(super) fn is_over_backlog(&self) -> bool {
        self.queued.load(Ordering::Acquire) > self.backlog.load(Ordering::Acquire) as usize
    }

    /// Waits until less waits here, or nothing will ever be taken.
    pub(super) fn wait_for_backlog(&self, deadline_ns: Option<u64>) -> Result<()> {
        let ready = || !self.is_over_backlog() || self.has(state::CLOSED | state::RECEIVE_SHUT);
        self.writers.wait_interruptible_deadline(ready, deadline_ns).map_err(of_wait)
    }

    /// Something was taken out: others that found too much here look again.
    pub(super) fn writers_may_look(&self) {
        // `WaitQueue::wake_all` orders what was published before its look for waiters.
        self.writers.wake_all();
        self.pollers.notify(PollEvents::OUTPUT | PollEvents::WRITE_BAND);
    }

    /// Something was put in.
    pub(super) fn tell_readers(&self) {
        self.readers.wake_one();
        self.pollers.notify(PollEvents::INPUT);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queued.load(Ordering::Acquire) == 0
    }

    /// Puts a message in. It comes back when this end takes none.
    pub(super) fn put(&self, message: Message) -> Result<(), (Error, Message)> {
        let mut inbox = self.inbox.lock();
        let current = self.state();
        if current & (state::CLOSED | state::RECEIVE_SHUT | state::REDIRECTED) != 0 {
            // Of what was connected elsewhere meanwhile the link decides.
            let is_redirected = current & state::REDIRECTED != 0;
            return Err((if is_redirected { Error::NotPermitted } else { Error::BrokenPipe }, message));
        }
        if inbox.len() == inbox.capacity()
            && (allocation::fail_point().is_err() || inbox.try_reserve(1).is_err())
        {
            return Err((Error::OutOfMemory, message));
        }
        if message.is_urgent {
            self.mark(&mut inbox);
        }
        inbox.push_back(message);
        self.publish(&inbox);
        drop(inbox);
        self.tell_readers();
        Ok(())
    }

    /// Takes everything out: the socket is gone, or its messages are void. The caller drops what it gets.
    pub(super) fn take_all(&self) -> VecDeque<Message> {
        let mut inbox = self.inbox.lock();
        let all = core::mem::take(&mut *inbox);
        self.publish(&inbox);
        self.is_urgent.store(false, Ordering::Relaxed);
        all
    }

    /// After a look that left something: it is for others of its kind.
    pub(super) fn pass_on(&self) {
        if !self.is_empty() && !self.readers.is_empty() {
            self.readers.wake_one();
        }
    }

    /// Waits until there is something to receive, or there never will be.
    pub(super) fn wait_readable(&self, deadline_ns: Option<u64>) -> Result<()> {
        let ready = || !self.is_empty() || self.has(state::RECEIVE_SHUT) || self.has_error();
        let outcome = match deadline_ns {
            None => self.readers.wait_interruptible_exclusive(ready).map_err(|_| WaitError::Interrupted),
            Some(_) => self.readers.wait_interruptible_deadline(ready, deadline_ns),
        };
        outcome.map_err(of_wait)
    }

    /// A peek has passed over everything; with the inbox locked.
    pub(super) fn pass_over(&self, inbox: &VecDeque<Message>) -> Passed {
        Passed { messages: inbox.len(), turn: self.options.peek_turn() }
    }

    /// Whether there is nothing that a peek has not passed over. The turn tells a message that went and one that came from none of both.
    pub(super) fn is_passed(&self, passed: Passed) -> bool {
        self.queued.load(Ordering::Acquire) == passed.messages && self.options.peek_turn() == passed.turn
    }

    /// Waits until there is something that a peek has not passed over, or there never will be. Not exclusively: what comes may lie before its offset, and be
    /// for others.
    pub(super) fn wait_beyond(&self, passed: Passed, deadline_ns: Option<u64>) -> Result<()> {
        let ready = || !self.is_passed(passed) || self.has(state::RECEIVE_SHUT) || self.has_error();
        self.readers.wait_interruptible_deadline(ready, deadline_ns).map_err(of_wait)
    }

    /// Counts bytes of a message that is about to be sent.
    pub(super) fn charge(&self, bytes: usize) {
        self.charged.fetch_add(bytes, Ordering::AcqRel);
    }

    /// A message of this end was received or dropped.
    pub(super) fn uncharge(&self, bytes: usize) {
        let before = self.charged.fetch_sub(bytes, Ordering::AcqRel);
        debug_assert!(before >= bytes, "a message was counted that was not sent");
        let low = self.options.buffer(Direction::Send) / 4;
        if before > low && before - bytes <= low {
            self.room_again();
        }
    }

    /// There is room again, or more of it.
    pub(super) fn room_again(&self) {
        self.writers.wake_all();
        self.pollers.notify(PollEvents::OUTPUT | PollEvents::WRITE_BAND);
    }

    /// What is under way from this end.
    pub(super) fn charged(&self) -> usize {
        self.charged.load(Ordering::Acquire)
    }

    fn has_room(&self) -> bool {
        self.charged() < self.options.buffer(Direction::Send)
    }

    /// Whether polls show it writable: a quarter of the buffer at most is used.
    pub(super) fn is_writable(&self) -> bool {
        self.charged() <= self.options.buffer(Direction::Send) / 4
    }

    /// Waits until a message may be sent.
    pub(super) fn wait_for_room(&self, non_block: bool, deadline_ns: Option<u64>) -> Result<()> {
        loop {
            self.report_error()?;
            if self.has(state::SEND_SHUT) {
                return Err(Error::BrokenPipe);
            }
            if self.has_room() {
                return Ok(());
            }
            if non_block {
                return Err(Error::WouldBlock);
            }
            let ready = || self.has_room() || self.has(state::SEND_SHUT) || self.has_error();
            self.writers.wait_interruptible_deadline(ready, deadline_ns).map_err(of_wait)?;
        }
    }
}

/// A call whose time is over has nothing to give: `EAGAIN`.
fn of_wait(error: WaitError) -> Error {
    match error {
        WaitError::Interrupted => Error::Interrupted,
        WaitError::TimedOut => Error::WouldBlock,
    }
}
