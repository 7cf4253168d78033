//! A port: a stream of bytes in each direction.
//!
//! # Buffers
//! The device has all of a port's receive buffers but one at most, which is read out; it is given back when it is empty. What is written is copied into transmit buffers, each
//! of which is free again when the device has given it back. Nothing is allocated for a transfer.
//!
//! # Waiting
//! The device's interrupt wakes who waits, straight; there is no thread between. It is asked for an interrupt for a transmit buffer only when somebody finds no room, and
//! until so much room was seen as was missed: a writer with less to write neither refuses the interrupts that another one waits for, nor takes back what would have
//! caused them without waking it.
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
use crate::ring::{Piece, Ring, RingMemory, Trouble};
use crate::transport::Notifier;

/// Bytes of a buffer.
const BUFFER_BYTES: usize = 4096;
/// Descriptors of a ring at most, and so buffers of a direction.
pub(super) const BUFFERS: u16 = 8;
/// Buffers without a byte in a row that are borne: they come as fast as they are given back, and are looked at with a lock held.
const EMPTY_MAX: usize = 64;
/// Buffers that are thrown away when a port is closed: more than the device could have filled before.
const DISCARDED_MAX: usize = 2 * BUFFERS as usize;

/// One direction of a port: buffers by their numbers.
pub(super) struct Direction<M: RingMemory = Buffer> {
    ring: Ring<u16, M>,
    notifier: Notifier,
    buffers: u16,
    /// The memory of all buffers, once there is a port.
    memory: Option<Buffer>,
}

impl<M: RingMemory> Direction<M> {
    /// With a ring of so many descriptors.
    pub(super) fn new(ring: Ring<u16, M>, notifier: Notifier, size: u16) -> Self {
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

struct Receive<M: RingMemory> {
    direction: Direction<M>,
    /// The buffer that is read out: its number, from where, and to where.
    current: Option<(u16, usize, usize)>,
}

struct Transmit<M: RingMemory> {
    direction: Direction<M>,
    free: Vec<u16>,
    /// So many must be free before interrupts are refused again, because somebody waits for them. 0: nobody does.
    missed: usize,
}

/// See the theory of this file.
pub(super) struct Port<M: RingMemory = Buffer> {
    pub(super) id: u32,
    /// The device's, with the queues of those who wait.
    events: Arc<Events>,
    receive: SpinLock<Receive<M>>,
    transmit: SpinLock<Transmit<M>>,
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

impl<M: RingMemory> Port<M> {
    /// A port that is not there yet.
    pub(super) fn new(id: u32, events: Arc<Events>, receive: Direction<M>, transmit: Direction<M>) -> Self {
        let transmit = Transmit { direction: transmit, free: Vec::new(), missed: 0 };
        Self {
            id,
            events,
            receive: SpinLock::named("virtio port in", Receive { direction: receive, current: None }),
            transmit: SpinLock::named("virtio port out", transmit),
            is_there: AtomicBool::new(false),
            is_connected: AtomicBool::new(false),
            is_open: AtomicBool::new(false),
            is_gone: AtomicBool::new(false),
            name: SpinLock::named("virtio port name", String::new()),
        }
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
            let numbers = fallible::try_vec(BUFFERS.into())?;
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
            let Transmit { direction, free, .. } = &mut *transmit;
            direction.memory = Some(transmitted);
            *free = numbers;
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
        self.is_connected.store(false, Ordering::Release);
        self.wake();
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
    fn look(&self, receive: &mut Receive<M>) -> bool {
        let mut empty = 0;
        while receive.current.is_none() && !self.is_gone.load(Ordering::Acquire) {
            match receive.direction.ring.take() {
                Ok(Some((number, bytes))) if bytes > 0 => receive.current = Some((number, 0, bytes as usize)),
                Ok(Some(_)) if empty == EMPTY_MAX => {
                    self.report(Trouble::Empty);
                    break;
                }
                Ok(Some((number, _))) => {
                    empty += 1;
                    self.give_back(receive, number);
                }
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

    fn give_back(&self, receive: &mut Receive<M>, number: u16) {
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
    fn reclaim(&self, transmit: &mut Transmit<M>, wanted: usize) {
        let Transmit { direction, free, missed } = transmit;
        if self.is_gone.load(Ordering::Acquire) {
            return;
        }
        loop {
            match direction.ring.take() {
                Ok(Some((number, _))) => free.push(number),
                Ok(None) if free.len() >= wanted => break,
                Ok(None) => {
                    *missed = wanted.max(*missed);
                    if !direction.ring.want_interrupt() {
                        break;
                    }
                }
                Err(trouble) => return self.report(trouble),
            }
        }
    }

    /// How many bytes can be written now: none if the device is gone. Less than asked for: there will be a wake-up.
    pub(super) fn room(&self, wanted: usize) -> usize {
        let mut transmit = self.transmit.lock();
        self.reclaim(&mut transmit, wanted.div_ceil(BUFFER_BYTES));
        if self.is_gone.load(Ordering::Acquire) { 0 } else { transmit.free.len() * BUFFER_BYTES }
    }

    /// Whether the device has sent all that was written. If not, there will be a wake-up.
    pub(super) fn is_drained(&self) -> bool {
        let mut transmit = self.transmit.lock();
        let all = usize::from(transmit.direction.buffers);
        self.reclaim(&mut transmit, all);
        transmit.free.len() == all
    }

    /// Writes all the pieces, one after the other, or nothing if there is no room for all.
    pub(super) fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
        let mut transmit = self.transmit.lock();
        if transmit.missed == 0 {
            transmit.direction.ring.refuse_interrupts();
        }
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let wanted = total.div_ceil(BUFFER_BYTES);
        self.reclaim(&mut transmit, wanted);
        // What was taken back now may be what the interrupt was to tell of: this comes in its place.
        let is_seen = transmit.missed > 0 && transmit.free.len() >= transmit.missed;
        if is_seen {
            transmit.missed = 0;
        }
        let is_written = self.fill(&mut transmit, pieces, wanted);
        drop(transmit);
        if is_seen {
            self.room_queue().wake_all();
        }
        is_written
    }

    /// Gives the device the pieces in so many buffers, if there are as many.
    fn fill(&self, transmit: &mut Transmit<M>, pieces: &[&[u8]], wanted: usize) -> bool {
        if transmit.free.len() < wanted || self.is_gone.load(Ordering::Acquire) {
            return false;
        }
        let Transmit { direction, free, .. } = transmit;
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

    /// Throws away what has come. The device may go on filling buffers.
    pub(super) fn discard(&self) {
        let mut receive = self.receive.lock();
        for _ in 0..DISCARDED_MAX {
            if !self.look(&mut receive) {
                break;
            }
            if let Some((number, _, _)) = receive.current.take() {
                self.give_back(&mut receive, number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::Options;
    use crate::ring::tests::Shared;
    use core::sync::atomic::AtomicU32;
    use device::mmio::Window;
    use sched::{Registration, Waker};

    /// Where the ring says that it lies.
    const RING_AT: u64 = 0x10_0000;

    /// A port whose device does nothing, has all of its transmit buffers, and knows only one way to refuse interrupts.
    struct Fixture {
        port: Port<Shared>,
        ring: Shared,
        used: usize,
        returned: u16,
        woken: Arc<Count>,
        _registration: Registration,
    }

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Waker for Count {
        fn wake(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn filled() -> Fixture {
        let options = Options { size: BUFFERS, packed: false, event_index: false };
        let bytes = Ring::<u16, Shared>::bytes(options);
        let notifier = Notifier::new(Window::fake(64), 0, 0, true);
        let direction = |memory: Shared| {
            Direction::new(Ring::new(memory, options, None).unwrap(), notifier, options.size)
        };
        let ring = Shared::new(RING_AT, bytes);
        let addresses = Ring::<u16, Shared>::addresses(options, PhysAddr::new(RING_AT));
        let incoming = Shared::new(2 * RING_AT, bytes);
        let events = Arc::new(Events::new(1).unwrap());
        let port = Port::new(0, events, direction(incoming), direction(ring.clone()));
        assert!(port.appear().unwrap());
        let woken = Arc::new(Count::default());
        let registration = port.room_queue().register(woken.clone());
        for _ in 0..BUFFERS {
            assert!(port.try_write_all(&[b"full"]));
        }
        let used = (addresses.device.as_u64() - RING_AT) as usize;
        Fixture { port, ring, used, returned: 0, woken, _registration: registration }
    }

    impl Fixture {
        /// The device gives back the buffer that it had first.
        fn give_back(&mut self) {
            let entry = self.used + 4 + 8 * usize::from(self.returned % BUFFERS);
            let available = 16 * usize::from(BUFFERS);
            let head = self.ring.read_u16(available + 4 + 2 * usize::from(self.returned % BUFFERS));
            self.ring.write_u32(entry, head.into());
            self.ring.write_u32(entry + 4, 0);
            self.returned += 1;
            self.ring.write_u16(self.used + 2, self.returned);
        }

        fn interrupts(&self) -> bool {
            self.ring.read_u16(16 * usize::from(BUFFERS)) == 0
        }

        fn woken(&self) -> u32 {
            self.woken.0.load(Ordering::Relaxed)
        }
    }

    #[test]
    fn writer_leaves_another_one_its_interrupt() {
        let mut fixture = filled();
        assert!(!fixture.interrupts(), "nobody waits");
        assert_eq!(fixture.port.room(2 * BUFFER_BYTES), 0, "one waits for two buffers");
        assert!(fixture.interrupts());
        fixture.give_back();
        assert!(fixture.port.try_write_all(&[b"small"]), "another one needs but one");
        assert!(fixture.interrupts(), "the first one still waits");
        assert_eq!(fixture.woken(), 0);
    }

    #[test]
    fn writer_that_finds_what_another_one_waits_for_wakes_it() {
        let mut fixture = filled();
        assert_eq!(fixture.port.room(2 * BUFFER_BYTES), 0);
        fixture.give_back();
        fixture.give_back();
        fixture.give_back();
        assert!(fixture.port.try_write_all(&[b"small"]));
        assert_eq!(fixture.woken(), 1, "the interrupt may not come any more");
        assert!(fixture.port.try_write_all(&[b"small"]));
        assert!(!fixture.interrupts(), "nobody waits any more");
    }

    #[test]
    fn port_that_is_gone_has_no_room() {
        let mut fixture = filled();
        fixture.give_back();
        assert_eq!(fixture.port.room(1), BUFFER_BYTES);
        fixture.port.end();
        assert_eq!((fixture.port.room(1), fixture.port.try_write_all(&[b"x"])), (0, false));
    }

    #[test]
    fn port_is_drained_when_every_buffer_is_back() {
        let mut fixture = filled();
        for _ in 0..BUFFERS {
            assert!(!fixture.port.is_drained());
            fixture.give_back();
        }
        assert!(fixture.port.is_drained());
    }
    /// The memory of a ring whose device gives back every buffer as soon as it gets it.
    struct Eager {
        memory: Shared,
        /// Bytes that it says to have written.
        bytes: u32,
    }

    impl RingMemory for Eager {
        fn read_u16(&self, offset: usize) -> u16 {
            self.memory.read_u16(offset)
        }

        fn read_u32(&self, offset: usize) -> u32 {
            self.memory.read_u32(offset)
        }

        fn write_u16(&self, offset: usize, value: u16) {
            self.memory.write_u16(offset, value);
            let available = 16 * usize::from(BUFFERS);
            if offset == available + 2 {
                let used = (available + 6 + 2 * usize::from(BUFFERS)).next_multiple_of(4);
                let mut given = self.memory.read_u16(used + 2);
                while given != value {
                    let place = usize::from(given % BUFFERS);
                    let head = self.memory.read_u16(available + 4 + 2 * place);
                    self.memory.write_u32(used + 4 + 8 * place, head.into());
                    self.memory.write_u32(used + 8 + 8 * place, self.bytes);
                    given = given.wrapping_add(1);
                }
                self.memory.write_u16(used + 2, given);
            }
        }

        fn write_u32(&self, offset: usize, value: u32) {
            self.memory.write_u32(offset, value);
        }

        fn write_u64(&self, offset: usize, value: u64) {
            self.memory.write_u64(offset, value);
        }

        fn address(&self) -> PhysAddr {
            self.memory.address()
        }
    }

    fn eager(bytes: u32) -> Port<Eager> {
        let options = Options { size: BUFFERS, packed: false, event_index: false };
        let notifier = Notifier::new(Window::fake(64), 0, 0, true);
        let direction = |at| {
            let memory = Eager { memory: Shared::new(at, Ring::<u16, Eager>::bytes(options)), bytes };
            Direction::new(Ring::new(memory, options, None).unwrap(), notifier, options.size)
        };
        let events = Arc::new(Events::new(1).unwrap());
        let port = Port::new(0, events, direction(RING_AT), direction(2 * RING_AT));
        assert!(port.appear().unwrap());
        port
    }

    #[test]
    fn device_that_sends_nothing_again_and_again_breaks_the_rules() {
        let port = eager(0);
        assert!(!port.has_data());
        assert!(!port.is_there(), "it is to be stopped");
    }

    #[test]
    fn closing_ends_though_the_device_goes_on_sending() {
        let port = eager(100);
        port.discard();
        assert!(port.has_data() && port.is_there());
    }
}
