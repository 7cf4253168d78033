//! The symbol table behind the kernel image.
//!
//! The linker script reserves a (nearly empty) loadable segment after the image; the host tool that makes the bootable
//! image (`tools/symbols`, which documents the layout) puts the sorted table of function names there. A kernel that was
//! not processed this way has no names, only addresses, in its reports. Reports are made in the worst of states, so
//! nothing here trusts the table's numbers.

use crate::address::{KERNEL_IMAGE_BASE, PAGE_SIZE};
use crate::symbols::Symbol;

/// First word of a table.
const MAGIC: u64 = u64::from_le_bytes(*b"STARSYM1");
const HEADER_BYTES: usize = 24;
/// Longest table believed: the limit of the whole image.
const TABLE_BYTES_MAX: u64 = 4 << 20;

// SAFETY: the linker script or the assembly defines these symbols with these types.
unsafe extern "C" {
    static __symbols_start: u8;
    static __kernel_start: u8;
    static __text_end: u8;
}

/// The table; empty if there is none.
fn table() -> &'static [u8] {
    let start = &raw const __symbols_start;
    // SAFETY: the linker script keeps two words of loaded memory at this symbol.
    let [magic, bytes] = unsafe { start.cast::<[u64; 2]>().read_unaligned() };
    if magic != MAGIC || bytes < HEADER_BYTES as u64 || bytes > TABLE_BYTES_MAX {
        return &[];
    }
    // SAFETY: the tool that wrote the magic loaded this many bytes there; `image_end` keeps them from being given
    // away, and they are mapped read-only.
    unsafe { core::slice::from_raw_parts(start, bytes as usize) }
}

/// Bytes that the table takes in memory, at least one page.
pub(crate) fn table_bytes() -> u64 {
    (table().len().max(1)).next_multiple_of(PAGE_SIZE) as u64
}

fn word(table: &[u8], offset: usize) -> Option<u32> {
    let bytes = table.get(offset..offset.checked_add(4)?)?;
    bytes.try_into().ok().map(u32::from_le_bytes)
}

pub(crate) fn resolve(address: usize) -> Option<Symbol> {
    if !is_code(address) {
        return None;
    }
    let table = table();
    let target = u32::try_from(address - KERNEL_IMAGE_BASE).ok()?;
    let count = word(table, 16)? as usize;
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low + (high - low) / 2;
        if word(table, HEADER_BYTES + 4 * middle)? <= target { low = middle + 1 } else { high = middle }
    }
    let index = low.checked_sub(1)?;
    let start = word(table, HEADER_BYTES + 4 * index)?;
    let names = HEADER_BYTES.checked_add(count.checked_mul(8)?)?;
    let name = names + word(table, HEADER_BYTES + 4 * (count + index))? as usize;
    let length = usize::from(*table.get(name)?);
    let name = core::str::from_utf8(table.get(name + 1..name + 1 + length)?).ok()?;
    let end = if low < count { word(table, HEADER_BYTES + 4 * low)? } else { target };
    Some(Symbol { name, offset: (target - start) as usize, size: end.saturating_sub(start) as usize })
}

/// Whether the address lies in the kernel's code.
pub(crate) fn is_code(address: usize) -> bool {
    ((&raw const __kernel_start).addr()..(&raw const __text_end).addr()).contains(&address)
}
