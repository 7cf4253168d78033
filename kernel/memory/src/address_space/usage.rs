//! How much memory an address space uses, for `/proc/PID/{status,statm,smaps}` and getrusage.

use super::entry::{PRIVATE, UNCOUNTED, borrow_frame};
use super::map::is_data;
use super::shared_tables;
use super::space::AddressSpace;
use crate::huge_pool::HUGE_PAGE_BYTES;
use crate::region::{Region, RegionFlags};
use core::ops::ControlFlow;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, PAGE_SIZE};
use machine::page_table::{Entry, EntryFlags};

/// Totals of an address space. Pages, except where the name says bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Mapped (VmSize).
    pub mapped_pages: u64,
    /// The largest value that had (VmPeak).
    pub peak_mapped_pages: u64,
    /// In memory and private (RssAnon).
    pub private_pages: u64,
    /// In memory, of files (RssFile).
    pub file_pages: u64,
    /// In memory, shared memory (RssShmem).
    pub shared_memory_pages: u64,
    /// The largest sum of the three above (VmHWM, ru_maxrss).
    pub peak_resident_pages: u64,
    /// Private writable mappings except stacks (VmData).
    pub data_pages: u64,
    /// Mappings that grow down (VmStk).
    pub stack_pages: u64,
    /// Executable mappings of files (VmExe and VmLib together).
    pub code_pages: u64,
    /// Locked (VmLck).
    pub locked_pages: u64,
    /// Page tables (VmPTE).
    pub table_bytes: u64,
    /// Mapped pages of the pool of huge pages, in bytes (HugetlbPages).
    pub pooled_bytes: u64,
    /// It wants no huge pages (THP_enabled).
    pub forbids_huge_pages: bool,
}

/// What one region has in memory, in bytes, as smaps names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionUsage {
    /// Rss.
    pub resident: u64,
    /// Pss: each page divided by the number of its references.
    pub proportional: u64,
    /// Shared_Clean.
    pub shared_clean: u64,
    /// Shared_Dirty.
    pub shared_dirty: u64,
    /// Private_Clean.
    pub private_clean: u64,
    /// Private_Dirty.
    pub private_dirty: u64,
    /// Referenced.
    pub referenced: u64,
    /// Anonymous.
    pub anonymous: u64,
    /// AnonHugePages.
    pub huge: u64,
    /// Shared_Hugetlb: pages of the pool that are mapped elsewhere, too.
    pub pooled_shared: u64,
    /// Private_Hugetlb.
    pub pooled_private: u64,
    /// Locked.
    pub locked: u64,
}

impl AddressSpace {
    /// The totals now.
    pub fn usage(&self) -> Usage {
        self.resident.note_peak();
        let count =
            |cell: &core::sync::atomic::AtomicI64| cell.load(Ordering::Relaxed).max(0).cast_unsigned();
        let mut usage = Usage {
            private_pages: count(&self.resident.private),
            file_pages: count(&self.resident.file),
            shared_memory_pages: count(&self.resident.shared_memory),
            peak_resident_pages: self.resident.peak.load(Ordering::Relaxed),
            peak_mapped_pages: self.peak_pages.load(Ordering::Relaxed),
            locked_pages: self.locked_pages.load(Ordering::Relaxed),
            table_bytes: self.tables.bytes(),
            forbids_huge_pages: self.forbids_huge_pages(),
            ..Usage::default()
        };
        let regions = self.regions.read();
        usage.mapped_pages = regions.pages();
        usage.peak_mapped_pages = usage.peak_mapped_pages.max(usage.mapped_pages);
        for region in regions.iter() {
            let flags = region.flags();
            if flags.contains(RegionFlags::POOLED) {
                usage.pooled_bytes += self.pooled_bytes(region.start()..region.end());
            }
            if flags.contains(RegionFlags::GROWS_DOWN) {
                usage.stack_pages += region.pages();
            } else if is_data(flags) {
                usage.data_pages += region.pages();
            } else if flags.contains(RegionFlags::EXECUTE) && !flags.contains(RegionFlags::WRITE) {
                usage.code_pages += region.pages();
            }
        }
        usage
    }

    /// What a region (as [`AddressSpace::for_each_region`] gave it) has in memory.
    pub fn region_usage(&self, region: &Region) -> RegionUsage {
        let mut usage = RegionUsage::default();
        let _layout = self.change.lock();
        // SAFETY: `change` is held, so the tables stay.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(region.start()..region.end(), |leaf| {
                let links = shared_tables::links(&leaf);
                if leaf.is_pooled() {
                    let class = if links > 1 { &mut usage.pooled_shared } else { &mut usage.pooled_private };
                    *class += HUGE_PAGE_BYTES;
                    return ControlFlow::Continue(());
                }
                if leaf.is_huge() {
                    usage.huge += (leaf.cells.len() * PAGE_SIZE) as u64;
                }
                for entry in leaf.cells.iter().map(|cell| cell.load()) {
                    if !entry.is_empty() && !entry.contains(UNCOUNTED) {
                        usage.count(entry, links);
                    }
                }
                ControlFlow::<()>::Continue(())
            })
        };
        if region.flags().contains(RegionFlags::LOCKED) {
            usage.locked = usage.proportional;
        }
        usage
    }

    /// Begins anew to notice which pages of a region are used ([`RegionUsage::referenced`]). Huge pages stay used: their own entry tells nothing.
    pub fn forget_references(&self, region: &Region) {
        let _layout = self.change.lock();
        // SAFETY: `change` is held, so the tables stay.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(region.start()..region.end(), |leaf| {
                if !leaf.is_pooled() && !leaf.is_huge() {
                    for cell in leaf.cells {
                        let used = |entry: Entry| entry.contains(EntryFlags::ACCESSED);
                        cell.update(|entry| used(entry).then(|| entry.without(EntryFlags::ACCESSED)));
                    }
                }
                ControlFlow::<()>::Continue(())
            })
        };
        // The processors must forget them, too, to notice the next access.
        self.tables.forget(region.start(), region.end(), false);
    }

    /// The largest number of resident pages is that of now from here on.
    pub fn forget_peak(&self) {
        self.resident.peak.store(self.resident.sum(), Ordering::Relaxed);
    }

    /// Bytes that the process would give back if it ended now: what the out-of-memory policy compares.
    pub fn badness_bytes(&self) -> u64 {
        (self.resident.sum() << PAGE_SHIFT) + self.tables.bytes()
    }
}

impl RegionUsage {
    /// Counts the page of an entry in a table with so many links.
    fn count(&mut self, entry: Entry, links: u64) {
        let bytes = PAGE_SIZE as u64;
        // SAFETY: `change` is held, and only the count is read: a frame that a fault replaces meanwhile still has one.
        let references = u64::from(unsafe { borrow_frame(entry) }.references().max(1));
        let private = entry.contains(PRIVATE);
        // The cache's own reference of a file page is not a mapping; an entry that several spaces share is several.
        let mappings = if private { references * links } else { references.saturating_sub(1).max(1) };
        let dirty = entry.contains(EntryFlags::DIRTY) || private;
        self.resident += bytes;
        self.proportional += bytes / mappings;
        let class = match (mappings > 1, dirty) {
            (true, true) => &mut self.shared_dirty,
            (true, false) => &mut self.shared_clean,
            (false, true) => &mut self.private_dirty,
            (false, false) => &mut self.private_clean,
        };
        *class += bytes;
        if entry.contains(EntryFlags::ACCESSED) {
            self.referenced += bytes;
        }
        if private {
            self.anonymous += bytes;
        }
    }
}
