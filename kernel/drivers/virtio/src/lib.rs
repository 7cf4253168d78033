//! Virtio: devices that a virtual machine is given (specification: OASIS virtio 1.2).
//!
//! | module | what it decides |
//! |---|---|
//! | [`ring`] | how buffers go to a device and come back; what of that is believed |
//! | [`transport`] | where a device's registers are: PCI, or memory |
//! | `start` | reset, negotiation of features, queues |
//! | `signal` | what wakes the thread of a queue |
//! | `block` | disks |
//! | `balloon` | memory lent to the host |
//! | `console` | terminals and streams of bytes |
//! | `entropy` | random bytes |
//! | `plan9` | file servers |
//! | `bus` | devices and the drivers for their kinds find each other |
//! | `on_pci` | devices behind PCI functions, and how they recover from errors |
//! | `find` | which devices there are |
//!
//! # What is believed of a device
//! Nothing that would matter for others than its users: see [`ring`]. A device that breaks the rules is reset, and fails all that it had and gets.
//!
//! # What a device may reach
//! A device reaches what it was given the address of, until it has given it back or was reset. Requests are owned by their slot for that time. A device that does not even
//! take a reset is cut off from memory, where the bus can do that, before its requests are ended.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod balloon;
mod block;
mod bus;
mod console;
mod entropy;
#[cfg(test)]
mod fake;
mod find;
mod on_pci;
mod plan9;
pub mod ring;
mod signal;
mod start;
pub mod transport;

pub use bus::{BUS, VirtioDevice};
pub use console::{KeptPort, keep_port};
pub use entropy::Mixer;
pub use find::{count_named, initialize, register};
