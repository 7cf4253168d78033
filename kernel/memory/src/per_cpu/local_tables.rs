//! The local tables of clustered objects (`sync::clustered`) lie in per-CPU memory: an entry's address on CPU n is its address
//! on CPU 0 + (n << 13), as for any per-CPU object.

use core::alloc::Layout;

use sync::clustered::{LOCAL_TABLE_BYTES, LOCAL_TABLE_SHIFT, LocalTable};

use super::allocator;
use super::geometry::{ALIGN_MAX, CHUNK_SHIFT};

const _: () = assert!(LOCAL_TABLE_SHIFT == CHUNK_SHIFT, "both sides compute the same addresses");

/// Start-up: clustered objects get their tables here.
pub(crate) fn register() {
    sync::clustered::set_table_source(table);
}

fn table() -> Option<LocalTable> {
    let layout = Layout::from_size_align(LOCAL_TABLE_BYTES, ALIGN_MAX).ok()?;
    let cookie = allocator::allocate(layout).ok()?;
    // SAFETY: the object is zeroed, has this size for each CPU that the machine has, at this distance, and is never freed.
    Some(unsafe { LocalTable::new(cookie) })
}
