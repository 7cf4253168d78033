//! Requests under way.
//!
//! A request has a tag, by which its reply is known; there are half as many tags as the transport takes exchanges at a time, so that neither they nor flushes for them wait in the transport. Who has no tag
//! waits for one.
//!
//! # Giving up
//! Who waits for a reply and is killed sends a *flush* for the tag and waits for its answer: after that the server will not do anything for the request. If the reply comes
//! first, it counts. A server that answers neither keeps nobody for longer than `FLUSH_NS`: exchange and tag are left to it then.
//!
//! A tag is used as long as anybody has its exchange: the transport, who waits, or the flush for it.
//!
//! # States
//! *Open*; *closed*, when the mount has ended: nothing is sent any more.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use machine::address::PAGE_SIZE;
use memory::frame::{Frame, Purpose, Zeroed};
use sched::WaitQueue;
use sync::{Once, SpinLock};
use vfs::{Error, Result, allocation};

use crate::fid::{Fid, Fids};
use crate::transport::{Data, Ending, Exchange, Piece, Reply, Taken};
use crate::wire::reply::{self, Identity, Refusal};
use crate::wire::{DATA_HEADER_BYTES, Decoder, NO_TAG, OVERHEAD_BYTES, Request, kind};

/// Requests at a time at most.
const TAGS: u32 = 64;
/// Room for replies without data: attributes are the longest of fixed length.
const ROOM: usize = 192;
/// Room for a reply with a path in it.
const PATH_ROOM: usize = 4096 + 16;
/// The smallest message that a server must take.
pub const MESSAGE_BYTES_MIN: u32 = 4096;
/// How long somebody who was killed waits for the answer to a flush.
const FLUSH_NS: u64 = 2_000_000_000;
/// How often who waits with a signal that does not kill looks whether one has come that does.
const LOOK_NS: u64 = 20_000_000;

/// Whether the calling thread is to end.
pub type Killed = fn() -> bool;

static KILLED: Once<Killed> = Once::new();

/// Names who knows whether the calling thread is to end. At start-up.
pub fn set_killed(killed: Killed) {
    KILLED.call_once(|| killed);
}

fn is_killed() -> bool {
    KILLED.get().is_some_and(|killed| killed())
}

/// Which tags are in use.
struct Tags {
    /// A bit for each that is free.
    free: SpinLock<u64>,
    waiting: WaitQueue,
}

impl Tags {
    /// Takes one, unless that has been done.
    fn take(&self, number: &mut Option<u16>) -> bool {
        let mut free = self.free.lock();
        if number.is_none() && *free != 0 {
            let found = free.trailing_zeros();
            *free &= !(1 << found);
            *number = Some(found as u16);
        }
        number.is_some()
    }
}

/// A tag in use.
pub(crate) struct Tag {
    number: u16,
    tags: Option<Arc<Tags>>,
}

/// Tags of flushes are those of what they flush, and this.
const FLUSH_TAG: u16 = 0x100;

impl Tag {
    /// One of no client.
    #[cfg(not(target_os = "none"))]
    pub(crate) fn of_test() -> Self {
        Self { number: 0, tags: None }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        if let Some(tags) = &self.tags {
            let mut free = tags.free.lock();
            debug_assert_eq!(*free & 1 << self.number, 0, "a tag is given back once");
            *free |= 1 << self.number;
            drop(free);
            tags.waiting.wake_one();
        }
    }
}

/// A dialogue with a server.
pub struct Client {
    taken: Taken,
    tags: Arc<Tags>,
    message_bytes: AtomicU32,
    pub(crate) fids: Fids,
    closed: AtomicBool,
}

/// What a server's errno means here.
fn error_of(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Malformed => {
            log::warn!("9p: the server breaks the rules");
            Error::Io
        }
        Refusal::Errno(number) => ERRORS
            .iter()
            .copied()
            .find(|error| u32::try_from(error.errno()) == Ok(number))
            .unwrap_or(Error::Io),
    }
}

/// Errors that a server may have.
const ERRORS: [Error; 37] = [
    Error::NotPermitted,
    Error::NotFound,
    Error::Io,
    Error::NoDeviceAddress,
    Error::TooBig,
    Error::BadDescriptor,
    Error::WouldBlock,
    Error::OutOfMemory,
    Error::AccessDenied,
    Error::Busy,
    Error::Exists,
    Error::CrossDevice,
    Error::NoDevice,
    Error::NotDirectory,
    Error::IsDirectory,
    Error::Invalid,
    Error::FileTableFull,
    Error::TooManyDescriptors,
    Error::TextBusy,
    Error::FileTooLarge,
    Error::NoSpace,
    Error::IllegalSeek,
    Error::ReadOnly,
    Error::TooManyLinks,
    Error::Range,
    Error::Deadlock,
    Error::NameTooLong,
    Error::NoLocks,
    Error::NotImplemented,
    Error::NotEmpty,
    Error::Loop,
    Error::NoData,
    Error::Overflow,
    Error::NotSupported,
    Error::TimedOut,
    Error::Stale,
    Error::Quota,
];

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        error_of(refusal)
    }
}

impl From<crate::wire::Malformed> for Error {
    fn from(_: crate::wire::Malformed) -> Self {
        error_of(Refusal::Malformed)
    }
}

/// A reply whose values are to be read.
struct Answer {
    reply: Reply,
    kind: u8,
    tag: u16,
}

impl Answer {
    fn values(&self) -> Result<Decoder<'_>> {
        Ok(reply::open(&self.reply.bytes, self.reply.total, self.kind, self.tag)?)
    }

    /// How many bytes were transferred, of those asked for. What was read has arrived.
    fn count(&self, asked: u32) -> Result<usize> {
        let count = reply::count(&mut self.values()?, asked)? as usize;
        let is_here = self.kind == kind::WRITE || self.reply.total >= DATA_HEADER_BYTES + count;
        if is_here { Ok(count) } else { Err(Refusal::Malformed.into()) }
    }
}

impl Client {
    /// Begins a dialogue: agrees on the protocol and on how large messages may be.
    ///
    /// # Errors
    /// What the server says; `EIO` if it speaks another protocol.
    pub fn new(taken: Taken, message_bytes: u32) -> Result<Arc<Self>> {
        let transport = taken.transport();
        // Half of what it takes: who gives up a request sends another one, which must not wait for the first.
        let depth = u32::try_from(transport.depth() / 2).unwrap_or(TAGS).clamp(1, TAGS);
        let message_bytes = message_bytes.clamp(MESSAGE_BYTES_MIN, transport.message_bytes_max());
        let for_failure = taken.clone();
        let tags = allocation::arc(Tags {
            free: SpinLock::named("tags of a file server", u64::MAX >> (TAGS - depth)),
            waiting: WaitQueue::new(),
        });
        let made = tags.and_then(|tags| {
            allocation::arc(Self {
                taken,
                tags,
                message_bytes: AtomicU32::new(message_bytes),
                fids: Fids::new(),
                closed: AtomicBool::new(false),
            })
        });
        let client = made.inspect_err(|_| for_failure.give_back())?;
        let agreed = client.agree(message_bytes);
        if agreed.is_err() {
            client.close();
        }
        agreed?;
        Ok(client)
    }

    /// Says which protocol is spoken; the server forgets all that was before.
    fn agree(&self, message_bytes: u32) -> Result<()> {
        let request = Request::Version { message_bytes };
        let tag = Tag { number: NO_TAG, tags: None };
        let exchange = Exchange::new(tag, request.encode(NO_TAG)?, Data::None, ROOM, None, None)?;
        let answer = self.complete(&exchange, request.kind())?;
        let accepted = reply::version(&mut answer.values()?)?;
        if !(MESSAGE_BYTES_MIN..=message_bytes).contains(&accepted) {
            return Err(Error::Io);
        }
        // Relaxed: nobody else has the client before this is known.
        self.message_bytes.store(accepted, Ordering::Relaxed);
        Ok(())
    }

    /// How large messages may be.
    pub fn message_bytes(&self) -> u32 {
        self.message_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of data that a message can have.
    pub(crate) fn data_bytes(&self) -> u32 {
        self.message_bytes() - OVERHEAD_BYTES
    }

    /// Nothing is sent any more; the transport is another mount's.
    pub(crate) fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel) {
            self.taken.give_back();
        }
    }

    /// Has the server forget all files, and closes.
    pub(crate) fn finish(&self) {
        if !self.closed.load(Ordering::Acquire) {
            let _ = self.agree(self.message_bytes());
            self.close();
        }
    }

    /// Waits for a tag.
    fn tag(&self) -> Result<Tag> {
        let mut number = None;
        wait_unless_killed(&self.tags.waiting, || self.tags.take(&mut number))?;
        Ok(Tag { number: number.ok_or(Error::Interrupted)?, tags: Some(self.tags.clone()) })
    }

    /// Waits for a tag, killed or not.
    fn tag_whatever_comes(&self) -> Tag {
        let mut number = None;
        self.tags.waiting.wait_until(|| self.tags.take(&mut number));
        Tag { number: number.expect("the condition holds"), tags: Some(self.tags.clone()) }
    }

    /// Sends an exchange and waits for its reply.
    fn complete(&self, exchange: &Arc<Exchange>, kind: u8) -> Result<Answer> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::Io);
        }
        self.taken.transport().submit(exchange.clone());
        if wait_unless_killed(exchange.waiting(), || exchange.is_over()).is_err() {
            self.flush(exchange)?;
        }
        Ok(Answer { reply: exchange.take()?, kind, tag: exchange.tag() })
    }

    /// Has the server give up a request. Fine if its reply came nevertheless.
    #[inline(never)]
    fn flush(&self, exchange: &Arc<Exchange>) -> Result<()> {
        let number = exchange.tag() | FLUSH_TAG;
        let request = Request::Flush { tag: exchange.tag() }.encode(number)?;
        let tag = Tag { number, tags: None };
        let flush = Exchange::new(tag, request, Data::None, ROOM, None, Some(exchange.clone()))?;
        self.taken.transport().submit(flush.clone());
        let deadline_ns = machine::time::now_ns() + FLUSH_NS;
        flush.waiting().wait_until_deadline(|| flush.is_over() || exchange.is_over(), deadline_ns);
        if exchange.is_over() { Ok(()) } else { Err(Error::Interrupted) }
    }

    fn call_with_room(&self, request: &Request<'_>, data: Data, room: usize) -> Result<Answer> {
        let tag = self.tag()?;
        let bytes = request.encode(tag.number())?;
        let sent: usize = match &data {
            Data::Sent(pieces) => pieces.iter().map(|piece| piece.bytes).sum(),
            _ => 0,
        };
        if bytes.len() + sent > self.message_bytes() as usize {
            return Err(Error::NameTooLong);
        }
        let exchange = Exchange::new(tag, bytes, data, room, None, None)?;
        self.complete(&exchange, request.kind())
    }

    /// A request whose reply says nothing but that it was done.
    pub(crate) fn call(&self, request: &Request<'_>) -> Result<()> {
        self.call_with_room(request, Data::None, ROOM)?.values().map(|_| ())
    }

    /// A request, and what is read from its reply.
    pub(crate) fn ask<R>(
        &self,
        request: &Request<'_>,
        read: impl FnOnce(&mut Decoder<'_>) -> Result<R, crate::wire::Malformed>,
    ) -> Result<R> {
        let answer = self.call_with_room(request, Data::None, ROOM)?;
        Ok(read(&mut answer.values()?)?)
    }

    /// Where a symbolic link leads to.
    pub(crate) fn read_link(&self, fid: u32) -> Result<Arc<[u8]>> {
        let answer = self.call_with_room(&Request::ReadLink { fid }, Data::None, PATH_ROOM)?;
        let mut values = answer.values()?;
        let target = values.text().map_err(Error::from)?;
        if target.is_empty() || target.len() >= vfs::name::PATH_MAX || target.contains(&0) {
            return Err(Error::Io);
        }
        allocation::arc_bytes(target)
    }

    /// A fid for a tree of the server's.
    pub(crate) fn attach(
        self: &Arc<Self>,
        user_name: &[u8],
        tree: &[u8],
        user: u32,
    ) -> Result<(Fid, Identity)> {
        let fid = Fid::new(self)?;
        let request = Request::Attach { fid: fid.number(), user_name, tree, user };
        let identity = fid.established(self.ask(&request, reply::identity))?;
        Ok((fid, identity))
    }

    /// Reads a part of a file, or of the list of a directory, into memory of the heap.
    pub(crate) fn read(&self, fid: u32, offset: u64, count: usize, list: bool) -> Result<Vec<u8>> {
        let count = count.min(self.data_bytes() as usize);
        let pieces = frames_for(count)?;
        let frames = copy_of(&pieces)?;
        let read = self.read_pieces(fid, offset, pieces, list)?;
        let mut bytes = allocation::filled(0, read)?;
        for (piece, part) in frames.iter().zip(bytes.chunks_mut(PAGE_SIZE)) {
            piece.frame.read(0, part);
        }
        Ok(bytes)
    }

    /// Reads into frames; returns how many bytes.
    pub(crate) fn read_frames(&self, fid: u32, offset: u64, into: Vec<Piece>) -> Result<usize> {
        self.read_pieces(fid, offset, into, false)
    }

    fn read_pieces(&self, fid: u32, offset: u64, into: Vec<Piece>, list: bool) -> Result<usize> {
        let count = total(&into)?;
        let request = if list {
            Request::ReadDirectory { fid, offset, count }
        } else {
            Request::Read { fid, offset, count }
        };
        let answer = self.call_with_room(&request, Data::Received(into), DATA_HEADER_BYTES)?;
        answer.count(count)
    }

    /// Writes from frames; returns how many bytes.
    pub(crate) fn write_frames(&self, fid: u32, offset: u64, from: Vec<Piece>) -> Result<usize> {
        let count = total(&from)?;
        let request = Request::Write { fid, offset, count };
        self.call_with_room(&request, Data::Sent(from), ROOM)?.count(count)
    }

    /// Begins to read into frames or to write from them. `ended` is told how many bytes it came to, perhaps before this returns, and may not wait for the server; it is
    /// dropped if there is no memory for it.
    pub(crate) fn begin_transfer(
        &self,
        fid: u32,
        offset: u64,
        data: Data,
        ended: impl FnOnce(Result<usize>) + Send + 'static,
    ) {
        let (Data::Sent(pieces) | Data::Received(pieces)) = &data else { return ended(Ok(0)) };
        let (count, request, room) = match (total(pieces), &data) {
            (Ok(count), Data::Sent(_)) => (count, Request::Write { fid, offset, count }, ROOM),
            (Ok(count), _) => (count, Request::Read { fid, offset, count }, DATA_HEADER_BYTES),
            (Err(error), _) => return ended(Err(error)),
        };
        if self.closed.load(Ordering::Acquire) {
            return ended(Err(Error::Io));
        }
        let tag = self.tag_whatever_comes();
        let kind = request.kind();
        let Ok(bytes) = request.encode(tag.number()) else { return };
        let ending = move |tag, outcome: Result<Reply>| {
            let read = |reply| Answer { reply, kind, tag }.count(count);
            ended(outcome.and_then(read));
        };
        let Ok(ending) = allocation::boxed(ending) else { return };
        let ending: Ending = ending;
        let Ok(exchange) = Exchange::new(tag, bytes, data, room, Some(ending), None) else { return };
        self.taken.transport().submit(exchange);
    }
}

/// Bytes of the pieces together.
fn total(pieces: &[Piece]) -> Result<u32> {
    let bytes: usize = pieces.iter().map(|piece| piece.bytes).sum();
    u32::try_from(bytes).map_err(|_| Error::Invalid)
}

/// Fresh frames for so many bytes. Nobody reads more of them than a server has written.
pub(crate) fn frames_for(bytes: usize) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    allocation::reserve(&mut pieces, bytes.div_ceil(PAGE_SIZE))?;
    for at in (0..bytes).step_by(PAGE_SIZE) {
        let frame = Frame::allocate(Purpose::Kernel, Zeroed::No)?;
        pieces.push(Piece { frame, offset: 0, bytes: (bytes - at).min(PAGE_SIZE) });
    }
    Ok(pieces)
}

/// The same pieces once more.
pub(crate) fn copy_of(pieces: &[Piece]) -> Result<Vec<Piece>> {
    let mut copy = Vec::new();
    allocation::reserve(&mut copy, pieces.len())?;
    copy.extend(pieces.iter().cloned());
    Ok(copy)
}

/// Sleeps until the condition holds, or the thread is killed.
fn wait_unless_killed(queue: &WaitQueue, mut condition: impl FnMut() -> bool) -> Result<()> {
    if queue.wait_interruptible(&mut condition).is_ok() {
        return Ok(());
    }
    // A signal is there that may be one to handle: calls on files don't end for those.
    loop {
        if condition() {
            return Ok(());
        }
        if is_killed() {
            return Err(Error::Interrupted);
        }
        let deadline_ns = machine::time::now_ns() + LOOK_NS;
        if queue.wait_until_deadline(&mut condition, deadline_ns) {
            return Ok(());
        }
    }
}
