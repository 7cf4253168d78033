//! The symbol table behind the kernel image.
//!
//! The linker script reserves an (empty) loadable segment after the image; the host tool that builds the kernel
//! fills it with a sorted table of function names. A kernel that was not processed this way has no names, only
//! addresses, in its reports.

use crate::address::PAGE_SIZE;

/// First word of a table.
const MAGIC: u64 = u64::from_le_bytes(*b"STARSYM1");

unsafe extern "C" {
    static __symbols_start: u8;
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    magic: u64,
    /// Bytes of the whole table with this header.
    bytes: u64,
}

fn header() -> Option<Header> {
    // SAFETY: the linker script keeps at least a header's room of loaded memory at this symbol.
    let header = unsafe { (&raw const __symbols_start).cast::<Header>().read_unaligned() };
    (header.magic == MAGIC).then_some(header)
}

/// Bytes that the table takes in memory, at least one page.
pub(crate) fn table_bytes() -> u64 {
    header().map_or(0, |header| header.bytes).max(1).next_multiple_of(PAGE_SIZE as u64)
}
