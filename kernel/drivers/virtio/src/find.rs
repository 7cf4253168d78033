//! Which virtio devices there are, and who drives them.

use alloc::boxed::Box;
use alloc::sync::Arc;

use device::model::{Binding, DriverError};
use device::pci::{ANY, BUS, Function, PciDriver, PciId};
use machine::boot;
use sched::Mutex;
use sync::SpinLock;

use crate::restart::Restarting;
use crate::transport::{Mmio, Pci, Transport, placements};
use crate::{balloon, block, console, entropy, plan9};

/// Who makes virtio devices on PCI.
const VENDOR: u16 = 0x1af4;
/// Kinds of devices.
const BLOCK: u32 = 2;
const CONSOLE: u32 = 3;
const ENTROPY: u32 = 4;
const BALLOON: u32 = 5;
const FILE_SERVER: u32 = 9;

static IDS: [PciId; 1] = [PciId { vendor: VENDOR, device: ANY, class: 0, class_mask: 0 }];

/// Devices on no bus, which stay for good.
static ON_NO_BUS: SpinLock<alloc::vec::Vec<Arc<dyn Binding>>> =
    SpinLock::named("virtio devices in memory", alloc::vec::Vec::new());

/// Gives a device to the driver for its kind.
fn drive(transport: Box<dyn Transport>) -> Result<Arc<dyn Binding>, DriverError> {
    match transport.kind() {
        BLOCK => block::probe(transport),
        CONSOLE => console::probe(transport),
        ENTROPY => entropy::probe(transport),
        BALLOON => balloon::probe(transport),
        FILE_SERVER => plan9::probe(transport),
        _ => Err(DriverError::NotSupported),
    }
}

fn take(function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
    let transport = Pci::new(function).ok_or(DriverError::NotSupported)?;
    drive(Box::new(transport)).inspect_err(|_| function.disable())
}

fn probe(function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
    let binding = take(function)?;
    if binding.error_handlers().is_some() {
        return Ok(binding);
    }
    Ok(Restarting::new(function, binding, Box::new(take)))
}

/// Registers the device nodes, and names who takes random bytes. At start-up.
pub fn register(mixer: entropy::Mixer) {
    entropy::register(mixer);
    console::register();
    balloon::register();
}

/// How many devices the command line names.
pub fn count_named() -> usize {
    boot::info().command_line.matches("virtio_mmio.device=").count()
}

/// Looks for devices on no bus, and has those on PCI found when PCI is looked at. Once; sleeps, and so does whoever comes meanwhile.
pub fn initialize() {
    // A sleeping lock: probing waits for devices.
    static IS_DONE: Mutex<bool> = Mutex::named("virtio devices", false);
    let mut is_done = IS_DONE.lock();
    if core::mem::replace(&mut *is_done, true) {
        return;
    }
    let driver = PciDriver::new("virtio-pci", &IDS, probe);
    if BUS.register(Arc::new(driver)).is_err() {
        log::error!("virtio: another driver has the name");
    }
    let dsdt = if boot::has_firmware_tables() { boot::firmware_table(*b"DSDT") } else { None };
    for placement in placements(boot::info().command_line, dsdt) {
        let Some(transport) = Mmio::new(placement) else { continue };
        match drive(Box::new(transport)) {
            Ok(binding) => ON_NO_BUS.lock().push(binding),
            Err(error) => log::info!("virtio at {:#x}: {error:?}", placement.address),
        }
    }
}
