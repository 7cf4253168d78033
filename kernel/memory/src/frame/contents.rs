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
#[inline]
pub(crate) fn zero(frame: FrameNumber) {
    fill(frame, 0);
}

/// Fills the frame with a byte.
#[inline]
pub(crate) fn fill(frame: FrameNumber, byte: u8) {
    // SAFETY: the direct map shows the whole frame; the caller holds it, and nobody has a reference to its bytes.
    unsafe { pointer(frame).write_bytes(byte, PAGE_SIZE) };
}

/// Copies a whole frame.
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
