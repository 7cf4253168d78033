//! The end of everything: a report of what went wrong, then silence on all processors.

use crate::console;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicBool, Ordering};

static PANICKED: AtomicBool = AtomicBool::new(false);

/// Reports a panic of the kernel and stops the machine: the body of the binary's panic handler.
pub fn report_and_stop(info: &PanicInfo<'_>) -> ! {
    crate::interrupt::disable_unguarded();
    if !PANICKED.swap(true, Ordering::SeqCst) {
        crate::ipi::stop_other_cpus();
        console::print(format_args!("\nkernel panic on processor {}: {}\n", crate::cpu::current(), info));
    }
    crate::cpu::halt_forever()
}

/// Panics because of a trap that the kernel should never have taken.
#[cfg(target_os = "none")]
pub(crate) fn report_trap(what: &str, frame: &crate::TrapFrame, fault_address: Option<u64>) -> ! {
    match fault_address {
        Some(address) => panic!("{what} at address {address:#x}: {frame:#x?}"),
        None => panic!("{what}: {frame:#x?}"),
    }
}
