//! Turning the machine off, and starting it anew.

use crate::backend;

/// Turns the machine off. Stops all processors if the machine can't be turned off.
pub fn power_off() -> ! {
    backend::power::power_off()
}

/// Starts the machine anew.
pub fn reboot() -> ! {
    backend::power::reboot()
}
