//! The symbol table behind the kernel image.
//!
//! The linker script reserves a (nearly empty) loadable segment after the image; the host tool that makes the bootable
//! image (`tools/symbols`, which documents the layout) puts the table of function names there. A kernel that was not
//! processed this way has no names, only addresses, in its reports.

use crate::address::{KERNEL_IMAGE_BASE, PAGE_SIZE};
use crate::symbols::{Symbol, Table};

// SAFETY: the linker script or the assembly defines these symbols with these types.
unsafe extern "C" {
    static __symbols_start: u8;
    static __kernel_start: u8;
    static __text_end: u8;
}

/// The table; none if there is none.
fn table() -> Option<&'static [u8]> {
    let start = &raw const __symbols_start;
    // SAFETY: the linker script keeps two words of loaded memory at this symbol.
    let bytes = Table::bytes(unsafe { start.cast::<[u64; 2]>().read_unaligned() })?;
    // SAFETY: the tool that wrote the magic loaded this many bytes there; `image_end` keeps them from being given
    // away, and they are mapped read-only.
    Some(unsafe { core::slice::from_raw_parts(start, bytes) })
}

/// Bytes that the table takes in memory, at least one page.
pub(crate) fn table_bytes() -> u64 {
    table().map_or(1, <[u8]>::len).next_multiple_of(PAGE_SIZE) as u64
}

pub(crate) fn resolve(address: usize) -> Option<Symbol> {
    if !is_code(address) {
        return None;
    }
    Table::new(table()?).resolve(u32::try_from(address - KERNEL_IMAGE_BASE).ok()?)
}

/// Whether the address lies in the kernel's code.
pub(crate) fn is_code(address: usize) -> bool {
    code().contains(&address)
}

/// The addresses of the kernel's code.
pub(crate) fn code() -> core::ops::Range<usize> {
    (&raw const __kernel_start).addr()..(&raw const __text_end).addr()
}
