//! What drivers and devices have to say to a bus.

use alloc::string::String;
use alloc::sync::Arc;

use crate::express::ErrorHandlers;

/// A device on a bus.
pub trait BusDevice: Send + Sync + 'static {
    /// Its name, unique on the bus.
    fn name(&self) -> String;

    /// The name of the bus, as user space knows it.
    fn subsystem(&self) -> &'static str;

    /// Where it is below `/sys`.
    fn path(&self) -> String {
        alloc::format!("/devices/{}", self.name())
    }

    /// Lines `KEY=VALUE` for `uevent`.
    fn describe(&self, out: &mut String) {
        let _ = out;
    }
}

/// Why a driver does not have a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriverError {
    /// There is no such device or driver, or the driver is not for the device.
    NotFound,
    /// The device has a driver, or the name is taken.
    Busy,
    /// What the device offers is not what the driver needs.
    NotSupported,
    /// The device does not do what it should.
    Broken,
    /// No memory, no interrupt vector.
    Exhausted,
    /// What was asked for makes no sense.
    Invalid,
}

/// A driver for devices of a bus.
pub trait Driver<D>: Send + Sync + 'static {
    /// Its name, unique on the bus.
    fn name(&self) -> &str;

    /// Whether its id table has the device.
    fn matches(&self, device: &D) -> bool;

    /// Takes a device. May sleep.
    fn probe(&self, device: &Arc<D>) -> Result<Arc<dyn Binding>, DriverError>;

    /// Adds an entry to its id table, written as user space writes it.
    fn add_id(&self, text: &str) -> Result<(), DriverError> {
        let _ = text;
        Err(DriverError::NotSupported)
    }

    /// Takes an entry out again that was added.
    fn remove_id(&self, text: &str) -> Result<(), DriverError> {
        let _ = text;
        Err(DriverError::NotSupported)
    }

    /// Whether there can be such entries.
    fn takes_ids(&self) -> bool {
        false
    }
}

/// A driver's hold on one device.
///
/// [`Binding::remove`] ends it: nothing of the driver touches the device after, interrupts are given back, requests in flight have
/// ended (with an error, if the device is gone already).
pub trait Binding: Send + Sync {
    /// Lets go of the device. Called once; may sleep.
    fn remove(&self);

    /// The device is about to lose power.
    fn suspend(&self) {}

    /// The device has power again.
    fn resume(&self) {}

    /// How the driver takes part in recovery from errors, if it does.
    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        None
    }
}
