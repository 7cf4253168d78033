//! A port: a stream of bytes in each direction.
//!
//! # Buffers
//! The device has all of a port's receive buffers but one at most, which is read out; it is given back when it is empty. What is written is copied into transmit buffers, each
//! of which is free again when the device has given it back. Nothing is allocated for a transfer.
//!
//! # Waiting
//! The device's interrupt wakes who waits, straight; there is no thread between. It is asked for an interrupt for a transmit buffer only when somebody finds no room.
//!
//! # Locking
//! One spin lock for each direction, held while bytes are copied, a few kilobytes at most.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use device::dma::Buffer;
use machine::address::PhysAddr;
use memory::{OutOfMemory, fallible};
use sched::WaitQueue;
use sync::SpinLock;

use super::device::Events;
use crate::ring::{Piece, Ring, Trouble};
use crate::transport::Notifier;

/// Bytes of a buffer.
const BUFFER_BYTES: usize = 4096;
/// Descriptors of a ring at most, and so buffers of a direction.
pub(super) const BUFFERS: u16 = 8;

/// One direction of a port: buffers by their numbers.
pub(super) struct Direction {
    ring: Ring<u16, Buffer>,
    notifier: Notifier,
    buffers: u16,
    /// The memory of all buffers, once there is a port.
    memory: Option<Buffer>,
}

impl Direction {
    /// With a ring of so many descriptors.
    pub(super) fn new(ring: Ring<u16, Buffer>, notifier: Notifier, size: u16) -> Self {
        Self { ring, notifier, buffers: size.min(BUFFERS), memory: None }
    }

    fn address(memory: &Buffer, number: u16) -> PhysAddr {
        PhysAddr::new(memory.physical().as_u64() + (usize::from(number) * BUFFER_BYTES) as u64)
    }

    /// Gives the device a buffer: of so many bytes to read, or one to write into.
    fn give(&mut self, number: u16, bytes: Option<usize>) {
        let Some(memory) = &self.memory else { return };
        let address = Self::address(memory, number);
        let piece = match bytes {
            Some(bytes) => Piece::read(address, bytes as u32),
            None => Piece::written(address, BUFFER_BYTES as u32),
        };
        let added = self.ring.add(&[piece], number);
        debug_assert!(added.is_ok(), "there are no more buffers than descriptors");
    }
}

struct Receive {
    direction: Direction,
    /// The buffer that is read out: its number, from where, and to where.
    current: Option<(u16, usize, usize)>,
}

struct Transmit {
    direction: Direction,
    free: Vec<u16>,
}

/// See the theory of this file.
pub(super) struct Port {
    pub(super) id: u32,
    /// The device's, with the queues of those who wait.
    events: Arc<Events>,
    receive: SpinLock<Receive>,
    transmit: SpinLock<Transmit>,
    /// There is such a port now.
    is_there: AtomicBool,
    /// Somebody has it open on the host.
    is_connected: AtomicBool,
    /// A program has it open.
    pub(super) is_open: AtomicBool,
    /// The device is at work no more.
    is_gone: AtomicBool,
    /// What the host calls it.
    pub(super) name: SpinLock<String>,
}

impl Port {
    /// A port that is not there yet.
    pub(super) fn new(
        id: u32,
        events: Arc<Events>,
        receive: Direction,
        transmit: Direction,
    ) -> Result<Self, OutOfMemory> {
        let free = fallible::try_vec(transmit.buffers.into())?;
        Ok(Self {
            id,
            events,
            receive: SpinLock::named("virtio port in", Receive { direction: receive, current: None }),
            transmit: SpinLock::named("virtio port out", Transmit { direction: transmit, free }),
            is_there: AtomicBool::new(false),
            is_connected: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            name: SpinLock::named("virtio port name", String::new()),
        })
    }

    /// There is such a port: it gets buffers, unless it was there before. False if it is there already.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn appear(&self) -> Result<bool, OutOfMemory> {
        let wants_memory = self.receive.lock().direction.memory.is_none();
        if wants_memory {
            let bytes = usize::from(BUFFERS) * BUFFER_BYTES;
            let (received, transmitted) = (Buffer::allocate(bytes)?, Buffer::allocate(bytes)?);
            {
                let mut receive = self.receive.lock();
                let direction = &mut receive.direction;
                direction.memory = Some(received);
                (0..direction.buffers).for_each(|number| direction.give(number, None));
                if direction.ring.publish() {
                    direction.notifier.notify();
                }
                direction.ring.want_interrupt();
            }
            let mut transmit = self.transmit.lock();
            let Transmit { direction, free } = &mut *transmit;
            direction.memory = Some(transmitted);
            free.extend(0..direction.buffers);
        }
        Ok(!self.is_there.swap(true, Ordering::AcqRel))
    }

    /// There is no such port any more. False if there was none.
    pub(super) fn disappear(&self) -> bool {
        self.is_connected.store(false, Ordering::Release);
        let was_there = self.is_there.swap(false, Ordering::AcqRel);
        self.wake();
        was_there
    }

    /// The device was stopped.
    pub(super) fn end(&self) {
        self.is_gone.store(true, Ordering::Release);
        self.disappear();
    }

    /// Whether there is such a port, of a device at work.
    pub(super) fn is_there(&self) -> bool {
        self.is_there.load(Ordering::Acquire) && !self.is_gone.load(Ordering::Acquire)
    }

    /// Somebody opened it on the host, or closed it.
    pub(super) fn set_connected(&self, is_connected: bool) {
        self.is_connected.store(is_connected, Ordering::Release);
        self.wake();
    }

    /// Whether somebody has it open on the host.
    pub(super) fn is_connected(&self) -> bool {
        self.is_connected.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.data_queue().wake_all();
        self.room_queue().wake_all();
    }

    /// Woken when bytes have come.
    pub(super) fn data_queue(&self) -> &WaitQueue {
        self.events.data(self.id)
    }

    /// Woken when buffers have been sent, if somebody found too few.
    pub(super) fn room_queue(&self) -> &WaitQueue {
        self.events.room(self.id)
    }

    /// The device breaks the rules: its thread has it stopped.
    fn report(&self, trouble: Trouble) {
        log::error!("virtio console: the device breaks the rules: {trouble:?}");
        self.is_gone.store(true, Ordering::Release);
        self.events.set_broken();
    }

    /// Finds the next bytes that have come.
    fn look(&self, receive: &mut Receive) -> bool {
        while receive.current.is_none() && !self.is_gone.load(Ordering::Acquire) {
            match receive.direction.ring.take() {
                Ok(Some((number, bytes))) if bytes > 0 => receive.current = Some((number, 0, bytes as usize)),
                Ok(Some((number, _))) => self.give_back(receive, number),
                // One may have come before the interrupt was asked for.
                Ok(None) if receive.direction.ring.want_interrupt() => {}
                Ok(None) => break,
                Err(trouble) => {
                    self.report(trouble);
                    break;
                }
            }
        }
        receive.current.is_some()
    }

    fn give_back(&self, receive: &mut Receive, number: u16) {
        receive.direction.give(number, None);
        if receive.direction.ring.publish() {
            receive.direction.notifier.notify();
        }
    }

    /// Whether there are bytes to read.
    pub(super) fn has_data(&self) -> bool {
        self.look(&mut self.receive.lock())
    }

    /// Takes bytes that have come, and says how many.
    pub(super) fn read(&self, target: &mut [u8]) -> usize {
        let mut receive = self.receive.lock();
        let mut total = 0;
        while total < target.len() && self.look(&mut receive) {
            let Some((number, from, to)) = receive.current else { break };
            let count = (to - from).min(target.len() - total);
            if let Some(memory) = &receive.direction.memory {
                let at = usize::from(number) * BUFFER_BYTES + from;
                memory.read(at, &mut target[total..total + count]);
            }
            total += count;
            receive.current = Some((number, from + count, to));
            if from + count == to {
                receive.current = None;
                self.give_back(&mut receive, number);
            }
        }
        total
    }

    /// Takes back what the device has sent. Has it interrupt for more if there is not so much room.
    fn reclaim(&self, transmit: &mut Transmit, wanted: usize) {
        let Transmit { direction, free } = transmit;
        if self.is_gone.load(Ordering::Acquire) {
            return;
        }
        loop {
            match direction.ring.take() {
                Ok(Some((number, _))) => free.push(number),
                Ok(None) if free.len() >= wanted || !direction.ring.want_interrupt() => break,
                Ok(None) => {}
                Err(trouble) => return self.report(trouble),
            }
        }
    }

    /// How many bytes can be written now. Less than asked for: there will be a wake-up.
    pub(super) fn room(&self, wanted: usize) -> usize {
        let mut transmit = self.transmit.lock();
        self.reclaim(&mut transmit, wanted.div_ceil(BUFFER_BYTES));
        transmit.free.len() * BUFFER_BYTES
    }

    /// Writes all the pieces, one after the other, or nothing if there is no room for all.
    pub(super) fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let mut transmit = self.transmit.lock();
        transmit.direction.ring.refuse_interrupts();
        let wanted = total.div_ceil(BUFFER_BYTES);
        self.reclaim(&mut transmit, wanted);
        if transmit.free.len() < wanted || self.is_gone.load(Ordering::Acquire) {
            return false;
        }
        let Transmit { direction, free } = &mut *transmit;
        let mut filling: Option<(u16, usize)> = None;
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let Some((number, from)) = filling.or_else(|| free.pop().map(|number| (number, 0))) else {
                    break;
                };
                let count = rest.len().min(BUFFER_BYTES - from);
                if let Some(memory) = &direction.memory {
                    memory.write(usize::from(number) * BUFFER_BYTES + from, &rest[..count]);
                }
                rest = &rest[count..];
                filling = Some((number, from + count));
                if from + count == BUFFER_BYTES {
                    direction.give(number, Some(BUFFER_BYTES));
                    filling = None;
                }
            }
        }
        if let Some((number, bytes)) = filling {
            direction.give(number, Some(bytes));
        }
        if direction.ring.publish() {
            direction.notifier.notify();
        }
        true
    }

    /// Throws away what has come.
    pub(super) fn discard(&self) {
        let mut receive = self.receive.lock();
        while self.look(&mut receive) {
            if let Some((number, _, _)) = receive.current.take() {
                self.give_back(&mut receive, number);
            }
        }
    }
}
