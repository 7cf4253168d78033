//! Start-up order of the boot processor, from the entry code to the binary's main function.

use super::{boot, console, fpu, gdt, paging, per_cpu, register, smap, stacks, time, trap, window};
use crate::cpu::CpuId;
use core::cell::UnsafeCell;

/// Data that the boot processor writes while it is alone and everybody only reads after.
pub(crate) struct BootCell<T>(UnsafeCell<T>);

// SAFETY: written only through unsafe functions whose callers vouch that nobody else uses the cell yet.
unsafe impl<T: Sync> Sync for BootCell<T> {}

impl<T> BootCell<T> {
    pub(crate) const fn new(value: T) -> BootCell<T> {
        BootCell(UnsafeCell::new(value))
    }

    pub(crate) fn get(&self) -> &T {
        // SAFETY: nobody writes any more, by the contracts of `set` and `get_mut`.
        unsafe { &*self.0.get() }
    }

    /// # Safety
    /// Nobody else uses the cell yet.
    pub(crate) unsafe fn set(&self, value: T) {
        // SAFETY: see the function's contract.
        unsafe { *self.0.get() = value };
    }

    /// # Safety
    /// Nobody else uses the cell while the reference lives.
    #[allow(clippy::mut_from_ref, reason = "exclusive by the function's contract")]
    pub(crate) unsafe fn get_mut(&self) -> &mut T {
        // SAFETY: see the function's contract.
        unsafe { &mut *self.0.get() }
    }
}

// SAFETY: the linker script and the assembly define these symbols with these types.
unsafe extern "C" {
    static boot_stack_bottom: u8;
    static __kernel_start: u8;
    static __symbols_start: u8;
    /// Provided by the binary through [`crate::kernel_main!`].
    safe fn starling_kernel_main() -> !;
}

/// Names the binary's main function, which the boot processor enters when the machine is ready: interrupts
/// disabled, on the boot stack, other processors not started.
#[macro_export]
macro_rules! kernel_main {
    ($main:path) => {
        // SAFETY: only the machine crate's start-up code knows the name.
        #[unsafe(no_mangle)]
        extern "C" fn starling_kernel_main() -> ! {
            $main()
        }
    };
}

/// Physical address of the first byte of the kernel image.
pub(crate) fn image_start() -> u64 {
    boot::image_physical((&raw const __kernel_start).addr())
}

/// Physical address after the last byte of the kernel image with its symbol table.
pub(crate) fn image_end() -> u64 {
    boot::image_physical((&raw const __symbols_start).addr()) + super::symbols::table_bytes()
}

/// Physical address of something in the kernel image.
pub(crate) fn image_physical_of(pointer: *const u8) -> u64 {
    boot::image_physical(pointer.addr())
}

/// Called by the entry code: the boot processor's way to `kernel_main`.
pub(crate) extern "C" fn start(start_info: u64, entry_cycles: u64) -> ! {
    time::set_boot_cycles(entry_cycles);
    let area = per_cpu::boot_area();
    // SAFETY: this is the first code that runs, on the only processor; the area and the early stack are its own.
    // The descriptor table is loaded before the GS base, which that would clear.
    unsafe {
        per_cpu::prepare(area, CpuId::BOOT, 0);
        stacks::install_early(area, (&raw const boot_stack_bottom) as u64);
        trap::gates::fill();
        load_processor_state(area);
        boot::read_start_info(start_info);
    }
    console::initialise_port();
    crate::console::initialise();
    crate::boot::trace("boot information");
    if register::cpuid(7, 0).ebx & register::CPUID_7_EBX_SMAP == 0 {
        // SAFETY: alone, with the image still writable, on a processor without SMAP.
        unsafe { smap::patch_out() };
    }
    if crate::boot::info().option("test").is_some() {
        // SAFETY: as above.
        unsafe { window::arm() };
    }
    // SAFETY: called once, while the early page tables are in use; then the boot processor's own stacks go in
    // while no trap is in progress.
    unsafe {
        paging::build();
        let own = stacks::allocate(CpuId::BOOT).expect("memory for the boot processor's stacks");
        stacks::install(area, &own);
    }
    fpu::detect();
    fpu::initialise_cpu();
    crate::boot::trace("page tables");
    super::platform::initialise();
    starling_kernel_main()
}

/// Loads the processor's descriptor tables, GS base and system-call registers.
///
/// # Safety
/// Once on each processor, which owns the prepared area with stacks installed; interrupts are disabled.
pub(crate) unsafe fn load_processor_state(area: *mut per_cpu::PerCpu) {
    // SAFETY: see the function's contract.
    unsafe {
        gdt::load((*area).descriptors.get(), (*area).task_state.get());
        per_cpu::install(area);
        trap::gates::load();
    }
}
