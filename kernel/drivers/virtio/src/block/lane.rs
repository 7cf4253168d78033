//! A queue of the device, with what the kernel knows of the requests in it.
//!
//! Each request has a cell of memory that the device reaches, with its head and its status, and, where its data is in memory of the kernel's heap, copies of
//! that. Page frames are reached where they are.

use alloc::vec::Vec;

use block::{Memory, Operation, Request};
use device::dma::Buffer;
use device::model::DriverError;
use machine::address::PhysAddr;
use memory::{OutOfMemory, fallible};

use super::layout::{COPY_BYTES, EXTRA_PIECES, Layout};
use crate::ring::{Piece, Ring, Trouble};
use crate::start;
use crate::transport::{Notifier, Transport};

/// A cell: the head of the request, a range for discards, the status.
const CELL_BYTES: usize = 64;
const RANGE: usize = 16;
const STATUS: usize = 32;
const HEAD_BYTES: u32 = 16;
const RANGE_BYTES: u32 = 16;
/// What is copied at a time: it lies on the stack.
const COPIED_BYTES: usize = 512;
/// Bytes of the device's own name.
pub(super) const IDENTITY_BYTES: usize = 20;

/// Kinds of requests.
const READ: u32 = 0;
const WRITE: u32 = 1;
const FLUSH: u32 = 4;
const IDENTIFY: u32 = 8;
const DISCARD: u32 = 11;
const ZEROES: u32 = 13;
/// Of write zeroes: the device may forget the sectors.
const MAY_UNMAP: u32 = 1;

/// How a request ended.
const OK: u8 = 0;
const NOT_SUPPORTED: u8 = 2;
/// Before the device has said anything.
const PENDING: u8 = 0xff;

/// Memory that the device reaches instead of a segment's.
struct Copy {
    segment: usize,
    at: usize,
    bytes: usize,
    buffer: Buffer,
}

/// A request in the device.
pub(super) struct InFlight {
    request: Request,
    copies: Vec<Copy>,
    /// Bytes that the device writes besides the status.
    expected: u32,
}

/// What a buffer of the ring stands for.
struct Token {
    cell: u16,
    /// None: the device's own name is asked for.
    work: Option<InFlight>,
}

/// A request that the device has given back.
pub(super) struct Ended {
    work: InFlight,
    status: u8,
    written: u32,
}

/// See the theory of this file.
pub(super) struct Lane {
    ring: Ring<Token, Buffer>,
    cells: Buffer,
    free: Vec<u16>,
    /// Pieces of the request that is being added.
    pieces: Vec<Piece>,
}

/// A request that is ready to be added.
pub(super) struct Prepared {
    work: InFlight,
    /// Where its data is, in order.
    data: Vec<Piece>,
}

fn copy_out(request: &Request, copies: &[Copy]) {
    let mut bytes = [0; COPIED_BYTES];
    for copy in copies {
        let Some(segment) = request.segments().nth(copy.segment) else { continue };
        for at in (0..copy.bytes).step_by(COPIED_BYTES) {
            let part = &mut bytes[..COPIED_BYTES.min(copy.bytes - at)];
            segment.copy_out(copy.at + at, part);
            copy.buffer.write(at, part);
        }
    }
}

fn copy_in(request: &mut Request, copies: &[Copy]) {
    let mut bytes = [0; COPIED_BYTES];
    for copy in copies {
        let Some(segment) = request.segments_mut().nth(copy.segment) else { continue };
        for at in (0..copy.bytes).step_by(COPIED_BYTES) {
            let part = &mut bytes[..COPIED_BYTES.min(copy.bytes - at)];
            copy.buffer.read(at, part);
            segment.copy_in(copy.at + at, part);
        }
    }
}

/// Finds or makes the memory of a request that the device will reach.
///
/// # Errors
/// The request, when there is no memory for that.
pub(super) fn prepare(request: Request, layout: &Layout) -> Result<Prepared, Request> {
    let reads = request.operation() == Operation::Read;
    let mut data = Vec::new();
    let mut copies = Vec::new();
    match collect(&request, layout, &mut data, &mut copies) {
        Ok(()) => {}
        Err(OutOfMemory) => return Err(request),
    }
    let expected = if reads { request.sectors() as u32 * block::SECTOR_BYTES as u32 } else { 0 };
    if request.operation() == Operation::Write {
        copy_out(&request, &copies);
    }
    Ok(Prepared { work: InFlight { request, copies, expected }, data })
}

fn collect(
    request: &Request,
    layout: &Layout,
    data: &mut Vec<Piece>,
    copies: &mut Vec<Copy>,
) -> Result<(), OutOfMemory> {
    let written = request.operation() == Operation::Read;
    fallible::try_reserve(data, request.segment_count())?;
    for (index, segment) in request.segments().enumerate() {
        let (memory, offset, length) = segment.parts();
        if let Memory::Frame(frame) = memory {
            let address = PhysAddr::new(frame.physical().as_u64() + offset as u64);
            fallible::try_push(data, Piece { address, bytes: length as u32, written })?;
            continue;
        }
        let most = COPY_BYTES.min(layout.piece_bytes_max);
        for at in (0..length).step_by(most) {
            let bytes = most.min(length - at);
            let buffer = Buffer::allocate(bytes)?;
            let address = buffer.physical();
            fallible::try_push(data, Piece { address, bytes: bytes as u32, written })?;
            fallible::try_push(copies, Copy { segment: index, at, bytes, buffer })?;
        }
    }
    Ok(())
}

impl Prepared {
    /// The request back.
    pub(super) fn into_request(self) -> Request {
        self.work.request
    }
}

impl Ended {
    /// Tells those who wait.
    pub(super) fn complete(self) {
        let Self { mut work, status, written } = self;
        let outcome = match status {
            // What the device has not written would be what was in the memory before.
            OK if written < work.expected => Err(block::Error::Io),
            OK => Ok(()),
            NOT_SUPPORTED => Err(block::Error::NotSupported),
            _ => Err(block::Error::Io),
        };
        if outcome.is_ok() && work.expected > 0 {
            copy_in(&mut work.request, &work.copies);
        }
        work.request.complete(outcome);
    }
}

impl Lane {
    /// Starts a queue of the device, of as many descriptors as the others have.
    ///
    /// # Errors
    /// [`DriverError`]; the device was stopped then. It is not taken if it offers this queue less than the others: what fits into their rings may not fit into this one's.
    pub(super) fn start(
        transport: &dyn Transport,
        queue: u16,
        features: u64,
        size: u16,
        layout: &Layout,
    ) -> Result<(Self, Notifier), DriverError> {
        let pieces = layout.pieces_max + EXTRA_PIECES;
        let memory = || {
            let mut free = fallible::try_vec(size.into())?;
            free.extend((0..size).rev());
            Ok((free, fallible::try_vec(pieces)?, Buffer::allocate(usize::from(size) * CELL_BYTES)?))
        };
        let (free, room, cells) =
            memory().map_err(|OutOfMemory| start::stopped(transport, DriverError::Exhausted))?;
        let (ring, notifier, offered) = start::start_queue(transport, queue, features, size, pieces)?;
        if offered != size {
            return Err(start::stopped(transport, DriverError::NotSupported));
        }
        Ok((Self { ring, cells, free, pieces: room }, notifier))
    }

    fn cell(&self, cell: u16) -> (usize, u64) {
        let offset = usize::from(cell) * CELL_BYTES;
        (offset, self.cells.physical().as_u64() + offset as u64)
    }

    fn write_head(&self, cell: u16, kind: u32, sector: u64) {
        let (offset, _) = self.cell(cell);
        self.cells.write_u32(offset, kind);
        self.cells.write_u32(offset + 4, 0);
        self.cells.write_u64(offset + 8, sector);
        self.cells.write_u8(offset + STATUS, PENDING);
    }

    /// Gives a request to the device. Nothing is allocated.
    ///
    /// # Errors
    /// The request, if there is no room now.
    #[expect(clippy::result_large_err, reason = "a box for it would be an allocation under a lock")]
    pub(super) fn add(&mut self, prepared: Prepared) -> Result<(), Prepared> {
        let Some(cell) = self.free.pop() else { return Err(prepared) };
        let request = &prepared.work.request;
        let operation = request.operation();
        let (kind, sector) = match operation {
            Operation::Read => (READ, request.sector()),
            Operation::Write => (WRITE, request.sector()),
            Operation::Flush => (FLUSH, 0),
            Operation::Discard => (DISCARD, 0),
            Operation::WriteZeroes => (ZEROES, 0),
        };
        self.write_head(cell, kind, sector);
        let (offset, address) = self.cell(cell);
        self.pieces.clear();
        self.pieces.push(Piece::read(PhysAddr::new(address), HEAD_BYTES));
        if matches!(operation, Operation::Discard | Operation::WriteZeroes) {
            let flags = if operation == Operation::WriteZeroes { MAY_UNMAP } else { 0 };
            self.cells.write_u64(offset + RANGE, request.sector());
            self.cells.write_u32(offset + RANGE + 8, request.sectors() as u32);
            self.cells.write_u32(offset + RANGE + 12, flags);
            self.pieces.push(Piece::read(PhysAddr::new(address + RANGE as u64), RANGE_BYTES));
        }
        let room = self.pieces.capacity() - self.pieces.len();
        assert!(prepared.data.len() < room, "the limits keep requests small enough");
        self.pieces.extend_from_slice(&prepared.data);
        self.pieces.push(Piece::written(PhysAddr::new(address + STATUS as u64), 1));
        let Prepared { work, data } = prepared;
        let token = Token { cell, work: Some(work) };
        self.ring.add(&self.pieces, token).map_err(|token| {
            self.free.push(cell);
            let work = token.work.expect("a token that comes back at once is the one that was given");
            Prepared { work, data }
        })
    }

    /// Asks for the device's own name, to be written into the buffer. False if there is no room.
    pub(super) fn add_identify(&mut self, into: &Buffer) -> bool {
        let Some(cell) = self.free.pop() else { return false };
        self.write_head(cell, IDENTIFY, 0);
        let (_, address) = self.cell(cell);
        let pieces = [
            Piece::read(PhysAddr::new(address), HEAD_BYTES),
            Piece::written(into.physical(), IDENTITY_BYTES as u32),
            Piece::written(PhysAddr::new(address + STATUS as u64), 1),
        ];
        self.ring.add(&pieces, Token { cell, work: None }).is_ok()
    }

    /// Shows the device what was added. Says whether it is to be notified.
    pub(super) fn publish(&mut self) -> bool {
        self.ring.publish()
    }

    /// The next request that the device has given back: None for its name.
    ///
    /// # Errors
    /// [`Trouble`].
    pub(super) fn take(&mut self) -> Result<Option<Option<Ended>>, Trouble> {
        let Some((token, written)) = self.ring.take()? else { return Ok(None) };
        let (offset, _) = self.cell(token.cell);
        let status = self.cells.read_u8(offset + STATUS);
        self.free.push(token.cell);
        Ok(Some(token.work.map(|work| Ended { work, status, written })))
    }

    /// See [`Ring::want_interrupt`].
    pub(super) fn want_interrupt(&mut self) -> bool {
        self.ring.want_interrupt()
    }

    /// See [`Ring::refuse_interrupts`].
    pub(super) fn refuse_interrupts(&mut self) {
        self.ring.refuse_interrupts();
    }

    /// Takes any request away from a device that is not at work any more.
    pub(super) fn take_away(&mut self) -> Option<Request> {
        loop {
            let token = self.ring.take_away()?;
            if let Some(work) = token.work {
                return Some(work.request);
            }
        }
    }
}
