//! Rings: how a driver gives buffers to a device and gets them back.
//!
//! | module | what it decides |
//! |---|---|
//! | `memory` | what a ring lies in, and the pieces that a buffer is made of |
//! | `slots` | what the driver knows of the buffers that the device has; the device can't reach it |
//! | `split` | the split layout: a table of descriptors and two rings |
//! | `packed` | the packed layout: one ring of descriptors |
//! | `queue` | one or the other |
//!
//! # What is believed of a device
//! Nothing. All that decides what the driver does next is kept in [`slots`](Slots), in memory of its own; what the device writes is read once, checked and then used. An index
//! that moved too far, a buffer that the device does not have, a length beyond what it may write: each is [`Trouble`], after which the ring gives nothing
//! more. Descriptors are written, never read back.

mod memory;
mod packed;
mod queue;
mod slots;
mod split;
#[cfg(test)]
pub(crate) mod tests;

pub use memory::{Area, Piece, RingMemory};
pub use packed::Packed;
pub use queue::{Addresses, Options, Ring};
pub use slots::{Slots, Trouble};
pub use split::Split;
