//! The table of metadata of a hosted machine: an ordinary allocation, which the operating system provides page by page
//! when it is used.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::LazyLock;

use machine::address::PAGE_SIZE;

use super::metadata::Metadata;

static TABLE: LazyLock<usize> = LazyLock::new(|| {
    let bytes = machine::hosted::MEMORY_BYTES / PAGE_SIZE * size_of::<Metadata>();
    let layout = Layout::from_size_align(bytes + PAGE_SIZE, 16).expect("a constant layout");
    // SAFETY: the size is not zero. The memory is never freed.
    let pointer = unsafe { alloc_zeroed(layout) };
    assert!(!pointer.is_null(), "the process has room for the table");
    pointer.expose_provenance().next_multiple_of(align_of::<Metadata>())
});

/// Where the metadata begins.
pub(crate) fn metadata() -> *const Metadata {
    std::ptr::with_exposed_provenance(*TABLE)
}
