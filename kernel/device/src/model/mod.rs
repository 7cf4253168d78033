//! The device model: buses, devices, drivers, and what user space is told of them.

mod bus;
mod driver;
mod identity;
mod number;
pub mod uevent;

pub use bus::{Attached, Bus};
pub use driver::{Binding, BusDevice, Driver, DriverError};
pub use identity::Identity;
pub use number::{Number, Numbers};
