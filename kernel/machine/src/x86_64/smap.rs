//! Supervisor-mode access prevention: the `stac`/`clac` instructions around user-memory access.
//!
//! The code is assembled with the instructions in place; each address is recorded in the section
//! `starling_smap_sites`. On a CPU without SMAP, where they would be undefined, start-up overwrites
//! them with a three-byte nop before any of them runs and before the image becomes read-only.

/// `nop dword ptr [rax]`: as long as `stac` and `clac`.
const NOP3: [u8; 3] = [0x0f, 0x1f, 0x00];

// SAFETY: the linker script or the assembly defines these symbols with these types.
unsafe extern "C" {
    static __start_starling_smap_sites: u64;
    static __stop_starling_smap_sites: u64;
}

/// Removes all `stac`/`clac` instructions.
///
/// # Safety
/// Runs on the boot CPU before other CPUs start, before the kernel image is write-protected, and
/// only when the CPU lacks SMAP.
pub(crate) unsafe fn patch_out() {
    let start = &raw const __start_starling_smap_sites;
    let end = &raw const __stop_starling_smap_sites;
    // SAFETY: the linker places all recorded addresses contiguously between the two symbols.
    let sites = unsafe { core::slice::from_raw_parts(start, end.offset_from_unsigned(start)) };
    for &site in sites {
        // SAFETY: each site is the address of a three-byte instruction of the kernel image, which
        // the caller says is still writable, and nothing executes it concurrently.
        unsafe { (site as *mut [u8; 3]).write_volatile(NOP3) };
    }
}
