//! Start-up: each layer in turn, from the machine to the first program.
//!
//! The boot processor does everything up to the scheduler alone. With `test=` on the command line the tests of the
//! machine run before the scheduler takes the processors over.

use crate::tests;
use machine::{boot, cpu};

/// Entered by crate `machine` on the boot processor, on its boot stack, interrupts disabled.
pub(crate) fn kernel_main() -> ! {
    log::info!("Starling {} on {} processors", env!("CARGO_PKG_VERSION"), cpu::count());
    cpu::set_ap_entry(tests::machine::application_processor);
    cpu::start_application_processors();
    boot::trace("processors");
    if let Some(selection) = boot::info().option("test") {
        tests::run(selection);
    }
    for mark in boot::trace_marks() {
        log::info!("{:>10} ns {}", mark.at_ns, mark.name);
    }
    machine::power::power_off()
}
