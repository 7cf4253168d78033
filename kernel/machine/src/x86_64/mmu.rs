//! Page-table root, translation cache, direct map.

use super::per_cpu::PerCpu;
use super::register;
use crate::address::{DIRECT_MAP_BASE, KERNEL_IMAGE_BASE, PhysAddr, VirtAddr};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

static KERNEL_ROOT: AtomicU64 = AtomicU64::new(0);
/// Bytes of the direct map: one past the highest physical address it shows.
static DIRECT_MAP_BYTES: AtomicU64 = AtomicU64::new(1 << 30);

#[inline]
pub(crate) fn activate(root: PhysAddr) {
    let area = PerCpu::current();
    if area.page_table_root.load(Ordering::Relaxed) != root.as_u64() {
        area.page_table_root.store(root.as_u64(), Ordering::Relaxed);
        // SAFETY: every top-level table shares the kernel's upper half, so the kernel's code and data stay mapped.
        unsafe { register::write_cr3(root.as_u64()) };
    }
}

pub(crate) fn active_root() -> PhysAddr {
    PhysAddr::new(PerCpu::current().page_table_root.load(Ordering::Relaxed))
}

#[inline]
pub(crate) fn flush_page(page: VirtAddr) {
    // SAFETY: dropping a cached translation is always allowed. A memory clobber orders it after table changes.
    unsafe { asm!("invlpg [{}]", in(reg) page.as_u64(), options(nostack, preserves_flags)) };
}

pub(crate) fn flush_all() {
    let value = register::read_cr4();
    // SAFETY: the value differs from the one in use by the global-pages bit for a moment, which drops all cached
    // translations and nothing else.
    unsafe {
        register::write_cr4(value & !register::CR4_PAGE_GLOBAL);
        register::write_cr4(value);
    }
}

pub(crate) fn flush_user() {
    // SAFETY: loads the table that is in use already.
    unsafe { register::write_cr3(register::read_cr3()) };
}

pub(crate) fn kernel_root() -> PhysAddr {
    PhysAddr::new(KERNEL_ROOT.load(Ordering::Relaxed))
}

#[inline(always)]
pub(crate) fn phys_to_virt(address: PhysAddr) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(DIRECT_MAP_BASE + address.as_usize())
}

pub(crate) fn virt_to_phys(address: VirtAddr) -> Option<PhysAddr> {
    let value = address.as_usize();
    if value >= KERNEL_IMAGE_BASE {
        return Some(PhysAddr::new((value - KERNEL_IMAGE_BASE) as u64));
    }
    let offset = value.checked_sub(DIRECT_MAP_BASE)? as u64;
    (offset < DIRECT_MAP_BYTES.load(Ordering::Relaxed)).then(|| PhysAddr::new(offset))
}

pub(crate) fn map_device(address: PhysAddr, bytes: usize) -> Option<*mut u8> {
    super::paging::map_device(address.as_u64(), bytes)
}

/// The final tables are in use on this processor.
pub(crate) fn set_kernel_root(root: u64) {
    KERNEL_ROOT.store(root, Ordering::Relaxed);
    set_active_root(PhysAddr::new(root));
}

/// Remembers which tables this processor uses, when they were not loaded by [`activate`].
pub(crate) fn set_active_root(root: PhysAddr) {
    PerCpu::current().page_table_root.store(root.as_u64(), Ordering::Relaxed);
}

pub(crate) fn set_direct_map_bytes(bytes: u64) {
    DIRECT_MAP_BYTES.store(bytes, Ordering::Relaxed);
}
