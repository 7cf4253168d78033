//! The bytes of frames, through the direct map.
//!
//! A frame's bytes may be mapped into programs, which write them at any time, so no reference to them is ever made:
//! bytes are copied through raw pointers, and what is read is as racy as user memory is.

use machine::address::PAGE_SIZE;
use machine::mmu;

use super::number::FrameNumber;

/// Where the frame's bytes are.
#[inline]
pub(crate) fn pointer(frame: FrameNumber) -> *mut u8 {
    mmu::phys_to_virt(frame.physical())
}

/// Fills the frame with zeros.
#[cfg(target_os = "none")]
pub(crate) fn zero(frame: FrameNumber) {
    // Plain stores: emulators execute string instructions element by element, which takes tens of times as long.
    // SAFETY: the direct map shows the whole frame; the caller holds it, and nobody has a reference to its bytes.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov [{place}], {zero}",
            "mov [{place} + 8], {zero}",
            "mov [{place} + 16], {zero}",
            "mov [{place} + 24], {zero}",
            "mov [{place} + 32], {zero}",
            "mov [{place} + 40], {zero}",
            "mov [{place} + 48], {zero}",
            "mov [{place} + 56], {zero}",
            "add {place}, 64",
            "dec {left:e}",
            "jnz 2b",
            place = inout(reg) pointer(frame) => _,
            zero = in(reg) 0_u64,
            left = inout(reg) PAGE_SIZE as u32 / 64 => _,
            options(nostack),
        );
    }
}

/// Fills the frame with zeros.
#[cfg(not(target_os = "none"))]
pub(crate) fn zero(frame: FrameNumber) {
    fill(frame, 0);
}

/// Fills the frame with a byte.
#[cfg(any(debug_assertions, not(target_os = "none")))]
pub(crate) fn fill(frame: FrameNumber, byte: u8) {
    // SAFETY: the direct map shows the whole frame; the caller holds it, and nobody has a reference to its bytes.
    unsafe { pointer(frame).write_bytes(byte, PAGE_SIZE) };
}

/// Copies a whole frame.
#[cfg(target_os = "none")]
pub(crate) fn copy(to: FrameNumber, from: FrameNumber) {
    debug_assert_ne!(to, from);
    // Plain loads and stores, for the reason given in `zero`.
    // SAFETY: both frames are visible in the direct map as a whole and held by the caller; they are different.
    unsafe {
        core::arch::asm!(
            "2:",
            "mov {a}, [{from}]",
            "mov {b}, [{from} + 8]",
            "mov {c}, [{from} + 16]",
            "mov {d}, [{from} + 24]",
            "mov [{to}], {a}",
            "mov [{to} + 8], {b}",
            "mov [{to} + 16], {c}",
            "mov [{to} + 24], {d}",
            "add {from}, 32",
            "add {to}, 32",
            "dec {left:e}",
            "jnz 2b",
            from = inout(reg) pointer(from) => _,
            to = inout(reg) pointer(to) => _,
            left = inout(reg) PAGE_SIZE as u32 / 32 => _,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack),
        );
    }
}

/// Copies a whole frame.
#[cfg(not(target_os = "none"))]
pub(crate) fn copy(to: FrameNumber, from: FrameNumber) {
    debug_assert_ne!(to, from);
    // SAFETY: both frames are visible in the direct map as a whole and held by the caller; they are different.
    unsafe { pointer(to).copy_from_nonoverlapping(pointer(from), PAGE_SIZE) };
}

/// The address of `bytes` bytes at `offset` in a run of frames of `limit` bytes.
///
/// # Panics
/// When they reach beyond the run: offsets are computed by the kernel.
#[inline]
pub(crate) fn range(first: FrameNumber, limit: usize, offset: usize, bytes: usize) -> *mut u8 {
    assert!(offset <= limit && bytes <= limit - offset, "{bytes} bytes at {offset} are beyond {limit}");
    pointer(first).wrapping_add(offset)
}

/// Copies bytes out of a run of frames.
#[inline]
pub(crate) fn read(first: FrameNumber, limit: usize, offset: usize, into: &mut [u8]) {
    let from = range(first, limit, offset, into.len());
    // SAFETY: the range was checked to lie within the run that the caller holds; `into` is a reference, so it does not
    // overlap memory of frames, to which there are none.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(from, into.len()) };
}

/// Copies bytes into a run of frames.
#[inline]
pub(crate) fn write(first: FrameNumber, limit: usize, offset: usize, from: &[u8]) {
    let to = range(first, limit, offset, from.len());
    // SAFETY: as in `read`, with the roles exchanged.
    unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
}
