//! Start-up: each layer in turn, from the machine to the first program.
//!
//! The boot processor does everything up to the scheduler alone. With `test=` on the command line the tests of the
//! machine run before the scheduler takes the processors over; all others after.

use crate::own_tests::{self, Selection};
use crate::{first_program, host_link};
use machine::boot;
use machine::cpu::{self, CpuId};

/// Entered by crate `machine` on the boot processor, on its boot stack, interrupts disabled.
pub(crate) fn kernel_main() -> ! {
    log::info!("Starling {} on {} processors", env!("CARGO_PKG_VERSION"), cpu::count());
    let tests = own_tests::selection();
    if boot::info().option("clustered") == Some("off") {
        sync::clustered::set_enabled(false);
    }
    memory::initialize();
    let with_debugger = boot::info().option("debugger") == Some("on");
    if with_debugger || tests.is_some() {
        trace::debugger::initialize();
    }
    boot::trace("memory");
    start_processors(tests);
    boot::trace("processors");
    if let Some(tests) = tests {
        tests.run_early();
    }
    sched::initialize();
    machine::interrupt::enable();
    ipc::initialize();
    if boot::info().option("ipc") == Some("partitioned") {
        ipc::partition_all();
    }
    boot::trace("scheduler");
    if with_debugger {
        trace::debugger::enable(true, true);
        if let Err(reason) = trace::debugger::listen() {
            log::error!("the debugger does not hear the serial port: {reason:?}");
        }
    }
    if let Some(tests) = tests {
        host_link::start();
        tests.run();
    }
    first_program::run()
}

/// Starts the application processors: straight into the scheduler, or for the tests of the machine to direct first.
fn start_processors(tests: Option<Selection>) {
    for cpu in (1..cpu::count()).map(CpuId::from_index) {
        if memory::initialize_cpu(cpu).is_err() {
            log::error!("no memory for processor {cpu}");
        }
    }
    cpu::set_ap_entry(tests.map_or(enter_scheduler, Selection::application_processor));
    cpu::start_application_processors();
}

/// An application processor becomes the scheduler's.
pub(crate) fn enter_scheduler(_cpu: CpuId) -> ! {
    sched::enter_application_processor()
}
