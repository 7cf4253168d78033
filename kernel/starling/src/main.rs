//! The kernel binary: the order in which the layers come up, and the in-kernel tests.
//!
//! On the bare machine the boot processor enters [`kernel_main`] when crate `machine` is ready. Built for the host
//! the binary does nothing; it exists so that the workspace builds as a whole.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "none")]
machine::kernel_main!(kernel_main);

#[cfg(target_os = "none")]
fn kernel_main() -> ! {
    log::info!("Starling {}", env!("CARGO_PKG_VERSION"));
    machine::cpu::set_ap_entry(|_| machine::cpu::halt_forever());
    let online = machine::cpu::start_application_processors();
    machine::boot::trace("processors");
    log::info!("{online:?} online");
    for mark in machine::boot::trace_marks() {
        log::info!("{:>10} ns {}", mark.at_ns, mark.name);
    }
    log::info!("hz {} wall {}", machine::time::cycles_per_second(), machine::time::wall_clock_boot_ns());
    machine::power::power_off()
}

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    machine::panic::report_and_stop(info)
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("The Starling kernel runs on the bare machine; `starling run` starts it in QEMU.");
}
