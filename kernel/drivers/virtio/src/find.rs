//! Which virtio devices there are, and who drives them.

use alloc::sync::Arc;

use device::pci::{ANY, PciDriver, PciId};
use machine::boot;
use sched::Mutex;

use crate::bus::{BUS, KindDriver, Place, VirtioDevice};
use crate::transport::{Mmio, placements};
use crate::{balloon, block, console, entropy, on_pci, plan9};

/// Who makes virtio devices on PCI.
const VENDOR: u16 = 0x1af4;

static IDS: [PciId; 1] = [PciId { vendor: VENDOR, device: ANY, class: 0, class_mask: 0 }];

/// A driver for each kind of device that there is one for.
const DRIVERS: [KindDriver; 5] = [
    KindDriver { name: "virtio_blk", kind: 2, probe: block::probe },
    KindDriver { name: "virtio_console", kind: 3, probe: console::probe },
    KindDriver { name: "virtio_rng", kind: 4, probe: entropy::probe },
    KindDriver { name: "virtio_balloon", kind: 5, probe: balloon::probe },
    KindDriver { name: "9pnet_virtio", kind: 9, probe: plan9::probe },
];

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

/// Looks for devices in memory, and has those on PCI found when PCI is looked at. Once; sleeps, and so does whoever comes meanwhile.
pub fn initialize() {
    // A sleeping lock: probing waits for devices.
    static IS_DONE: Mutex<bool> = Mutex::named("virtio devices", false);
    let mut is_done = IS_DONE.lock();
    if core::mem::replace(&mut *is_done, true) {
        return;
    }
    for driver in DRIVERS {
        if BUS.register(Arc::new(driver)).is_err() {
            log::error!("virtio: two drivers have one name");
        }
    }
    let driver = PciDriver::new("virtio-pci", &IDS, on_pci::probe);
    if device::pci::BUS.register(Arc::new(driver)).is_err() {
        log::error!("virtio: another driver has the name");
    }
    let dsdt = if boot::has_firmware_tables() { boot::firmware_table(*b"DSDT") } else { None };
    for placement in placements(boot::info().command_line, dsdt) {
        let Some((kind, vendor)) = Mmio::identify(placement) else { continue };
        let parent = placement.path();
        match VirtioDevice::new(Place::Memory(placement), &parent, kind, vendor) {
            // It is there for good.
            Some(device) => drop(BUS.add(device)),
            None => log::error!("{parent}: there are too many virtio devices"),
        }
    }
}
