//! Virtio devices behind PCI functions: the function's driver puts the device on the virtio bus, and stands between the two when the function recovers from errors
//! (specs/pcie-port-bus.md, feature 16).
//!
//! A driver that can give a device back what it had (that of disks) is asked itself. For the others, consoles, balloons, file servers and random bytes:
//!
//! | step | what happens |
//! |---|---|
//! | error detected | nothing: who waits for the device goes on waiting |
//! | reset | the driver lets go of the device, which has forgotten everything, and takes it anew |
//! | no recovery | the driver lets go of it |
//!
//! For programs that is a device that was taken out and put back: what they have open of it is at its end (a mounted file server gives `EIO`), and what they open
//! next is the new one. Memory that a balloon has lent comes back and is lent again.
//!
//! The driver lets go only after the reset: before, the device might still reach the memory that it was given. Between the two no driver begins with it.

use alloc::sync::Arc;

use device::express::{ChannelState, ErrorHandlers, Verdict};
use device::model::{Binding, BusDevice, DriverError};
use device::pci::Function;

use crate::bus::{BUS, Place, VirtioDevice};
use crate::transport::Pci;

/// The hold of a function's driver: the device on the virtio bus.
struct OnPci {
    device: Arc<VirtioDevice>,
}

/// Takes a function, and puts the device that it is on the virtio bus, which may have a driver for it or not.
pub(crate) fn probe(function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
    let kind = Pci::kind_of(function).ok_or(DriverError::NotSupported)?;
    let vendor = function.identity.subsystem_vendor;
    let place = Place::Function(function.clone());
    let device = VirtioDevice::new(place, &function.path(), kind, vendor.into());
    let device = device.ok_or(DriverError::Exhausted)?;
    BUS.add(device.clone());
    Ok(Arc::new(OnPci { device }))
}

impl OnPci {
    /// The hold of the device's driver, if it has one.
    fn driver(&self) -> Option<Arc<dyn Binding>> {
        BUS.attached(&self.device)?.binding()
    }
}

impl Binding for OnPci {
    fn remove(&self) {
        BUS.remove(&self.device);
        self.device.release_name();
    }

    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        Some(self)
    }
}

impl ErrorHandlers for OnPci {
    fn error_detected(&self, state: ChannelState) -> Verdict {
        self.device.set_recovering(state != ChannelState::Failed);
        let Some(driver) = self.driver() else { return Verdict::None };
        if let Some(own) = driver.error_handlers() {
            return own.error_detected(state);
        }
        match state {
            ChannelState::Normal => Verdict::CanRecover,
            ChannelState::Frozen => Verdict::NeedReset,
            ChannelState::Failed => {
                BUS.release_from(&self.device, &driver);
                Verdict::Disconnect
            }
        }
    }

    fn mmio_enabled(&self) -> Verdict {
        let driver = self.driver();
        driver
            .as_ref()
            .and_then(|driver| driver.error_handlers())
            .map_or(Verdict::Recovered, |own| own.mmio_enabled())
    }

    fn slot_reset(&self) -> Verdict {
        let Some(driver) = self.driver() else { return Verdict::None };
        if let Some(own) = driver.error_handlers() {
            return own.slot_reset();
        }
        self.device.set_recovering(false);
        match BUS.restart(&self.device) {
            Ok(()) => Verdict::Recovered,
            // Its driver was taken away meanwhile.
            Err(DriverError::NotFound) => Verdict::None,
            Err(error) => {
                log::error!("{}: it can't be started again: {error:?}", self.device.path());
                Verdict::Disconnect
            }
        }
    }

    fn resume(&self) {
        self.device.set_recovering(false);
        if let Some(driver) = self.driver()
            && let Some(own) = driver.error_handlers()
        {
            own.resume();
        }
    }
}
