//! What carries messages.
//!
//! A driver makes itself known as a [`Transport`] under a name ([`register`]); mounting takes it for itself ([`take`]) and gives it back. A request is an [`Exchange`]:
//! a message, with data in frames before or behind it, and room for the reply. The transport ends each exchange exactly once, in whatever order.
//!
//! # Locking
//! The outcome of an exchange is under its own spin lock. Whoever is told of the end (`Ending`) is told without one.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use memory::frame::Frame;
use memory::{OutOfMemory, fallible};
use sched::WaitQueue;
use sync::SpinLock;
use vfs::{Error, Result, allocation};

use crate::client::Tag;

/// A part of a frame that data is in.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The frame.
    pub frame: Frame,
    /// Where it begins.
    pub offset: usize,
    /// How long it is.
    pub bytes: usize,
}

/// Data of a message that lies in frames.
#[derive(Debug)]
pub enum Data {
    /// There is none.
    None,
    /// It follows the request.
    Sent(Vec<Piece>),
    /// It follows the first [`DATA_HEADER_BYTES`](crate::wire::DATA_HEADER_BYTES) of the reply.
    Received(Vec<Piece>),
}

/// How an exchange ended.
#[derive(Debug)]
pub struct Reply {
    /// What arrived outside of frames.
    pub bytes: Vec<u8>,
    /// Bytes that arrived altogether.
    pub total: usize,
}

/// Is told when an exchange has ended, by the transport: it may not wait for other exchanges.
pub type Ending = Box<dyn FnOnce(u16, Result<Reply>) + Send>;

enum State {
    /// With memory for the reply.
    Pending(Vec<u8>, Option<Ending>),
    /// For who waits.
    Ended(Result<Reply>),
    /// The outcome was taken.
    Over,
}

/// A request on its way, and its reply.
pub struct Exchange {
    tag: Tag,
    request: Vec<u8>,
    data: Data,
    room: usize,
    state: SpinLock<State>,
    ended: AtomicBool,
    waiting: WaitQueue,
    /// One that this is to end: its tag is used as long as this is under way.
    flushes: Option<Arc<Exchange>>,
}

impl Exchange {
    /// A request, with `room` for the part of its reply outside of frames.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn new(
        tag: Tag,
        request: Vec<u8>,
        data: Data,
        room: usize,
        ending: Option<Ending>,
        flushes: Option<Arc<Self>>,
    ) -> Result<Arc<Self>, OutOfMemory> {
        let reply = fallible::try_vec(room)?;
        fallible::try_arc(Self {
            tag,
            request,
            data,
            room,
            state: SpinLock::named("exchange with a file server", State::Pending(reply, ending)),
            ended: AtomicBool::new(false),
            waiting: WaitQueue::new(),
            flushes,
        })
    }

    /// One to test transports with.
    ///
    /// # Errors
    /// No memory.
    #[cfg(not(target_os = "none"))]
    pub fn of_test(
        request: Vec<u8>,
        data: Data,
        room: usize,
        ending: Ending,
    ) -> Result<Arc<Self>, OutOfMemory> {
        Self::new(Tag::of_test(), request, data, room, Some(ending), None)
    }

    /// The tag.
    #[must_use]
    pub fn tag(&self) -> u16 {
        self.tag.number()
    }

    /// The message.
    #[must_use]
    pub fn request(&self) -> &[u8] {
        &self.request
    }

    /// Its data.
    #[must_use]
    pub fn data(&self) -> &Data {
        &self.data
    }

    /// Bytes of the reply that there is room for outside of frames.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// What this asks the server to give up. When its reply is there, there will be none to that.
    #[must_use]
    pub fn flushes(&self) -> Option<&Arc<Self>> {
        self.flushes.as_ref()
    }

    /// The reply has arrived: `total` bytes; `read` copies those that are not in frames. In a context that may sleep.
    pub fn arrived(&self, total: usize, read: impl FnOnce(&mut [u8])) {
        self.end(|mut bytes| {
            bytes.resize(total.min(self.room), 0);
            read(&mut bytes);
            Ok(Reply { bytes, total })
        });
    }

    /// There will be no reply.
    pub fn failed(&self, error: Error) {
        self.end(|_| Err(error));
    }

    fn end(&self, outcome: impl FnOnce(Vec<u8>) -> Result<Reply>) {
        let before = core::mem::replace(&mut *self.state.lock(), State::Over);
        let State::Pending(bytes, ending) = before else {
            debug_assert!(false, "an exchange ends once");
            return;
        };
        let outcome = outcome(bytes);
        match ending {
            Some(ending) => ending(self.tag(), outcome),
            None => *self.state.lock() = State::Ended(outcome),
        }
        // Release: pairs with the Acquire in `is_over`.
        self.ended.store(true, Ordering::Release);
        self.waiting.wake_all();
    }

    /// Whether it has ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Who waits for its end.
    pub(crate) fn waiting(&self) -> &WaitQueue {
        &self.waiting
    }

    /// The outcome, once it has ended.
    pub(crate) fn take(&self) -> Result<Reply> {
        match core::mem::replace(&mut *self.state.lock(), State::Over) {
            State::Ended(outcome) => outcome,
            _ => Err(Error::Io),
        }
    }
}

/// Carries messages to a server.
pub trait Transport: Send + Sync {
    /// The largest message it carries.
    fn message_bytes_max(&self) -> u32;

    /// How many exchanges it takes at a time.
    fn depth(&self) -> usize;

    /// Begins an exchange, and ends it in any case. May sleep until there is room, but not for the reply.
    fn submit(&self, exchange: Arc<Exchange>);

    /// Who had it to himself has let go of it: a transport of one mount's own ends.
    fn given_back(&self) {}
}

struct Channel {
    name: Vec<u8>,
    transport: Arc<dyn Transport>,
    is_used: Arc<AtomicBool>,
}

static CHANNELS: SpinLock<Vec<Channel>> = SpinLock::named("ways to file servers", Vec::new());

/// A transport that a mount has for itself.
#[derive(Clone)]
pub struct Taken {
    transport: Arc<dyn Transport>,
    is_used: Arc<AtomicBool>,
}

impl Taken {
    /// One that nobody else knows.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn of(transport: Arc<dyn Transport>) -> Result<Self> {
        Ok(Self { transport, is_used: allocation::arc(AtomicBool::new(true))? })
    }

    /// It.
    #[must_use]
    pub fn transport(&self) -> &Arc<dyn Transport> {
        &self.transport
    }

    /// Gives it back.
    pub(crate) fn give_back(&self) {
        self.transport.given_back();
        self.is_used.store(false, Ordering::Release);
    }
}

/// Makes a transport known. Of several with one name the first counts.
///
/// # Errors
/// No memory.
pub fn register(name: &[u8], transport: Arc<dyn Transport>) -> Result<()> {
    let mut copy = Vec::new();
    allocation::extend(&mut copy, name)?;
    let is_used = allocation::arc(AtomicBool::new(false))?;
    let mut channels = allocation::lock_with_room(|| CHANNELS.lock(), 1, |channels| channels)?;
    channels.push(Channel { name: copy, transport, is_used });
    Ok(())
}

/// The transport is not to be had any more.
pub fn unregister(transport: &Arc<dyn Transport>) {
    let mut channels = CHANNELS.lock();
    let found = channels.iter().position(|channel| Arc::ptr_eq(&channel.transport, transport));
    let gone = found.map(|index| channels.swap_remove(index));
    drop(channels);
    drop(gone);
}

/// Takes the transport of that name for a mount.
///
/// # Errors
/// `ENOENT` if there is none, `EBUSY` if another mount has it.
pub fn take(name: &[u8]) -> Result<Taken> {
    let found = {
        let channels = CHANNELS.lock();
        let channel = channels.iter().find(|channel| channel.name == name).ok_or(Error::NotFound)?;
        Taken { transport: channel.transport.clone(), is_used: channel.is_used.clone() }
    };
    // AcqRel: who takes it comes after who gave it back.
    if found.is_used.swap(true, Ordering::AcqRel) { Err(Error::Busy) } else { Ok(found) }
}
