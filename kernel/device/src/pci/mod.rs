//! PCI and PCI Express: configuration space, enumeration, addresses, interrupts by message.

pub(crate) mod access;
mod address;
mod assign;
pub mod capability;
mod config;
#[cfg(any(test, not(target_os = "none")))]
pub mod fake;
mod function;
mod hierarchy;
mod machine_bus;
mod message;
mod region;
pub mod registers;
mod reset;
mod scan;
#[cfg(test)]
mod tests;
mod window;

pub use address::{Address, DEVICES_PER_BUS, FUNCTIONS_PER_DEVICE};
pub use assign::RESERVED;
pub use config::{Config, ConfigAccess, Width};
pub use function::{Express, Function, Identity};
pub use hierarchy::{Hierarchy, Root};
pub use machine_bus::{
    ANY, BUS, PciDriver, PciId, ProbeFunction, find, functions, hierarchy, initialize, line_interrupt,
    remove, rescan,
};
pub(crate) use machine_bus::{hold, remove_behind};
pub use message::{MessageSource, table_size};
pub use region::{REGIONS, ROM_REGION, Region, Regions, Space};
#[cfg(test)]
pub(crate) use reset::is_saved;
pub(crate) use reset::reset_behind;
pub use reset::{ResetMethod, reset, reset_methods};
pub use window::{Range, WindowKind, Windows};
