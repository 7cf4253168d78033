//! What the driver needs of a UART.

use machine::uart::{Register, Uart};

/// A 16550's registers.
pub trait Registers: Send + Sync + 'static {
    /// Reads a register.
    fn read(&self, register: Register) -> u8;

    /// Writes a register.
    fn write(&self, register: Register, value: u8);

    /// Writes bytes to the transmitter's FIFO, which has room for them.
    fn write_burst(&self, bytes: &[u8]) {
        for byte in bytes {
            self.write(Register::Data, *byte);
        }
    }
}

impl Registers for Uart {
    fn read(&self, register: Register) -> u8 {
        Uart::read(self, register)
    }

    fn write(&self, register: Register, value: u8) {
        Uart::write(self, register, value);
    }

    fn write_burst(&self, bytes: &[u8]) {
        Uart::write_burst(self, bytes);
    }
}
