//! Catching the use of freed objects, in debug builds: a free object holds a pattern behind its link.

use core::ptr::NonNull;

use super::class::Class;

/// Bytes of the link to the next free object.
#[cfg(debug_assertions)]
const LINK_BYTES: usize = 8;

#[cfg(debug_assertions)]
const PATTERN: u8 = 0xdf;

/// Marks an object as free.
#[cfg(debug_assertions)]
pub(crate) fn fill(object: NonNull<u8>, class: &Class) {
    let bytes = class.size as usize - LINK_BYTES;
    // SAFETY: the object is free and belongs to the caller; the range is its memory behind the link.
    unsafe { object.add(LINK_BYTES).write_bytes(PATTERN, bytes) };
}

/// Checks that nobody wrote to a free object.
#[cfg(debug_assertions)]
pub(crate) fn check(object: NonNull<u8>, class: &Class) {
    let bytes = class.size as usize - LINK_BYTES;
    // SAFETY: the object is free and belongs to the caller, so its bytes behind the link are those that `fill` wrote.
    let content = unsafe { core::slice::from_raw_parts(object.add(LINK_BYTES).as_ptr(), bytes) };
    assert!(
        content.iter().all(|&byte| byte == PATTERN),
        "heap object {object:?} of {} bytes was written after it was freed",
        class.size
    );
}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn fill(_object: NonNull<u8>, _class: &Class) {}

#[cfg(not(debug_assertions))]
#[inline(always)]
pub(crate) fn check(_object: NonNull<u8>, _class: &Class) {}
