//! PCI Express ports and their services.
//!
//! One driver, the port bus driver, has every port; what ports can do is split into *service devices*, each with a driver of its own: so
//! hot-plug and error reporting share a root port, which one driver for each device would forbid (specs/pcie-port-bus.md).
//!
//! | module | what it decides |
//! |---|---|
//! | `kind` | which port has which services |
//! | `service` | service devices, their bus, registration of drivers |
//! | `vectors` | which service gets which interrupt |
//! | `port` | the port bus driver |
//! | `drain`, `notes` | how handlers take events out of a status register, and where they note them |
//! | `worker` | the thread that does what handlers may not |
//! | [`aer`], [`hot_plug`], `pme`, `virtual_channel` | the services |
//! | `recovery` | the order of callbacks after an error |

pub mod aer;
mod drain;
pub mod hot_plug;
mod kind;
mod notes;
mod pme;
mod port;
mod recovery;
mod service;
#[cfg(test)]
mod tests;
mod vectors;
mod virtual_channel;
mod worker;

pub use kind::{PortKind, ServiceKind, ServiceSet, SlotCapabilities, services_of, slot_capabilities};
pub use port::{NAME as PORT_DRIVER, initialize};
pub use recovery::{ChannelState, ErrorHandlers, Outcome, Verdict, recover};
pub use service::{
    InterruptMode, PORT_BUS, Registers, ServiceDevice, ServiceDriver, ServiceId, ServiceProbe, register,
    unregister,
};
pub use vectors::{Offer, Vectors, assign};
pub(crate) use worker::sleep_ms;
