//! Catching the use of freed frames, in debug builds.
//!
//! A freed frame is filled with [`PATTERN`] and carries what it was used for; when it is given out again without being zeroed, both must
//! still be there. Release builds do neither.

use super::number::FrameNumber;
use super::purpose::Purpose;

#[cfg(debug_assertions)]
const PATTERN: u8 = 0xd5;

/// Where a freed frame carries the number of its last purpose.
#[cfg(debug_assertions)]
const PURPOSE_AT: usize = 8;

/// Marks a frame as freed that was used for this.
#[cfg(debug_assertions)]
pub(crate) fn fill(frame: FrameNumber, purpose: Purpose) {
    super::contents::fill(frame, PATTERN);
    super::contents::write(frame, 4096, PURPOSE_AT, &[purpose as u8]);
}

/// Checks that nobody wrote to a frame since it was freed. Frames that were never given out before may hold anything: only those whose
/// first bytes carry the pattern are checked.
#[cfg(debug_assertions)]
pub(crate) fn check(frame: FrameNumber) {
    let mut bytes = [0; 256];
    super::contents::read(frame, 4096, 0, &mut bytes);
    if bytes[..PURPOSE_AT] != [PATTERN; PURPOSE_AT] {
        return;
    }
    let purpose = Purpose::from_number(bytes[PURPOSE_AT]);
    bytes[PURPOSE_AT] = PATTERN;
    for offset in (0..4096).step_by(bytes.len()) {
        if offset > 0 {
            super::contents::read(frame, 4096, offset, &mut bytes);
        }
        assert!(
            bytes.iter().all(|&byte| byte == PATTERN),
            "{frame:?} was written after it was freed as {purpose:?}, near {offset}: {bytes:02x?}"
        );
    }
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn fill(_frame: FrameNumber, _purpose: Purpose) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn check(_frame: FrameNumber) {}
