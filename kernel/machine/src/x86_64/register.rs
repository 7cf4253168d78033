//! Model-specific, control and flag registers, and CPUID.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};

pub(crate) const MSR_APIC_BASE: u32 = 0x1b;
pub(crate) const MSR_TSC_DEADLINE: u32 = 0x6e0;
/// x2APIC register n (its xAPIC offset divided by 16).
pub(crate) const MSR_X2APIC: u32 = 0x800;
pub(crate) const MSR_EFER: u32 = 0xc000_0080;
pub(crate) const MSR_FS_BASE: u32 = 0xc000_0100;
pub(crate) const MSR_GS_BASE: u32 = 0xc000_0101;
pub(crate) const MSR_KERNEL_GS_BASE: u32 = 0xc000_0102;

pub(crate) const EFER_NO_EXECUTE: u64 = 1 << 11;

/// SMAP, in EBX of CPUID leaf 7.
pub(crate) const CPUID_7_EBX_SMAP: u32 = 1 << 20;

pub(crate) const CR0_WRITE_PROTECT: u64 = 1 << 16;
pub(crate) const CR4_PAGE_GLOBAL: u64 = 1 << 7;
pub(crate) const CR4_UMIP: u64 = 1 << 11;
pub(crate) const CR4_FSGSBASE: u64 = 1 << 16;
pub(crate) const CR4_SMEP: u64 = 1 << 20;
pub(crate) const CR4_SMAP: u64 = 1 << 21;

/// Reads a model-specific register.
///
/// # Safety
/// The register exists on this processor.
#[inline(always)]
pub(crate) unsafe fn read_msr(register: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller vouches for the register; reading has no effect on memory.
    unsafe {
        asm!("rdmsr", in("ecx") register, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
///
/// # Safety
/// The register exists, takes this value, and what it changes breaks no guarantee of safe code.
#[inline(always)]
pub(crate) unsafe fn write_msr(register: u32, value: u64) {
    // SAFETY: the caller vouches for register and value. Memory is a clobber: the write may publish data.
    unsafe {
        asm!("wrmsr", in("ecx") register, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags));
    }
}

/// CPUID of a leaf and subleaf; zeros beyond the highest leaf.
pub(crate) fn cpuid(leaf: u32, subleaf: u32) -> CpuidResult {
    let base = leaf & 0xffff_0000;
    let highest = __cpuid_count(base, 0).eax;
    if leaf > highest {
        return CpuidResult { eax: 0, ebx: 0, ecx: 0, edx: 0 };
    }
    __cpuid_count(leaf, subleaf)
}

macro_rules! control_register {
    ($read:ident, $write:ident, $name:literal) => {
        #[doc = concat!("Reads ", $name, ".")]
        #[inline(always)]
        pub(crate) fn $read() -> u64 {
            let value: u64;
            // SAFETY: reading a control register in kernel mode has no side effect.
            unsafe { asm!(concat!("mov {}, ", $name), out(reg) value, options(nomem, nostack, preserves_flags)) };
            value
        }

        #[doc = concat!("Writes ", $name, ".")]
        ///
        /// # Safety
        /// The value is valid for this processor and keeps all mappings that code and data in use need.
        #[inline(always)]
        #[allow(dead_code, reason = "not every control register is written")]
        pub(crate) unsafe fn $write(value: u64) {
            // SAFETY: see the function's contract.
            unsafe { asm!(concat!("mov ", $name, ", {}"), in(reg) value, options(nostack, preserves_flags)) };
        }
    };
}

control_register!(read_cr0, write_cr0, "cr0");
control_register!(read_cr2, write_cr2, "cr2");
control_register!(read_cr3, write_cr3, "cr3");
control_register!(read_cr4, write_cr4, "cr4");
