//! Serial ports: 16550 with FIFO and interrupts.
//!
//! [`Port`] moves bytes between two rings in memory and the UART's FIFOs. Writers put bytes into the transmit ring,
//! all or nothing, and push what the FIFO takes themselves; only when the transmitter is not ready (the other side is
//! slow) the rest is left to the transmitter's interrupt. The receiver is driven by interrupts alone. When the
//! receive ring is full the receive interrupt is masked until somebody reads: the FIFO fills up, and the sender stops.
//!
//! The driver knows [`Registers`] only, so that its tests drive a UART made of memory.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod port;
mod registers;
mod ring;
#[cfg(test)]
mod tests;

pub use port::{OpenError, Port};
pub use registers::Registers;
