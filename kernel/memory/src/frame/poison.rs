//! Catching the use of freed frames, in debug builds.
//!
//! A freed frame is filled with [`PATTERN`]; when it is given out again without being zeroed, the pattern must still
//! be there. Release builds do neither.

use super::number::FrameNumber;

#[cfg(debug_assertions)]
const PATTERN: u8 = 0xd5;

/// Marks a frame as freed.
#[cfg(debug_assertions)]
pub(crate) fn fill(frame: FrameNumber) {
    super::contents::fill(frame, PATTERN);
}

/// Checks that nobody wrote to a frame since it was freed. Frames that were never given out before may hold anything:
/// only those whose first bytes carry the pattern are checked.
#[cfg(debug_assertions)]
pub(crate) fn check(frame: FrameNumber) {
    let mut bytes = [0; 256];
    super::contents::read(frame, 4096, 0, &mut bytes);
    if bytes[..8] != [PATTERN; 8] {
        return;
    }
    for offset in (0..4096).step_by(bytes.len()) {
        super::contents::read(frame, 4096, offset, &mut bytes);
        assert!(
            bytes.iter().all(|&byte| byte == PATTERN),
            "{frame:?} was written after it was freed, near {offset}"
        );
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn fill(_frame: FrameNumber) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn check(_frame: FrameNumber) {}
