//! What stands around the processors, set up in this order: tables, local APIC, clock, lines, power, processors.

use super::{
    apic, boot, calibration, firmware_memory::FirmwareMemory, interrupt, io_apic, ipi, per_cpu, power,
    processors, time,
};
use crate::firmware;

/// Finds and sets up interrupt controllers, clocks and the list of processors.
pub(crate) fn initialise() {
    let rsdp = crate::boot::info().rsdp.map(|address| address.as_u64());
    let platform = firmware::discover(&FirmwareMemory, rsdp);
    boot::set_root_pointer(platform.root_pointer);
    crate::boot::trace("firmware tables");
    interrupt::silence_legacy_controllers();
    apic::choose_mode(platform.local_apic);
    apic::initialise_cpu();
    let measurement = calibration::begin(&platform);
    // SAFETY: the boot processor is alone; each is called once.
    unsafe {
        per_cpu::set_boot_apic_id(apic::id());
        io_apic::initialise(&platform);
        power::initialise(&platform);
        processors::prepare(&platform);
    }
    interrupt::initialise();
    ipi::initialise();
    crate::boot::trace("interrupt controllers");
    time::initialise(calibration::finish(&measurement));
    time::initialise_cpu();
    crate::boot::trace("clock");
}
