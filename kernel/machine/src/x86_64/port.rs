//! I/O ports.

use core::arch::asm;

/// Writes a byte to a port.
///
/// # Safety
/// The port belongs to the caller, and what the device does with the byte breaks no guarantee of safe code.
#[inline(always)]
pub(crate) unsafe fn write_u8(port: u16, value: u8) {
    // SAFETY: see the function's contract.
    unsafe { asm!("out dx, al", in("dx") port, in("al") value, options(nostack, preserves_flags)) };
}

/// Reads a byte from a port.
///
/// # Safety
/// The port belongs to the caller; reading may have side effects on the device only.
#[inline(always)]
pub(crate) unsafe fn read_u8(port: u16) -> u8 {
    let value: u8;
    // SAFETY: see the function's contract.
    unsafe { asm!("in al, dx", in("dx") port, out("al") value, options(nostack, preserves_flags)) };
    value
}

/// Writes 16 bits to a port.
///
/// # Safety
/// As for [`write_u8`].
#[inline(always)]
pub(crate) unsafe fn write_u16(port: u16, value: u16) {
    // SAFETY: see the function's contract.
    unsafe { asm!("out dx, ax", in("dx") port, in("ax") value, options(nostack, preserves_flags)) };
}

/// Reads 32 bits from a port.
///
/// # Safety
/// As for [`read_u8`].
#[inline(always)]
pub(crate) unsafe fn read_u32(port: u16) -> u32 {
    let value: u32;
    // SAFETY: see the function's contract.
    unsafe { asm!("in eax, dx", in("dx") port, out("eax") value, options(nostack, preserves_flags)) };
    value
}

/// Reads 16 bits from a port.
///
/// # Safety
/// As for [`read_u8`].
#[inline(always)]
pub(crate) unsafe fn read_u16(port: u16) -> u16 {
    let value: u16;
    // SAFETY: see the function's contract.
    unsafe { asm!("in ax, dx", in("dx") port, out("ax") value, options(nostack, preserves_flags)) };
    value
}

/// Writes 32 bits to a port.
///
/// # Safety
/// As for [`write_u8`].
#[inline(always)]
pub(crate) unsafe fn write_u32(port: u16, value: u32) {
    // SAFETY: see the function's contract.
    unsafe { asm!("out dx, eax", in("dx") port, in("eax") value, options(nostack, preserves_flags)) };
}
