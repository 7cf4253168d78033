//! The ways to a virtio device's registers.

mod interface;
mod mmio;
mod pci;

pub use interface::{Connection, Handlers, Notifier, Status, Transport};
pub use mmio::{Mmio, Placement, placements};
pub use pci::Pci;
