//! The first serial port, by polling.
//!
//! The transmitter is watched only once per FIFO's worth of bytes: when it is empty, 16 bytes go out at once.

use super::port;

const COM1: u16 = 0x3f8;
const LINE_STATUS: u16 = COM1 + 5;
const TRANSMITTER_EMPTY: u8 = 1 << 5;
/// Depth of a 16550's transmit FIFO.
const FIFO_BYTES: usize = 16;
/// Longest wait for the transmitter, in polls: a port whose line is stuck loses bytes instead of hanging us.
const POLLS_MAX: u32 = 100_000;

pub(crate) fn write_bytes(bytes: &[u8]) {
    for chunk in bytes.chunks(FIFO_BYTES) {
        wait_until_empty();
        for byte in chunk {
            // SAFETY: the transmit register of the port that is ours from boot on.
            unsafe { port::write_u8(COM1, *byte) };
        }
    }
}

fn wait_until_empty() {
    for _ in 0..POLLS_MAX {
        // SAFETY: reading the line status register clears error bits only.
        if unsafe { port::read_u8(LINE_STATUS) } & TRANSMITTER_EMPTY != 0 {
            return;
        }
        core::hint::spin_loop();
    }
}

const DATA_READY: u8 = 1;
const BREAK: u8 = 1 << 4;

pub(crate) fn read_byte() -> Option<u8> {
    // SAFETY: the registers of the port that is ours; a byte is read once.
    unsafe { (port::read_u8(LINE_STATUS) & DATA_READY != 0).then(|| port::read_u8(COM1)) }
}

/// Looks at the status, which forgets a break when it is read; the zero byte that comes with one is dropped.
pub(crate) fn take_break() -> bool {
    // SAFETY: as for `read_byte`.
    unsafe {
        let status = port::read_u8(LINE_STATUS);
        if status & BREAK != 0 && status & DATA_READY != 0 {
            port::read_u8(COM1);
        }
        status & BREAK != 0
    }
}

pub(crate) fn interrupt_on_input() {
    const INTERRUPT_ENABLE: u16 = COM1 + 1;
    const MODEM_CONTROL: u16 = COM1 + 4;
    const RECEIVED: u8 = 1;
    const READY_WITH_INTERRUPT: u8 = 0x0b;
    // SAFETY: as for `initialise_port`; the handler of the line is connected.
    unsafe {
        port::write_u8(MODEM_CONTROL, READY_WITH_INTERRUPT);
        port::write_u8(INTERRUPT_ENABLE, RECEIVED);
    }
}

/// Sets the port up: 115,200 baud, 8 data bits, FIFOs on, interrupts off. Without this QEMU's port has no FIFO.
pub(crate) fn initialise_port() {
    for (offset, value) in [(1, 0x00), (3, 0x80), (0, 0x01), (1, 0x00), (3, 0x03), (2, 0x07), (4, 0x03)] {
        // SAFETY: the port is ours; the values are a 16550's documented set-up.
        unsafe { port::write_u8(COM1 + offset, value) };
    }
}
