//! Which functions are driven: all whose class says that they are NVMe controllers.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use device::model::{Binding, DriverError};
use device::pci::{BUS, Function, PciDriver, PciId};

use crate::controller::Controller;

/// Mass storage, non-volatile memory, NVM Express.
const CLASS: u32 = 0x01_0802;

static IDS: [PciId; 1] = [PciId::class(CLASS, 0xff_ffff)];

fn probe(function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
    function.enable();
    match Controller::probe(function) {
        Ok(controller) => Ok(controller),
        Err(error) => {
            function.disable_messages();
            function.disable();
            Err(error)
        }
    }
}

/// Has controllers driven that were, or will be, found on PCI. Only the first call does something.
pub fn initialize() {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.swap(true, Ordering::AcqRel) {
        return;
    }
    let driver = PciDriver::new("nvme", &IDS, probe);
    if BUS.register(Arc::new(driver)).is_err() {
        log::error!("nvme: another driver has the name");
    }
}
