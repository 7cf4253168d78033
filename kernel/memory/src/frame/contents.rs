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

/// Eight stores of zero, from `+ $at` on.
#[cfg(target_os = "none")]
macro_rules! clear_64 {
    ($at:literal) => {
        concat!(
            "mov [{end} + {place} + ",
            $at,
            "], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 8], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 16], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 24], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 32], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 40], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 48], {zero}\n",
            "mov [{end} + {place} + ",
            $at,
            " + 56], {zero}",
        )
    };
}

/// Four loads and four stores, from `+ $at` on.
#[cfg(target_os = "none")]
macro_rules! copy_32 {
    ($at:literal) => {
        concat!(
            "mov {a}, [{from} + {place} + ",
            $at,
            "]\n",
            "mov {b}, [{from} + {place} + ",
            $at,
            " + 8]\n",
            "mov {c}, [{from} + {place} + ",
            $at,
            " + 16]\n",
            "mov {d}, [{from} + {place} + ",
            $at,
            " + 24]\n",
            "mov [{to} + {place} + ",
            $at,
            "], {a}\n",
            "mov [{to} + {place} + ",
            $at,
            " + 8], {b}\n",
            "mov [{to} + {place} + ",
            $at,
            " + 16], {c}\n",
            "mov [{to} + {place} + ",
            $at,
            " + 24], {d}",
        )
    };
}

/// Fills the frame with zeros.
#[cfg(target_os = "none")]
pub(crate) fn zero(frame: FrameNumber) {
    // Plain stores: emulators execute string instructions element by element, which takes tens of times as long. 256 bytes a round, so that
    // nearly every instruction is a store.
    // SAFETY: the direct map shows the whole frame; the caller holds it, and nobody has a reference to its bytes. The place goes from the
    // frame's first byte, a frame before `end`, to `end`, by a divisor of the frame's size.
    unsafe {
        core::arch::asm!(
            "2:",
            clear_64!(0),
            clear_64!(64),
            clear_64!(128),
            clear_64!(192),
            "add {place}, 256",
            "jnz 2b",
            end = in(reg) pointer(frame).wrapping_add(PAGE_SIZE),
            place = inout(reg) -(PAGE_SIZE as isize) => _,
            zero = in(reg) 0_u64,
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
    // Plain loads and stores, many a round, for the reasons given in `zero`.
    // SAFETY: both frames are visible in the direct map as a whole and held by the caller; they are different. The place goes as in `zero`.
    unsafe {
        core::arch::asm!(
            "2:",
            copy_32!(0),
            copy_32!(32),
            copy_32!(64),
            copy_32!(96),
            "add {place}, 128",
            "jnz 2b",
            from = in(reg) pointer(from).wrapping_add(PAGE_SIZE),
            to = in(reg) pointer(to).wrapping_add(PAGE_SIZE),
            place = inout(reg) -(PAGE_SIZE as isize) => _,
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
