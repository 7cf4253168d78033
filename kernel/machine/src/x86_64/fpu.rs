//! Saving and loading the vector registers and segment bases.
//!
//! What the CPU offers is found out once on the boot CPU ([`detect`]) and switched on for every CPU
//! ([`initialise_cpu`]): XSAVEOPT or XSAVE where there is one, FXSAVE otherwise. XCR0 enables x87,
//! SSE and AVX; larger components (AVX-512, AMX) stay off, because their save areas would not fit
//! the per-thread budget, and programs see in XCR0 that they can't use them.

use core::arch::asm;

use crate::backend::register::{
    CR4_FSGSBASE, MSR_FS_BASE, MSR_KERNEL_GS_BASE, cpuid, read_cr0, read_cr4, write_cr0, write_cr4, write_msr,
};
use crate::set_once::SetOnce;
use crate::user_state::IMAGE_BYTES;

const X87_SSE: u64 = 0b011;
const AVX: u64 = 0b100;
const LEGACY_BYTES: usize = 512;
const LEGACY_AND_HEADER_BYTES: usize = 576;

const CR4_OSFXSR: u64 = 1 << 9;
const CR4_OSXMMEXCPT: u64 = 1 << 10;
const CR4_OSXSAVE: u64 = 1 << 18;
const CR0_MONITOR: u64 = 1 << 1;
const CR0_EMULATION: u64 = 1 << 2;
const CR0_TASK_SWITCHED: u64 = 1 << 3;

#[derive(Clone, Copy)]
enum Method {
    Fxsave,
    Xsave,
    Xsaveopt,
}

#[derive(Clone, Copy)]
struct Features {
    method: Method,
    components: u64,
    bytes: usize,
    base_instructions: bool,
}

static FEATURES: SetOnce<Features> = SetOnce::new();

fn features() -> Features {
    FEATURES.get().expect("detect() runs before the first user thread")
}

/// Finds out what the boot CPU can do. Once, before [`initialise_cpu`].
pub(crate) fn detect() {
    let basic = cpuid(1, 0);
    let has_xsave = basic.ecx & (1 << 26) != 0;
    let has_avx = basic.ecx & (1 << 28) != 0;
    let base_instructions = cpuid(7, 0).ebx & 1 != 0;
    let (method, components, bytes) = if has_xsave {
        let optimised = cpuid(0xd, 1).eax & 1 != 0;
        let method = if optimised { Method::Xsaveopt } else { Method::Xsave };
        if has_avx {
            (method, X87_SSE | AVX, IMAGE_BYTES)
        } else {
            (method, X87_SSE, LEGACY_AND_HEADER_BYTES)
        }
    } else {
        (Method::Fxsave, 0, LEGACY_BYTES)
    };
    FEATURES.set(Features { method, components, bytes, base_instructions });
}

/// Switches the vector units on for this CPU.
pub(crate) fn initialise_cpu() {
    let features = features();
    let mut cr4 = read_cr4() | CR4_OSFXSR | CR4_OSXMMEXCPT;
    if features.components != 0 {
        cr4 |= CR4_OSXSAVE;
    }
    if features.base_instructions {
        cr4 |= CR4_FSGSBASE;
    }
    // SAFETY: enabling the vector units and their save instructions, which CPUID reports, affects no
    // kernel code: the kernel is compiled without them.
    unsafe {
        write_cr0((read_cr0() | CR0_MONITOR) & !(CR0_EMULATION | CR0_TASK_SWITCHED));
        write_cr4(cr4);
        if features.components != 0 {
            asm!("xsetbv", in("ecx") 0, in("eax") features.components as u32, in("edx") 0, options(nostack));
        }
    }
}

/// Bytes of the image that [`save`] writes.
pub(crate) fn image_bytes() -> usize {
    features().bytes
}

/// Components in XCR0.
pub(crate) fn components() -> u64 {
    features().components
}

/// Stores the CPU's vector registers.
#[inline]
pub(crate) fn save(image: &mut [u8; IMAGE_BYTES]) {
    let features = features();
    let area = image.as_mut_ptr();
    debug_assert!(area.addr().is_multiple_of(64));
    let (low, high) = (features.components as u32, 0_u32);
    // SAFETY: `area` is 64-byte aligned (type `Image`) and large enough for the components enabled
    // in XCR0; the instruction was found by CPUID.
    unsafe {
        match features.method {
            Method::Xsaveopt => {
                asm!("xsaveopt64 [{}]", in(reg) area, in("eax") low, in("edx") high, options(nostack));
            }
            Method::Xsave => {
                asm!("xsave64 [{}]", in(reg) area, in("eax") low, in("edx") high, options(nostack));
            }
            Method::Fxsave => asm!("fxsave64 [{}]", in(reg) area, options(nostack)),
        }
    }
}

/// Loads the CPU's vector registers.
#[inline]
pub(crate) fn restore(image: &[u8; IMAGE_BYTES]) {
    let features = features();
    let area = image.as_ptr();
    let (low, high) = (features.components as u32, 0_u32);
    // SAFETY: the image was made by `save`, is the initial one, or was checked by
    // `UserState::set_image`, so the CPU accepts it; alignment and size as in `save`.
    unsafe {
        match features.method {
            Method::Xsaveopt | Method::Xsave => {
                asm!("xrstor64 [{}]", in(reg) area, in("eax") low, in("edx") high, options(nostack, readonly));
            }
            Method::Fxsave => asm!("fxrstor64 [{}]", in(reg) area, options(nostack, readonly)),
        }
    }
}

/// The user's FS and GS bases: read from the CPU where a program can change them by itself, else
/// the values last set.
#[inline]
pub(crate) fn bases(fs_base: u64, gs_base: u64) -> (u64, u64) {
    if !features().base_instructions {
        return (fs_base, gs_base);
    }
    let (fs, gs): (u64, u64);
    // SAFETY: CR4.FSGSBASE is on. Interrupts are off, so nothing uses the kernel's GS base between
    // the two swapgs.
    unsafe {
        asm!("rdfsbase {}", out(reg) fs, options(nomem, nostack, preserves_flags));
        asm!("swapgs", "rdgsbase {}", "swapgs", out(reg) gs, options(nomem, nostack, preserves_flags));
    }
    (fs, gs)
}

/// Loads the user's FS and GS bases.
#[inline]
pub(crate) fn set_bases(fs_base: u64, gs_base: u64) {
    if features().base_instructions {
        // SAFETY: CR4.FSGSBASE is on and the bases are user addresses, hence canonical. Interrupts
        // are off, so nothing uses the kernel's GS base between the two swapgs.
        unsafe {
            asm!("wrfsbase {}", in(reg) fs_base, options(nomem, nostack, preserves_flags));
            asm!("swapgs", "wrgsbase {}", "swapgs", in(reg) gs_base, options(nomem, nostack, preserves_flags));
        }
    } else {
        // SAFETY: the two registers hold the user's segment bases, which are canonical.
        unsafe {
            write_msr(MSR_FS_BASE, fs_base);
            write_msr(MSR_KERNEL_GS_BASE, gs_base);
        }
    }
}
