//! Where huge pages are used, and what is counted about them.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use machine::page_table::LEAF_TABLE_BYTES;

use super::super::request::MapBacking;
use super::super::space::AddressSpace;
use crate::region::{Region, RegionFlags};

/// What memory gets huge pages at its first use (`/sys/kernel/mm/transparent_hugepage/enabled`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HugeMode {
    /// None.
    Never,
    /// That of which the program says so (`MADV_HUGEPAGE`).
    Advised,
    /// All but that of which the program says otherwise.
    Always,
}

/// Advised: a program that did not ask would clear 2 MiB, and keep them, where it touches a page of each thread's stack.
static MODE: AtomicU8 = AtomicU8::new(HugeMode::Advised as u8);

/// What memory gets huge pages.
pub fn huge_mode() -> HugeMode {
    match MODE.load(Relaxed) {
        0 => HugeMode::Never,
        1 => HugeMode::Advised,
        _ => HugeMode::Always,
    }
}

/// Memory gets huge pages so from now on. What has some keeps them.
pub fn set_huge_mode(mode: HugeMode) {
    MODE.store(mode as u8, Relaxed);
}

/// What has happened to huge pages: each is rare, a matter of 2 MiB.
pub(super) struct Counters {
    /// Mapped now.
    pub(super) mapped: AtomicU64,
    pub(super) filled: AtomicU64,
    pub(super) fallbacks: AtomicU64,
    pub(super) undone: AtomicU64,
    pub(super) collapsed: AtomicU64,
    pub(super) not_collapsed: AtomicU64,
}

pub(super) static COUNTERS: Counters = Counters {
    mapped: AtomicU64::new(0),
    filled: AtomicU64::new(0),
    fallbacks: AtomicU64::new(0),
    undone: AtomicU64::new(0),
    collapsed: AtomicU64::new(0),
    not_collapsed: AtomicU64::new(0),
};

/// Numbers about huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugeCounts {
    /// Mapped now.
    pub mapped: u64,
    /// Made at a first access.
    pub filled: u64,
    /// First accesses that found none free.
    pub fallbacks: u64,
    /// Undone while their memory stayed mapped.
    pub undone: u64,
    /// Made of small pages.
    pub collapsed: u64,
    /// Attempts at that for which none was free.
    pub not_collapsed: u64,
}

/// The numbers now.
pub fn huge_counts() -> HugeCounts {
    let counters = &COUNTERS;
    HugeCounts {
        mapped: counters.mapped.load(Relaxed),
        filled: counters.filled.load(Relaxed),
        fallbacks: counters.fallbacks.load(Relaxed),
        undone: counters.undone.load(Relaxed),
        collapsed: counters.collapsed.load(Relaxed),
        not_collapsed: counters.not_collapsed.load(Relaxed),
    }
}

impl AddressSpace {
    /// The program wants no huge pages at all (`PR_SET_THP_DISABLE`), or no longer says so.
    pub fn forbid_huge_pages(&self, forbidden: bool) {
        self.no_huge_pages.store(forbidden, Relaxed);
    }

    /// Whether it wants none at all.
    pub fn forbids_huge_pages(&self) -> bool {
        self.no_huge_pages.load(Relaxed)
    }

    /// Whether memory of the region gets huge pages, where it has room for one.
    pub fn uses_huge_pages(&self, region: &Region) -> bool {
        let flags = region.flags();
        let wanted = match huge_mode() {
            HugeMode::Never => false,
            HugeMode::Advised => flags.contains(RegionFlags::HUGE_PAGE),
            HugeMode::Always => true,
        };
        wanted && may_be_huge(region) && !self.forbids_huge_pages()
    }

    /// Whether an address without a leaf table gets a huge page.
    pub(super) fn gets_huge_page(&self, region: &Region, address: u64) -> bool {
        covers_huge_page(region, address) && self.uses_huge_pages(region)
    }
}

/// Whether memory of the region can have huge pages at all.
pub(super) fn may_be_huge(region: &Region) -> bool {
    let flags = region.flags();
    matches!(region.backing(), MapBacking::Anonymous)
        && flags.contains(RegionFlags::WRITE)
        && !flags.intersects(RegionFlags::NO_HUGE_PAGE | RegionFlags::RESERVED | RegionFlags::POOLED)
}

/// Whether the huge page of an address lies in the region.
pub(super) fn covers_huge_page(region: &Region, address: u64) -> bool {
    let base = address & !(LEAF_TABLE_BYTES - 1);
    region.start() <= base && region.end() - base >= LEAF_TABLE_BYTES
}
