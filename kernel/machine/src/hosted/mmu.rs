//! Address spaces of a hosted machine.
//!
//! Physical memory is one allocation of [`MEMORY_BYTES`] that the host backs page by page on first
//! touch; physical address p is byte p of it, which is also its direct map. Translation tables are ordinary tables in
//! that memory; software walks them where the bare machine's hardware would. Addresses beyond the memory stand for
//! themselves, so that a test may let any allocation of the process play a frame.

use std::alloc::{Layout, alloc_zeroed};
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use super::boot::MEMORY_BYTES;
use super::processor;
use crate::address::{PAGE_SIZE, PhysAddr, VirtAddr};

/// Address of physical byte 0.
static BASE: LazyLock<usize> = LazyLock::new(|| {
    // Alignment above that of malloc would make the allocator clear, and so touch, all of it.
    let layout = Layout::from_size_align(MEMORY_BYTES + PAGE_SIZE, 16).expect("a constant layout");
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) };
    assert!(!memory.is_null(), "no address space for the hosted machine's memory");
    memory.expose_provenance().next_multiple_of(PAGE_SIZE)
});

pub(crate) fn activate(root: PhysAddr) {
    processor::this().root.store(root.as_u64(), Ordering::SeqCst);
}

pub(crate) fn active_root() -> PhysAddr {
    PhysAddr::new(processor::this().root.load(Ordering::SeqCst))
}

pub(crate) fn flush_page(_page: VirtAddr) {}

pub(crate) fn flush_all() {}

pub(crate) fn flush_user() {}

/// Frame 0 is never given away; as a table of zeroes it maps nothing.
pub(crate) fn kernel_root() -> PhysAddr {
    PhysAddr::new(0)
}

pub(crate) fn phys_to_virt(address: PhysAddr) -> *mut u8 {
    let offset = if address.as_usize() < MEMORY_BYTES { *BASE } else { 0 };
    std::ptr::with_exposed_provenance_mut(offset + address.as_usize())
}

pub(crate) fn virt_to_phys(address: VirtAddr) -> Option<PhysAddr> {
    match address.as_usize().checked_sub(*BASE) {
        Some(offset) if offset < MEMORY_BYTES => Some(PhysAddr::new(offset as u64)),
        _ => Some(PhysAddr::new(address.as_u64())),
    }
}

pub(crate) fn map_device(_address: PhysAddr, _bytes: usize) -> Option<*mut u8> {
    None
}
