//! Which kernel instructions may fault on user memory, and where execution continues if they do.
//!
//! The user-memory routines put one entry per instruction range into the section
//! `starling_exception_table`; the linker provides its bounds.

use core::ptr;

#[repr(C)]
struct Entry {
    start: u64,
    end: u64,
    fix_up: u64,
}

// SAFETY: the linker script or the assembly defines these symbols with these types.
unsafe extern "C" {
    static __start_starling_exception_table: Entry;
    static __stop_starling_exception_table: Entry;
}

/// The fix-up address for a fault at `rip`, if that instruction is allowed to fault.
pub(super) fn fix_up(rip: u64) -> Option<u64> {
    let start = &raw const __start_starling_exception_table;
    let end = &raw const __stop_starling_exception_table;
    // SAFETY: the linker places all entries contiguously between the two symbols; they are
    // read-only data of the kernel image.
    let entries = unsafe {
        let count = end.offset_from_unsigned(start);
        &*ptr::slice_from_raw_parts(start, count)
    };
    entries.iter().find(|entry| (entry.start..entry.end).contains(&rip)).map(|entry| entry.fix_up)
}
