//! One serial port.
//!
//! States of the transmitter: *idle* (ring empty, its interrupt masked) → *pushing* (a writer moves bytes to the FIFO,
//! a burst at a time, lock released in between) → *waiting* (FIFO full, interrupt unmasked): the interrupt handler moves
//! bytes until the ring is empty, and once more when those have left the FIFO, which somebody may wait for. There is one pusher at a time; other writers only queue. The receiver is *open* or, while its ring is full, *paused*.
//!
//! Locking: one interrupt-safe spin lock over rings and interrupt mask, held for a burst of [`FIFO_BYTES`] at most.
//! The wait queues are woken after it is released.

use crate::registers::Registers;
use crate::ring::Ring;
use bitflags::bitflags;
use machine::interrupt;
use machine::uart::{PORTS_MAX, Register, Uart};
use memory::OutOfMemory;
use sched::WaitQueue;
use sync::{IrqSpinLock, IrqSpinLockGuard, Once};

/// Depth of a 16550's FIFOs.
const FIFO_BYTES: usize = 16;
/// Capacity of the transmit ring: a few of the longest messages that writers want to put in whole.
const TRANSMIT_BYTES: usize = 16 * 1024;
/// So much more has room in it for the last bytes before the port is retired.
const LAST_BYTES_MAX: usize = 16;
/// Capacity of the receive ring: one page, which at the speed of these ports is plenty between two runs of a reader.
const RECEIVE_BYTES: usize = 4096;
/// Waiting writers are woken when there is this much room, and when the ring is empty.
const ENOUGH_ROOM: usize = TRANSMIT_BYTES / 2;
/// Most bursts that a writer moves before the interrupt takes over: a full ring.
const PUSHED_BURSTS_MAX: usize = TRANSMIT_BYTES / FIFO_BYTES;
/// Most rounds of an interrupt: each moves up to a FIFO's worth. Bounds the time with interrupts disabled; for what is
/// left the interrupt is raised again.
const INTERRUPT_ROUNDS_MAX: usize = 8;
/// Longest wait for the transmitter in a panic, in polls.
const PANIC_POLLS_MAX: u32 = 1_000_000;

/// FIFOs on and emptied, interrupt when 14 bytes are there or after a pause.
const FIFO_CONTROL: u8 = 0b1100_0111;
/// 8 data bits, no parity.
const FORMAT: u8 = 0b0000_0011;
/// The divisor is visible in place of data and interrupt registers.
const DIVISOR_ACCESS: u8 = 0b1000_0000;
/// Ready, request to send, and the gate of the interrupt line.
const MODEM: u8 = 0b0000_1011;
/// In the cause register: no interrupt is pending; what the cause is; the receive FIFO has reached its trigger level.
const NO_CAUSE: u8 = 1;
const CAUSE: u8 = 0b1110;
const CAUSE_TRIGGER_LEVEL: u8 = 0b0100;
/// The trigger level set by [`FIFO_CONTROL`].
const TRIGGER_BYTES: usize = 14;
/// In the status register: a byte is there, the transmitter's FIFO is empty.
const DATA_READY: u8 = 1 << 0;
const TRANSMITTER_EMPTY: u8 = 1 << 5;

bitflags! {
    /// Events that interrupt.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Events: u8 {
        const RECEIVED = 1 << 0;
        const TRANSMITTER_EMPTY = 1 << 1;
    }
}

/// A serial port that is in use.
pub struct Port<R: Registers = Uart> {
    registers: R,
    state: IrqSpinLock<State>,
    /// Writers that wait for room in the transmit ring.
    room: WaitQueue,
    /// Readers that wait for bytes.
    data: WaitQueue,
}

struct State {
    transmit: Ring,
    receive: Ring,
    enabled: Events,
    /// A writer moves bytes to the FIFO and will see what others queue.
    pushing: bool,
    /// Writers are to write elsewhere.
    retired: bool,
}

impl State {
    /// Room for bytes that are not the last ones.
    fn room(&self) -> usize {
        self.transmit.room().saturating_sub(LAST_BYTES_MAX)
    }
}

/// Why a port can't be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenError {
    /// There is no such port, or it is in use.
    NoSuchPort,
    /// No interrupt controller serves it.
    NoInterrupt,
    /// No memory for its rings.
    OutOfMemory,
}

impl From<OutOfMemory> for OpenError {
    fn from(_: OutOfMemory) -> OpenError {
        OpenError::OutOfMemory
    }
}

static PORTS: [Once<Port>; PORTS_MAX] = [const { Once::new() }; PORTS_MAX];

impl Port {
    /// Takes a port (0 is COM1) into use, for good.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(index: usize) -> Result<&'static Port, OpenError> {
        let uart = Uart::take(index).ok_or(OpenError::NoSuchPort)?;
        let irq = uart.irq();
        let port = Port::new(uart)?;
        let slot = PORTS.get(index).ok_or(OpenError::NoSuchPort)?;
        let port = slot.call_once(|| port);
        interrupt::connect_isa_irq(irq, handle_interrupt, index).map_err(|_| OpenError::NoInterrupt)?;
        port.start();
        Ok(port)
    }
}

fn handle_interrupt(index: usize) {
    if let Some(port) = PORTS.get(index).and_then(Once::get) {
        port.interrupt();
    }
}

impl<R: Registers> Port<R> {
    pub(crate) fn new(registers: R) -> Result<Port<R>, OutOfMemory> {
        let state = State {
            transmit: Ring::new(TRANSMIT_BYTES + LAST_BYTES_MAX)?,
            receive: Ring::new(RECEIVE_BYTES)?,
            enabled: Events::empty(),
            pushing: false,
            retired: false,
        };
        Ok(Port { registers, state: IrqSpinLock::new(state), room: WaitQueue::new(), data: WaitQueue::new() })
    }

    /// Programs the UART and opens the receiver.
    pub(crate) fn start(&self) {
        let mut state = self.state.lock();
        let registers = &self.registers;
        registers.write(Register::InterruptEnable, 0);
        registers.write(Register::LineControl, DIVISOR_ACCESS);
        registers.write(Register::Data, 1);
        registers.write(Register::InterruptEnable, 0);
        registers.write(Register::LineControl, FORMAT);
        registers.write(Register::InterruptCause, FIFO_CONTROL);
        registers.write(Register::ModemControl, MODEM);
        state.enabled = Events::empty();
        self.enable(&mut state, Events::RECEIVED);
    }

    fn enable(&self, state: &mut State, events: Events) {
        if !state.enabled.contains(events) {
            state.enabled |= events;
            self.registers.write(Register::InterruptEnable, state.enabled.bits());
        }
    }

    fn disable(&self, state: &mut State, events: Events) {
        if state.enabled.intersects(events) {
            state.enabled -= events;
            self.registers.write(Register::InterruptEnable, state.enabled.bits());
        }
    }

    /// Queues all the pieces for transmission, one after the other with nothing in between, or none of them: false if
    /// there is no room for all, or the port is retired. Does not wait.
    pub fn try_write_all(&self, pieces: &[&[u8]]) -> bool {
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let state = self.state.lock();
        if state.retired || state.room() < total {
            return false;
        }
        self.queue(state, pieces);
        true
    }

    /// Queues the last bytes, for which there is always room; from now on others are refused. Only who writes in a panic is not.
    pub fn retire(&self, last: &[u8]) {
        assert!(last.len() <= LAST_BYTES_MAX, "room is kept for so many");
        let mut state = self.state.lock();
        if !state.retired {
            state.retired = true;
            self.queue(state, &[last]);
        }
    }

    /// The port takes bytes again.
    pub fn resume(&self) {
        self.state.lock().retired = false;
        self.room.wake_all();
    }

    fn queue(&self, mut state: IrqSpinLockGuard<'_, State>, pieces: &[&[u8]]) {
        for piece in pieces {
            let taken = state.transmit.push(piece);
            debug_assert_eq!(taken, piece.len(), "room was checked");
        }
        // One pusher at a time: two that take turns at the lock wait for each other more than they push.
        let idle = !state.pushing && !state.enabled.contains(Events::TRANSMITTER_EMPTY);
        state.pushing |= idle;
        drop(state);
        if idle {
            self.push_out();
        }
    }

    /// How many bytes can be queued now.
    pub fn transmit_room(&self) -> usize {
        let state = self.state.lock();
        if state.retired { 0 } else { state.room() }
    }

    /// Whether everything queued has left.
    pub fn is_drained(&self) -> bool {
        let state = self.state.lock();
        state.transmit.len() == 0 && self.registers.read(Register::LineStatus) & TRANSMITTER_EMPTY != 0
    }

    /// Woken when transmit room appears, and when everything has left.
    pub fn room_queue(&self) -> &WaitQueue {
        &self.room
    }

    /// Moves queued bytes to the transmitter while it takes them; the rest is left to its interrupt. What others queue
    /// meanwhile is moved too, but not for ever.
    fn push_out(&self) {
        for _ in 0..PUSHED_BURSTS_MAX {
            let mut state = self.state.lock();
            if !self.push_burst(&mut state) {
                state.pushing = false;
                drop(state);
                self.room.wake_all();
                return;
            }
        }
        let mut state = self.state.lock();
        state.pushing = false;
        self.enable(&mut state, Events::TRANSMITTER_EMPTY);
        drop(state);
        self.room.wake_all();
    }

    /// Moves one FIFO's worth; says whether to go on. Otherwise the interrupt is unmasked exactly if bytes are left, in the ring or the FIFO.
    fn push_burst(&self, state: &mut State) -> bool {
        if self.registers.read(Register::LineStatus) & TRANSMITTER_EMPTY == 0 {
            self.enable(state, Events::TRANSMITTER_EMPTY);
            return false;
        }
        if state.transmit.len() == 0 {
            self.disable(state, Events::TRANSMITTER_EMPTY);
            return false;
        }
        let mut burst = [0; FIFO_BYTES];
        let length = state.transmit.pop(&mut burst);
        self.registers.write_burst(&burst[..length]);
        true
    }

    /// Takes received bytes out and returns their number. Does not wait.
    pub fn read(&self, target: &mut [u8]) -> usize {
        let mut state = self.state.lock();
        let count = state.receive.pop(target);
        if count > 0 {
            self.enable(&mut state, Events::RECEIVED);
        }
        count
    }

    /// Whether there are bytes to read.
    pub fn has_data(&self) -> bool {
        self.state.lock().receive.len() > 0
    }

    /// Woken when bytes arrive.
    pub fn data_queue(&self) -> &WaitQueue {
        &self.data
    }

    /// The UART's interrupt.
    pub(crate) fn interrupt(&self) {
        let (mut received, mut drained) = (false, false);
        let mut state = self.state.lock();
        let room_before = state.room();
        for round in 0.. {
            let cause = self.registers.read(Register::InterruptCause);
            if cause & NO_CAUSE != 0 {
                break;
            }
            if round == INTERRUPT_ROUNDS_MAX {
                self.raise_again(&state);
                break;
            }
            let known = if cause & CAUSE == CAUSE_TRIGGER_LEVEL { TRIGGER_BYTES } else { 0 };
            received |= self.receive(&mut state, known);
            if state.enabled.contains(Events::TRANSMITTER_EMPTY) {
                self.push_burst(&mut state);
                drained = !state.enabled.contains(Events::TRANSMITTER_EMPTY);
            }
        }
        let room = state.room();
        drop(state);
        if received {
            self.data.wake_all();
        }
        // Writers that were woken for every burst would find no room for a whole message, and fight for the lock.
        let crossed = |mark: usize| room_before < mark && room >= mark;
        if drained || crossed(ENOUGH_ROOM) || crossed(TRANSMIT_BYTES) {
            self.room.wake_all();
        }
    }

    /// Lets the interrupt line, whose edges count, go down and up.
    fn raise_again(&self, state: &State) {
        self.registers.write(Register::InterruptEnable, 0);
        self.registers.write(Register::InterruptEnable, state.enabled.bits());
    }

    /// Empties the receive FIFO, which is known to hold so many bytes or more, into the ring; pauses the receiver when
    /// that is full. Says whether bytes came. Each look at the status costs as much as a byte, so it is not asked
    /// about what is known.
    fn receive(&self, state: &mut State, known: usize) -> bool {
        let mut burst = [0; FIFO_BYTES];
        let limit = state.receive.room().min(FIFO_BYTES);
        let mut length = 0;
        let is_ready = || self.registers.read(Register::LineStatus) & DATA_READY != 0;
        while length < limit && (length < known || is_ready()) {
            burst[length] = self.registers.read(Register::Data);
            length += 1;
        }
        state.receive.push(&burst[..length]);
        if state.receive.room() == 0 {
            self.disable(state, Events::RECEIVED);
        }
        length > 0
    }

    /// Transmits bytes by polling, after what is queued: for a panic, when nobody else runs. A lock that a stopped
    /// processor holds is passed over, and with it what is queued.
    pub fn write_in_panic(&self, bytes: &[u8]) {
        if let Some(mut state) = self.state.try_lock() {
            let mut burst = [0; FIFO_BYTES];
            loop {
                let length = state.transmit.pop(&mut burst);
                if length == 0 {
                    break;
                }
                self.transmit_polled(&burst[..length]);
            }
        }
        for burst in bytes.chunks(FIFO_BYTES) {
            self.transmit_polled(burst);
        }
    }

    fn transmit_polled(&self, burst: &[u8]) {
        for _ in 0..PANIC_POLLS_MAX {
            if self.registers.read(Register::LineStatus) & TRANSMITTER_EMPTY != 0 {
                break;
            }
            machine::cpu::relax();
        }
        self.registers.write_burst(burst);
    }
}
