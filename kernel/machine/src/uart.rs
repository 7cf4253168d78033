//! The serial ports' registers, one owner each.
//!
//! A 16550 reaches no memory, so whoever owns its registers may do with them what they like: the accesses are safe. The
//! early console writes to the first port without asking; it and the port's driver may both transmit.

use crate::backend;
use core::sync::atomic::{AtomicBool, Ordering};

/// Ports that a PC can have.
pub const PORTS_MAX: usize = 4;

/// Registers of a 16550, by their offset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Register {
    /// Received byte (read) or byte to transmit (write).
    Data = 0,
    /// Which events interrupt.
    InterruptEnable = 1,
    /// Why it interrupts (read) or the FIFOs' control (write).
    InterruptCause = 2,
    /// Format, and access to the divisor.
    LineControl = 3,
    /// Modem lines, and the gate of the interrupt.
    ModemControl = 4,
    /// State of receiver and transmitter.
    LineStatus = 5,
    /// Modem lines' state.
    ModemStatus = 6,
    /// Remembers a byte: tells whether there is a port at all.
    Scratch = 7,
}

/// One serial port.
#[derive(Debug)]
pub struct Uart {
    index: usize,
}

static TAKEN: [AtomicBool; PORTS_MAX] = [const { AtomicBool::new(false) }; PORTS_MAX];

impl Uart {
    /// Takes a port (0 is COM1) for good. None when there is no such port or somebody has it.
    pub fn take(index: usize) -> Option<Uart> {
        let taken = TAKEN.get(index)?;
        if !backend::uart::exists(index) || taken.swap(true, Ordering::AcqRel) {
            return None;
        }
        Some(Uart { index })
    }

    /// The ISA interrupt line of the port.
    pub fn irq(&self) -> u8 {
        if self.index.is_multiple_of(2) { 4 } else { 3 }
    }

    /// Reads a register.
    #[inline]
    pub fn read(&self, register: Register) -> u8 {
        backend::uart::read(self.index, register)
    }

    /// Writes a register.
    #[inline]
    pub fn write(&self, register: Register, value: u8) {
        backend::uart::write(self.index, register, value);
    }

    /// Writes bytes to the transmitter's FIFO, which the caller knows to have room.
    #[inline]
    pub fn write_burst(&self, bytes: &[u8]) {
        backend::uart::write_burst(self.index, bytes);
    }
}
