//! The memory management unit: address-space switches, translation cache, direct map and device mappings.
//!
//! All physical memory is visible at [`DIRECT_MAP_BASE`](crate::address::DIRECT_MAP_BASE). The upper half of every
//! top-level table is the same: its entries are filled in once, before the first address space is made, so new
//! address spaces copy them from [`kernel_root`] and never have to be brought up to date.

use crate::address::{PhysAddr, VirtAddr};
use crate::backend;

/// Makes the address space with this top-level table the current one of this processor. Entries of the former
/// one may not be used after, global ones stay. Does nothing if it is current already.
#[inline]
pub fn activate(root: PhysAddr) {
    backend::mmu::activate(root);
}

/// The top-level table this processor uses.
pub fn active_root() -> PhysAddr {
    backend::mmu::active_root()
}

/// Forgets the cached translation of one page on this processor.
#[inline]
pub fn flush_page(page: VirtAddr) {
    backend::mmu::flush_page(page);
}

/// Forgets all cached translations on this processor, global ones too.
pub fn flush_all() {
    backend::mmu::flush_all();
}

/// Forgets the cached translations of the current address space on this processor (not the global ones).
pub fn flush_user() {
    backend::mmu::flush_user();
}

/// The kernel's own top-level table: its lower half is empty, its upper half shared by all.
pub fn kernel_root() -> PhysAddr {
    backend::mmu::kernel_root()
}

/// Where the direct map shows a physical address.
#[inline(always)]
pub fn phys_to_virt(address: PhysAddr) -> *mut u8 {
    backend::mmu::phys_to_virt(address)
}

/// The physical address behind an address in the direct map or in the kernel image; None for any other.
pub fn virt_to_phys(address: VirtAddr) -> Option<PhysAddr> {
    backend::mmu::virt_to_phys(address)
}

/// Maps device registers, uncached, for good. None when the window for device mappings is full.
pub fn map_device(address: PhysAddr, bytes: usize) -> Option<*mut u8> {
    backend::mmu::map_device(address, bytes)
}

/// The rights of a piece of the kernel's address space.
#[cfg(target_os = "none")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapping {
    /// What it shows.
    pub physical: PhysAddr,
    /// Size of the page.
    pub bytes: usize,
    /// May be written.
    pub writable: bool,
    /// May be executed.
    pub executable: bool,
    /// User mode may use it.
    pub user: bool,
}

/// What the processor enforces.
#[cfg(target_os = "none")]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protection {
    /// Read-only pages hold for the kernel too.
    pub write_protect: bool,
    /// Pages can forbid execution.
    pub no_execute: bool,
    /// Bits of CR4 that the processor has for protection but that are off.
    pub missing_features: u64,
}

/// How the kernel's page tables map an address.
#[cfg(target_os = "none")]
pub fn kernel_mapping(address: VirtAddr) -> Option<Mapping> {
    backend::inspection::mapping(address)
}

/// Visits every mapping of the kernel's page tables in ascending order.
#[cfg(target_os = "none")]
pub fn for_each_kernel_mapping(mut visit: impl FnMut(VirtAddr, Mapping)) {
    backend::inspection::for_each(&mut visit);
}

/// What this processor enforces.
#[cfg(target_os = "none")]
pub fn protection() -> Protection {
    backend::inspection::protection()
}
