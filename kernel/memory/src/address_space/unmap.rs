//! Taking mappings away.
//!
//! Regions leave the tree a few at a time (under `regions`), then their entries are cleared, then the tables that
//! nothing else needs are taken out: those between the end of the region below and the start of the one above. The
//! cost follows the regions and the tables that are present.

use super::account;
use super::entry::{PRIVATE, SHARED_MEMORY, UNCOUNTED};
use super::error::MapError;
use super::gather::Gather;
use super::huge;
use super::pooled;
use super::request::MapBacking;
use super::space::{AddressSpace, Layout, MAX_REGIONS};
use super::tables::Tables;
use crate::parking::SleepGuard;
use crate::region::{FileMapping, Region, RegionFlags};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::{AddAssign, ControlFlow, Range};
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};
use machine::page_table::{Entry, EntryCell, EntryFlags, Leaf};

/// Where tables for user addresses end.
pub(super) const TABLE_TOP: u64 = 1 << 47;

/// Regions taken out under one hold of the tree.
const BATCH_REGIONS: usize = 4;

/// File mappings that lost a region, to be dropped once no lock is held: the drop may call into a file system.
pub(super) type Dropped = Vec<Arc<FileMapping>>;

/// Pages by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PageCounts {
    pub(super) private: i64,
    pub(super) file: i64,
    pub(super) shared_memory: i64,
}

impl PageCounts {
    #[inline(always)]
    pub(super) fn count(&mut self, entry: Entry) {
        if entry.contains(PRIVATE) {
            self.private += 1;
        } else if entry.contains(SHARED_MEMORY) {
            self.shared_memory += 1;
        } else if !entry.contains(UNCOUNTED) {
            self.file += 1;
        }
    }
}

impl AddAssign for PageCounts {
    fn add_assign(&mut self, other: Self) {
        self.private += other.private;
        self.file += other.file;
        self.shared_memory += other.shared_memory;
    }
}

/// Clears the entries of a range and gives their frames to the batch. It may have counted nothing where tables are unloaded. Concurrent faults elsewhere do no harm; nobody may
/// free the tables meanwhile.
pub(super) fn zap(tables: &Tables, range: Range<u64>, gather: &mut Gather<'_>) -> PageCounts {
    let mut counts = PageCounts::default();
    gather.cover(range.clone());
    let unloaded = gather.is_unloaded();
    // SAFETY: the caller holds `change` or is the only user, so tables are not freed.
    let _ = unsafe {
        tables.tree().for_each_leaf(range, |leaf| {
            if leaf.is_shared() {
                counts += zap_shared(leaf, gather);
                return ControlFlow::Continue(());
            }
            if leaf.is_huge() {
                if leaf.is_pooled() {
                    pooled::zap(leaf, gather);
                    return ControlFlow::Continue(());
                }
                assert!(leaf.is_whole(), "huge pages that regions are cut in are undone");
                huge::leave();
                leaf.own();
            }
            for cell in leaf.cells {
                let entry = cell.load();
                if entry.is_empty() {
                    continue;
                }
                let entry = if unloaded {
                    cell.store(Entry::EMPTY);
                    entry
                } else {
                    cell.swap(Entry::EMPTY)
                };
                if entry.is_empty() {
                    continue;
                }
                counts.count(entry);
                if entry.contains(UNCOUNTED) {
                    gather.cleared();
                } else {
                    gather.release(entry.physical());
                }
            }
            ControlFlow::<()>::Continue(())
        })
    };
    counts
}

/// Which entries of a range are meant.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Among {
    /// All of them.
    All,
    /// Those that no access went through since the last time. The others are marked so that the next time can tell.
    Unused,
}

/// Clears entries that show pages of a file itself, without touching private copies. Closed tables are left alone: private memory has them.
pub(super) fn zap_own_pages_of_file(
    tables: &Tables,
    range: Range<u64>,
    among: Among,
    gather: &mut Gather<'_>,
) -> PageCounts {
    let mut counts = PageCounts::default();
    gather.cover(range.clone());
    // SAFETY: the caller holds `change`, so tables are not freed.
    let _ = unsafe {
        tables.tree().for_each_leaf(range, |leaf| {
            for cell in leaf.cells.iter().filter(|_| !leaf.is_closed()) {
                let used = |entry: Entry| among == Among::Unused && entry.contains(EntryFlags::ACCESSED);
                let own = |entry: Entry| {
                    let kept = entry.is_empty() || entry.contains(PRIVATE) || entry.contains(UNCOUNTED);
                    let left = if used(entry) { entry.without(EntryFlags::ACCESSED) } else { Entry::EMPTY };
                    (!kept).then_some(left)
                };
                match cell.update(own) {
                    // The processors must forget it to notice the next access.
                    Some(entry) if used(entry) => gather.cleared(),
                    Some(entry) => {
                        counts.count(entry);
                        gather.release(entry.physical());
                    }
                    None => {}
                }
            }
            ControlFlow::<()>::Continue(())
        })
    };
    counts
}

/// Takes a whole table out that other spaces link to: it lay in one region, which is being taken away.
#[inline(never)]
fn zap_shared(leaf: Leaf<'_>, gather: &mut Gather<'_>) -> PageCounts {
    assert!(leaf.is_whole(), "tables that regions are cut in are not shared");
    let mut counts = PageCounts::default();
    if !gather.is_unloaded() {
        leaf.cells
            .iter()
            .map(EntryCell::load)
            .filter(|entry| !entry.is_empty())
            .for_each(|entry| counts.count(entry));
    }
    let table = leaf.frame();
    leaf.take_out();
    // SAFETY: the table has just left the tree, with the reference that its link held.
    unsafe { gather.release_shared_table(table) };
    counts
}

/// Takes the tables out that cover parts of `range` and lie between `floor` and `ceiling`.
pub(super) fn free_tables(
    tables: &Tables,
    range: Range<u64>,
    floor: u64,
    ceiling: u64,
    gather: &mut Gather<'_>,
) {
    // SAFETY: the caller holds `change` or is the only user, and there is no region between `floor` and `ceiling` any
    // more, so no fault walks there. The batch keeps the tables until processors have forgotten them.
    unsafe {
        tables.tree().free_tables(range, floor, ceiling, &mut |table| gather.release_table(table));
    }
}

impl AddressSpace {
    /// Removes what is mapped in a range (munmap).
    ///
    /// # Errors
    /// INVAL for a range that is empty, not aligned or beyond the user half; no memory to cut a region.
    pub fn unmap(&self, start: UserAddr, length: u64) -> Result<(), MapError> {
        let range = page_range(start, length).map_err(|_| MapError::InvalidArgument)?;
        if range.is_empty() {
            return Err(MapError::InvalidArgument);
        }
        let mut layout = self.change.lock();
        let dropped = self.remove_range(&mut layout, range);
        drop(layout);
        dropped.map(drop)
    }

    /// Removes what is mapped in a page-aligned range.
    pub(super) fn remove_range(
        &self,
        _layout: &mut SleepGuard<'_, Layout>,
        range: Range<u64>,
    ) -> Result<Dropped, MapError> {
        let mut dropped = Dropped::new();
        {
            self.own_cut(range.start)?;
            self.own_cut(range.end)?;
            let mut regions = self.regions.write();
            if !regions.is_used(range.start, range.end) {
                return Ok(dropped);
            }
            let cuts_one = regions
                .find(range.start)
                .is_some_and(|region| region.start() < range.start && range.end < region.end());
            if cuts_one && regions.count() >= MAX_REGIONS {
                return Err(MapError::OutOfMemory);
            }
            regions.split_at(range.start)?;
            if let Err(error) = regions.split_at(range.end) {
                regions.merge_range(range.start, range.end);
                return Err(error.into());
            }
        }
        self.resident.note_peak();
        let mut gather = Gather::new(&self.tables);
        while self.remove_some(&range, &mut gather, &mut dropped) {}
        Ok(dropped)
    }

    /// Removes the first regions of a range that begins and ends at region boundaries; says whether there were any.
    fn remove_some(&self, range: &Range<u64>, gather: &mut Gather<'_>, dropped: &mut Dropped) -> bool {
        let mut batch: ArrayVec<Region, BATCH_REGIONS> = ArrayVec::new_const();
        let (floor, ceiling) = {
            let mut regions = self.regions.write();
            while !batch.is_full()
                && let Some(region) = regions.take_first(range.start, range.end)
            {
                batch.push(region);
            }
            let below = regions.before(range.start).map_or(0, |position| regions.at(position).end());
            let above =
                regions.locate(range.start).map_or(TABLE_TOP, |position| regions.at(position).start());
            (below, above)
        };
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return false };
        let span = first.start()..last.end();
        let mut counts = PageCounts::default();
        let (mut committed, mut locked) = (0, 0);
        for region in &batch {
            counts += zap(&self.tables, region.start()..region.end(), gather);
            if region.flags().contains(RegionFlags::POOLED) {
                pooled::end(&self.tables, region);
            }
            if region.flags().contains(RegionFlags::ACCOUNTED) {
                committed += region.pages();
            }
            if region.flags().contains(RegionFlags::LOCKED) {
                locked += region.pages();
            }
        }
        free_tables(&self.tables, span, floor, ceiling, gather);
        self.subtract_resident(counts);
        account::release(committed);
        if locked > 0 {
            self.locked_pages.fetch_sub(locked, Ordering::Relaxed);
        }
        for region in batch {
            if let MapBacking::File(mapping) = region.backing
                && dropped.try_reserve(1).is_ok()
            {
                dropped.push(mapping);
            }
        }
        true
    }

    pub(super) fn subtract_resident(&self, counts: PageCounts) {
        for (cell, pages) in [
            (&self.resident.private, counts.private),
            (&self.resident.file, counts.file),
            (&self.resident.shared_memory, counts.shared_memory),
        ] {
            if pages != 0 {
                cell.fetch_sub(pages, Ordering::Relaxed);
            }
        }
    }
}

/// The whole pages of a range. One that does not begin at a page boundary or overflows is an invalid argument, one that
/// leaves the user half is one with a hole: out of memory.
pub(super) fn page_range(start: UserAddr, length: u64) -> Result<Range<u64>, MapError> {
    let start = start.as_u64();
    if start & (PAGE_SIZE as u64 - 1) != 0 {
        return Err(MapError::InvalidArgument);
    }
    let length = round_up(length).ok_or(MapError::InvalidArgument)?;
    match start.checked_add(length) {
        Some(end) if end <= super::space::USER_TOP => Ok(start..end),
        Some(_) => Err(MapError::OutOfMemory),
        None => Err(MapError::InvalidArgument),
    }
}

/// Rounds up to whole pages, unless that overflows.
pub(super) fn round_up(bytes: u64) -> Option<u64> {
    Some(bytes.checked_add(PAGE_SIZE as u64 - 1)? >> PAGE_SHIFT << PAGE_SHIFT)
}
