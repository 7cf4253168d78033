//! File servers: messages of 9P to a device and back. What they say is crate `p9`'s concern.
//!
//! A request is a buffer of the ring: the message, then room for its reply, each in a cell of memory that the device reaches, or in memory of their own where they are long.
//! Data lies in page frames, which the device reaches where they are.
//!
//! # States
//! *Working*; *gone*, when the device broke the rules or its driver lets go of it: it was reset, and everything fails with `EIO`.
//!
//! # Locking
//! The lane's spin lock is held to put a request into the ring and to take one out. The state is looked at under it, and the ring is emptied after it has changed.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use device::dma::Buffer;
use device::mmio::Window;
use device::model::{Binding, DriverError};
use machine::address::{PAGE_SIZE, PhysAddr};
use memory::{OutOfMemory, fallible};
use p9::transport::{self, Data, Exchange};
use sched::{Completion, Mutex, WaitQueue};
use sync::SpinLock;
use vfs::Error;

use crate::ring::{Piece, Ring};
use crate::signal::Signals;
use crate::start::{self, feature};
use crate::transport::{Connection, Notifier, Status, Transport};

/// The device has a name.
const MOUNT_TAG: u64 = 1;
/// The longest name.
const NAME_BYTES_MAX: usize = 255;

/// Descriptors of the ring at most.
const RING_MAX: u16 = 64;
/// Page frames of a request at most, but for one more where data does not begin with a page.
const FRAMES_MAX: usize = 64;
/// Pieces of a request beyond its frames: the message, the reply, and where data does not begin with a page.
const EXTRA_PIECES: usize = 4;
/// Messages and replies that are not longer lie in cells.
const CELL_BYTES: usize = 512;
/// Requests taken back at a time.
const BATCH: usize = 16;

/// A request in the device.
struct Token {
    exchange: Arc<Exchange>,
    cell: u16,
    /// Where the message is, if it is long.
    request: Option<Buffer>,
    /// Where the reply will be, if it may be long.
    reply: Option<Buffer>,
}

struct Lane {
    ring: Ring<Token, Buffer>,
    /// Cells that no request has.
    free: Vec<u16>,
    /// Those of the request that is being added.
    pieces: Vec<Piece>,
}

/// A file server behind a device.
struct Server {
    transport: Box<dyn Transport>,
    lane: SpinLock<Lane>,
    /// Two for each request.
    cells: Buffer,
    notifier: Notifier,
    signals: Arc<Signals>,
    frames_max: usize,
    depth: usize,
    gone: AtomicBool,
    /// Those for whom the ring has no room.
    room: WaitQueue,
    ended: Completion,
    connection: SpinLock<Option<Connection>>,
    registered: Mutex<Option<Arc<dyn transport::Transport>>>,
}

/// What there is before the server is.
struct Begun {
    name: Vec<u8>,
    lane: Lane,
    cells: Buffer,
    notifier: Notifier,
    signals: Arc<Signals>,
    connection: Connection,
    frames_max: usize,
    depth: usize,
}

/// Takes a device that is a file server.
pub(crate) fn probe(transport: Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError> {
    let begun = begin(&*transport).inspect_err(|_| {
        start::stop(&*transport, "virtio-9p");
        transport.disconnect();
        start::give_up(&*transport);
    })?;
    start::go(&*transport);
    let server = Arc::new(Server {
        transport,
        lane: SpinLock::named("virtio file server queue", begun.lane),
        cells: begun.cells,
        notifier: begun.notifier,
        signals: begun.signals,
        frames_max: begun.frames_max,
        depth: begun.depth,
        gone: AtomicBool::new(false),
        room: WaitQueue::new(),
        ended: Completion::default(),
        connection: SpinLock::named("virtio interrupts", Some(begun.connection)),
        registered: Mutex::named("virtio file server", None),
    });
    server.attach(&begun.name)
}

/// The device's name: what is to be mounted.
fn name_of(window: &Window) -> Vec<u8> {
    const LENGTH_BYTES: usize = 2;
    if window.bytes() < LENGTH_BYTES {
        return Vec::new();
    }
    let length = usize::from(window.read_u16(0)).min(NAME_BYTES_MAX).min(window.bytes() - LENGTH_BYTES);
    (0..length).map(|index| window.read_u8(LENGTH_BYTES + index)).collect()
}

fn begin(transport: &dyn Transport) -> Result<Begun, DriverError> {
    let features = start::negotiate(transport, MOUNT_TAG)?;
    if features & MOUNT_TAG == 0 {
        return Err(DriverError::NotSupported);
    }
    let name = start::read_configuration(transport, name_of);
    let exhausted = |OutOfMemory| DriverError::Exhausted;
    let signals =
        fallible::try_arc(Signals::new(1, |_| "requests".into()).map_err(exhausted)?).map_err(exhausted)?;
    let connection = transport.connect(1, signals.clone()).ok_or(DriverError::Exhausted)?;
    let entries = FRAMES_MAX + EXTRA_PIECES;
    let size =
        start::size_of_queue(transport.queue_size_max(0), RING_MAX).ok_or(DriverError::NotSupported)?;
    let depth = usize::from(size);
    let frames_max = if features & feature::INDIRECT != 0 {
        FRAMES_MAX
    } else {
        FRAMES_MAX.min(depth.saturating_sub(EXTRA_PIECES))
    };
    if frames_max < 1 {
        return Err(DriverError::NotSupported);
    }
    let cells = Buffer::allocate(depth * 2 * CELL_BYTES).map_err(exhausted)?;
    let mut free = fallible::try_vec(depth).map_err(exhausted)?;
    free.extend((0..size).rev());
    let pieces = fallible::try_vec(entries).map_err(exhausted)?;
    let (ring, notifier, started) = start::start_queue(transport, 0, features, size, entries)?;
    if started != size {
        return Err(start::stopped(transport, DriverError::Broken));
    }
    let lane = Lane { ring, free, pieces };
    Ok(Begun { name, lane, cells, notifier, signals, connection, frames_max, depth })
}

impl Lane {
    /// Gives a request to the device. Nothing is allocated.
    fn add(&mut self, cells: &Buffer, mut token: Token) -> Result<(), Token> {
        let Some(cell) = self.free.pop() else { return Err(token) };
        token.cell = cell;
        let offset = place_of(cell);
        let exchange = &token.exchange;
        let at = |buffer: &Option<Buffer>, offset: usize| match buffer {
            Some(buffer) => buffer.physical(),
            None => PhysAddr::new(cells.physical().as_u64() + offset as u64),
        };
        let message = exchange.request();
        if token.request.is_none() {
            cells.write(offset, message);
        }
        self.pieces.clear();
        self.pieces.push(Piece::read(at(&token.request, offset), message.len() as u32));
        let (sent, received) = match exchange.data() {
            Data::None => (&[][..], &[][..]),
            Data::Sent(pieces) => (&pieces[..], &[][..]),
            Data::Received(pieces) => (&[][..], &pieces[..]),
        };
        let address =
            |piece: &transport::Piece| PhysAddr::new(piece.frame.physical().as_u64() + piece.offset as u64);
        self.pieces.extend(sent.iter().map(|piece| Piece::read(address(piece), piece.bytes as u32)));
        self.pieces.push(Piece::written(at(&token.reply, offset + CELL_BYTES), exchange.room() as u32));
        self.pieces.extend(received.iter().map(|piece| Piece::written(address(piece), piece.bytes as u32)));
        self.ring.add(&self.pieces, token).inspect_err(|_| self.free.push(cell))
    }
}

/// Where a request's two cells begin.
fn place_of(cell: u16) -> usize {
    usize::from(cell) * 2 * CELL_BYTES
}

impl Server {
    /// Starts the thread and makes the server known.
    fn attach(self: Arc<Self>, name: &[u8]) -> Result<Arc<dyn Binding>, DriverError> {
        let own = self.clone();
        if sched::spawn(sched::Builder::new("virtio-9p"), Box::new(move || own.serve())).is_err() {
            self.ended.complete();
            self.remove();
            return Err(DriverError::Exhausted);
        }
        let known: Arc<dyn transport::Transport> = self.clone();
        if transport::register(name, known.clone()).is_err() {
            self.remove();
            return Err(DriverError::Exhausted);
        }
        log::info!("virtio-9p: {}, {} requests at a time", name.escape_ascii(), self.depth);
        *self.registered.lock() = Some(known);
        Ok(self)
    }

    fn serve(self: Arc<Self>) {
        let mut batch = Vec::new();
        if fallible::try_reserve(&mut batch, BATCH).is_err() {
            log::error!("virtio-9p: no memory for replies");
            self.fail();
        }
        while !self.gone.load(Ordering::Acquire) {
            self.signals.of(0).wait();
            self.complete(&mut batch);
            let status = self.transport.status();
            if self.signals.take_change() && status != u8::MAX && status & Status::NEEDS_RESET != 0 {
                log::error!("virtio-9p: the device asks to be reset");
                self.fail();
            }
        }
        self.ended.complete();
    }

    /// Ends what the device has given back, and asks for an interrupt for the next.
    fn complete(&self, batch: &mut Vec<(Token, u32)>) {
        loop {
            let mut lane = self.lane.lock();
            if self.gone.load(Ordering::Acquire) {
                return;
            }
            lane.ring.refuse_interrupts();
            let mut trouble = None;
            while batch.len() < batch.capacity() {
                match lane.ring.take() {
                    Ok(Some(ended)) => batch.push(ended),
                    Ok(None) => break,
                    Err(what) => {
                        trouble = Some(what);
                        break;
                    }
                }
            }
            let more = batch.len() == batch.capacity() || (trouble.is_none() && lane.ring.want_interrupt());
            drop(lane);
            batch.drain(..).for_each(|(token, written)| self.arrived(token, written));
            if let Some(what) = trouble {
                log::error!("virtio-9p: the device breaks the rules: {what:?}");
                self.fail();
            }
            if !more {
                return;
            }
        }
    }

    /// A reply is there.
    fn arrived(&self, token: Token, written: u32) {
        let Token { exchange, cell, reply, .. } = token;
        exchange.arrived(written as usize, |bytes| match &reply {
            Some(reply) => reply.read(0, bytes),
            None => self.cells.read(place_of(cell) + CELL_BYTES, bytes),
        });
        self.lane.lock().free.push(cell);
        self.room.wake_all();
    }

    /// The device works no more: stops it, and ends all that it has.
    fn fail(&self) {
        self.gone.store(true, Ordering::Release);
        start::stop(&*self.transport, "virtio-9p");
        loop {
            let token = self.lane.lock().ring.take_away();
            let Some(token) = token else { break };
            token.exchange.failed(Error::Io);
        }
        self.room.wake_all();
    }

    /// What a request needs besides its cells.
    fn prepare(exchange: Arc<Exchange>) -> Result<Token, (Arc<Exchange>, OutOfMemory)> {
        let long =
            |bytes: usize| if bytes > CELL_BYTES { Buffer::allocate(bytes).map(Some) } else { Ok(None) };
        match (long(exchange.request().len()), long(exchange.room())) {
            (Ok(request), Ok(reply)) => {
                if let Some(request) = &request {
                    request.write(0, exchange.request());
                }
                Ok(Token { exchange, cell: 0, request, reply })
            }
            (Err(error), _) | (_, Err(error)) => Err((exchange, error)),
        }
    }
}

impl transport::Transport for Server {
    fn message_bytes_max(&self) -> u32 {
        (self.frames_max * PAGE_SIZE) as u32
    }

    fn depth(&self) -> usize {
        self.depth
    }

    fn submit(&self, exchange: Arc<Exchange>) {
        let token = match Self::prepare(exchange) {
            Ok(token) => token,
            Err((exchange, OutOfMemory)) => return exchange.failed(Error::OutOfMemory),
        };
        let mut left = Some(token);
        let mut notify = false;
        self.room.wait_until(|| {
            let Some(token) = left.take() else { return true };
            let mut lane = self.lane.lock();
            if self.gone.load(Ordering::Acquire) {
                left = Some(token);
                return true;
            }
            match lane.add(&self.cells, token) {
                Ok(()) => {
                    notify = lane.ring.publish();
                }
                Err(token) => left = Some(token),
            }
            left.is_none()
        });
        if notify {
            self.notifier.notify();
        }
        if let Some(token) = left {
            token.exchange.failed(Error::Io);
        }
    }
}

impl Binding for Server {
    fn remove(&self) {
        let registered = self.registered.lock().take();
        if let Some(registered) = &registered {
            transport::unregister(registered);
        }
        self.fail();
        self.signals.raise_all();
        self.ended.wait();
        let connection = self.connection.lock().take();
        drop(connection);
        self.transport.disconnect();
        self.transport.shut_off();
    }
}
