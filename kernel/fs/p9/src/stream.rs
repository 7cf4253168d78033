//! Messages over files that a program has opened (`trans=fd`): a connected socket, or a pipe for each direction. So a server may be a program of the machine.
//!
//! Two threads serve a mount. One sends: a request goes to a list, from which it takes one after the other, whole. The other one receives: it finds the exchange that a
//! reply is for by the tag, and puts data into the frames where it belongs.
//!
//! # States
//! *Open*; *over*, when the mount has ended, the server's end is closed, or what it says is no message: all exchanges fail with `EIO`, and both threads
//! end. They wait for their file and for the end (an event counter) at the same time, so a server that is silent keeps neither.
//!
//! # What is believed of the server
//! A length that a message can have, and the tag of a request that is under way. What a reply has beyond the room for it is passed over.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::address::PAGE_SIZE;
use memory::buffer::{Sink, Source};
use memory::fallible;
use sched::WaitQueue;
use sync::{Once, SpinLock};
use vfs::eventfd::EventCounter;
use vfs::file::OpenFile;
use vfs::flags::OpenFlags;
use vfs::poll::{self, PollEvents, PollRequest, PollWaiter};
use vfs::{Error, Result, allocation};

use crate::transport::{Data, Exchange, Taken, Transport};
use crate::wire::HEADER_BYTES;

/// Requests at a time: those that a client has tags for, a flush for each, and some to spare.
const DEPTH: usize = 160;
/// The largest message.
const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Where the tag is in a message.
const TAG_AT: usize = 5;

/// What the calling program has open under a number.
pub type Opened = fn(u32) -> Option<Arc<OpenFile>>;

static OPENED: Once<Opened> = Once::new();

/// Names who knows what the calling program has open. At start-up.
pub fn set_opened(opened: Opened) {
    OPENED.call_once(|| opened);
}

struct State {
    /// All that are under way. There is room for [`DEPTH`].
    pending: Vec<Arc<Exchange>>,
    /// Those of them that are to be sent, in order.
    unsent: Vec<Arc<Exchange>>,
    is_over: bool,
}

/// See the theory of this file.
struct Stream {
    from: Arc<OpenFile>,
    to: Arc<OpenFile>,
    /// An event counter: raised when it is over.
    over: Arc<OpenFile>,
    state: SpinLock<State>,
    /// Where the sender waits.
    sending: WaitQueue,
}

/// A transport over what the calling program has open under these numbers, one to read replies from and one to write requests to.
///
/// # Errors
/// `EIO` if they are not open, or not for that; no memory.
pub(crate) fn take(from: u32, to: u32) -> Result<Taken> {
    let open = |number| OPENED.get().and_then(|opened| opened(number)).ok_or(Error::Io);
    let (from, to) = (open(from)?, open(to)?);
    if from.check_readable().is_err() || to.check_writable().is_err() {
        return Err(Error::Io);
    }
    // A request may be larger than the room that a server leaves: who sends it waits for more room, and for the end.
    from.set_non_block(true);
    to.set_non_block(true);
    start(from, to)
}

/// Starts the threads.
pub(crate) fn start(from: Arc<OpenFile>, to: Arc<OpenFile>) -> Result<Taken> {
    let state =
        State { pending: fallible::try_vec(DEPTH)?, unsent: fallible::try_vec(DEPTH)?, is_over: false };
    let stream = allocation::arc(Stream {
        from,
        to,
        over: vfs::eventfd::create(0, false, OpenFlags::empty())?,
        state: SpinLock::named("requests to a file server", state),
        sending: WaitQueue::new(),
    })?;
    let taken = Taken::of(stream.clone())?;
    let serve = |name, serve: fn(&Stream) -> Result<()>| {
        let own = stream.clone();
        let body: Box<dyn FnOnce() + Send> = allocation::boxed(move || {
            // Whatever has ended it, the other thread ends, too.
            let _ = serve(&own);
            own.end();
        })?;
        sched::spawn(sched::Builder::new(name), body).map(drop).map_err(Error::from)
    };
    serve("9p-send", Stream::send_all)
        .and_then(|()| serve("9p-receive", Stream::receive_all))
        .inspect_err(|_| stream.end())?;
    Ok(taken)
}

impl Stream {
    /// Nothing is exchanged any more.
    fn end(&self) {
        let (pending, unsent) = {
            let mut state = self.state.lock();
            state.is_over = true;
            (core::mem::take(&mut state.pending), core::mem::take(&mut state.unsent))
        };
        drop(unsent);
        pending.iter().for_each(|exchange| exchange.failed(Error::Io));
        if let Some(over) = self.over.object::<EventCounter>() {
            over.signal(1);
        }
        self.sending.wake_all();
    }

    /// Waits until a file is ready for this. An error: it is over.
    fn wait_for(&self, waiter: &Arc<PollWaiter>, file: &Arc<OpenFile>, events: PollEvents) -> Result<()> {
        let request = |file: &Arc<OpenFile>, events| PollRequest {
            file: Some(file.clone()),
            events,
            ready: PollEvents::empty(),
        };
        let mut requests = [request(file, events), request(&self.over, PollEvents::INPUT)];
        poll::poll(waiter, &mut requests, None)?;
        if requests[1].ready.is_empty() { Ok(()) } else { Err(Error::Io) }
    }

    fn send_all(&self) -> Result<()> {
        let waiter = PollWaiter::create()?;
        let mut buffer = fallible::try_vec_of(0, PAGE_SIZE)?;
        loop {
            let mut next = None;
            self.sending.wait_until(|| {
                let mut state = self.state.lock();
                if !state.unsent.is_empty() {
                    next = Some(state.unsent.remove(0));
                }
                next.is_some() || state.is_over
            });
            let Some(exchange) = next else { return Ok(()) };
            self.put(&waiter, exchange.request())?;
            let Data::Sent(pieces) = exchange.data() else { continue };
            for piece in pieces {
                let part = &mut buffer[..piece.bytes];
                piece.frame.read(piece.offset, part);
                self.put(&waiter, part)?;
            }
        }
    }

    fn put(&self, waiter: &Arc<PollWaiter>, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            self.wait_for(waiter, &self.to, PollEvents::OUTPUT)?;
            match self.to.write(&mut Source::kernel(bytes)) {
                Ok(0) => return Err(Error::Io),
                Ok(count) => bytes = &bytes[count..],
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn receive_all(&self) -> Result<()> {
        let waiter = PollWaiter::create()?;
        let mut buffer = fallible::try_vec_of(0, PAGE_SIZE)?;
        loop {
            let mut header = [0; HEADER_BYTES];
            self.get(&waiter, &mut header)?;
            let total = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
            let tag = u16::from_le_bytes([header[TAG_AT], header[TAG_AT + 1]]);
            if !(HEADER_BYTES as u32..=MESSAGE_BYTES_MAX).contains(&total) {
                log::warn!("9p: a server sends a message of {total} bytes");
                return Err(Error::Io);
            }
            let exchange = {
                let mut state = self.state.lock();
                let found = state.pending.iter().position(|exchange| exchange.tag() == tag);
                found.map(|index| state.pending.swap_remove(index))
            };
            let Some(exchange) = exchange else {
                log::warn!("9p: a server answers a request that there is none of");
                return Err(Error::Io);
            };
            let total = total as usize;
            if let Some(flushed) = exchange.flushes() {
                self.give_up(flushed);
            }
            match self.receive(&waiter, &exchange, &header, total, &mut buffer) {
                Ok(bytes) => exchange.arrived(total, |into| into.copy_from_slice(&bytes[..into.len()])),
                Err(error) => {
                    exchange.failed(Error::Io);
                    return Err(error);
                }
            }
        }
    }

    /// The server will not answer a request, if it has not yet.
    fn give_up(&self, flushed: &Arc<Exchange>) {
        let found = {
            let mut state = self.state.lock();
            let found = state.pending.iter().position(|exchange| Arc::ptr_eq(exchange, flushed));
            found.map(|index| state.pending.swap_remove(index))
        };
        if let Some(exchange) = found {
            exchange.failed(Error::Interrupted);
        }
    }

    /// Receives what follows the header of a reply. Returns what does not lie in frames.
    fn receive(
        &self,
        waiter: &Arc<PollWaiter>,
        exchange: &Exchange,
        header: &[u8; HEADER_BYTES],
        total: usize,
        buffer: &mut [u8],
    ) -> Result<Vec<u8>> {
        let own = total.min(exchange.room()).max(HEADER_BYTES);
        let mut bytes = fallible::try_vec_of(0, own)?;
        bytes[..HEADER_BYTES].copy_from_slice(header);
        self.get(waiter, &mut bytes[HEADER_BYTES..])?;
        let mut left = total - own;
        if let Data::Received(pieces) = exchange.data() {
            for piece in pieces {
                let part = &mut buffer[..piece.bytes.min(left)];
                self.get(waiter, part)?;
                piece.frame.write(piece.offset, part);
                left -= part.len();
            }
        }
        while left > 0 {
            let part = buffer.len().min(left);
            self.get(waiter, &mut buffer[..part])?;
            left -= part;
        }
        Ok(bytes)
    }

    fn get(&self, waiter: &Arc<PollWaiter>, into: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < into.len() {
            self.wait_for(waiter, &self.from, PollEvents::INPUT)?;
            match self.from.read(&mut Sink::kernel(&mut into[done..])) {
                Ok(0) => return Err(Error::Io),
                Ok(count) => done += count,
                Err(Error::WouldBlock) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Transport for Stream {
    fn message_bytes_max(&self) -> u32 {
        MESSAGE_BYTES_MAX
    }

    fn depth(&self) -> usize {
        DEPTH
    }

    fn submit(&self, exchange: Arc<Exchange>) {
        let is_taken = {
            let mut state = self.state.lock();
            let has_room = !state.is_over && state.pending.len() < DEPTH;
            if has_room {
                state.pending.push(exchange.clone());
                state.unsent.push(exchange.clone());
            }
            has_room
        };
        if is_taken {
            self.sending.wake_one();
        } else {
            exchange.failed(Error::Io);
        }
    }

    fn given_back(&self) {
        self.end();
    }
}
