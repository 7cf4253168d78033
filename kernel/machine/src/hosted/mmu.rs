//! Address spaces of a hosted machine: physical addresses are addresses of the process.

use crate::address::{PhysAddr, VirtAddr};
use std::cell::Cell;

thread_local! {
    static ROOT: Cell<u64> = const { Cell::new(0) };
}

pub(crate) fn activate(root: PhysAddr) {
    ROOT.set(root.as_u64());
}

pub(crate) fn active_root() -> PhysAddr {
    PhysAddr::new(ROOT.get())
}

pub(crate) fn flush_page(_page: VirtAddr) {}

pub(crate) fn flush_all() {}

pub(crate) fn flush_user() {}

pub(crate) fn kernel_root() -> PhysAddr {
    PhysAddr::new(0)
}

pub(crate) fn phys_to_virt(address: PhysAddr) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(address.as_usize())
}

pub(crate) fn virt_to_phys(address: VirtAddr) -> Option<PhysAddr> {
    Some(PhysAddr::new(address.as_u64()))
}

pub(crate) fn map_device(_address: PhysAddr, _bytes: usize) -> Option<*mut u8> {
    None
}
