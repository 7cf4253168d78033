//! The kernel binary: the order in which the layers come up.
//!
//! On the bare machine the boot processor enters `start::kernel_main` when crate `machine` is ready. Built for the host
//! the binary does nothing; it exists so that the workspace builds as a whole.

#![cfg_attr(target_os = "none", no_std, no_main)]
#![forbid(unsafe_code)]

#[cfg(target_os = "none")]
extern crate alloc;

#[cfg(target_os = "none")]
mod first_program;
#[cfg(target_os = "none")]
mod host_link;
#[cfg(target_os = "none")]
mod own_tests;
#[cfg(target_os = "none")]
mod root;
#[cfg(target_os = "none")]
mod shared_folders;
#[cfg(target_os = "none")]
mod start;

#[cfg(target_os = "none")]
machine::kernel_main!(start::kernel_main);

#[cfg(target_os = "none")]
#[panic_handler]
fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    machine::panic::report_and_stop(info)
}

#[cfg(not(target_os = "none"))]
fn main() {
    println!("The Starling kernel runs on the bare machine; `starling run` starts it in QEMU.");
}
