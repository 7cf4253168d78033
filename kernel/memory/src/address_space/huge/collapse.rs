//! Small pages become a huge one because the program asks for it (`MADV_COLLAPSE`).
//!
//! The table is closed as by a fork, with the space itself as the only one to link to it: readers go on, whoever wants to store waits for
//! `change`. Once all processors have forgotten translations that allow stores, the pages stand still and are copied. Who has a page at hand, for a
//! transfer say, has a reference to it, and keeps it from being moved.

use core::ops::Range;
use core::sync::atomic::Ordering::Relaxed;

use machine::page_table::{EntryFlags, LEAF_TABLE_BYTES, Leaf};

use super::super::entry::{self, PRIVATE, UNCOUNTED, borrow_frame};
use super::super::error::MapError;
use super::super::shared_tables::{links, release_table};
use super::super::space::AddressSpace;
#[cfg(test)]
use super::super::window::{self, Window};
use super::fill::Prepared;
use super::policy::{COUNTERS, covers_huge_page, may_be_huge};
use crate::frame::huge::HUGE_FRAMES;

impl AddressSpace {
    /// Makes huge pages of what a range has in memory, wherever one fits in. Settings and advice but that against huge pages don't count.
    ///
    /// # Errors
    /// As madvise(2) with MADV_COLLAPSE: the first that was met, after the rest has been done.
    pub(in super::super) fn collapse(&self, range: Range<u64>) -> Result<(), MapError> {
        let mut result = Ok(());
        let walked = self.each_piece(range, |piece| {
            if !may_be_huge(&piece) || self.forbids_huge_pages() {
                return Err(MapError::InvalidArgument);
            }
            let mut base = piece.start().next_multiple_of(LEAF_TABLE_BYTES);
            if base > piece.end() {
                return Err(MapError::InvalidArgument);
            }
            while base + LEAF_TABLE_BYTES <= piece.end() {
                if crate::oom::caller_is_dying() {
                    return Err(MapError::OutOfMemory);
                }
                result = result.and(self.collapse_one(base));
                base += LEAF_TABLE_BYTES;
            }
            Ok(())
        });
        walked.and(result)
    }

    fn collapse_one(&self, base: u64) -> Result<(), MapError> {
        let Ok(prepared) = Prepared::new() else {
            COUNTERS.not_collapsed.fetch_add(1, Relaxed);
            return Err(MapError::OutOfMemory);
        };
        let _change = self.change.lock();
        let permission = {
            let regions = self.regions.read();
            let region = regions.find(base).ok_or(MapError::OutOfMemory)?;
            if !may_be_huge(region) || !covers_huge_page(region, base) {
                return Err(MapError::InvalidArgument);
            }
            entry::readable(region.flags()) | EntryFlags::WRITABLE
        };
        // SAFETY: `change` is held, so nobody else takes tables away.
        let leaf = unsafe { self.tables.tree().leaf(base) }.ok_or(MapError::InvalidArgument)?;
        if leaf.is_huge() {
            return Ok(());
        }
        if leaf.cells.iter().all(|cell| cell.load().is_empty()) {
            return Err(MapError::InvalidArgument);
        }
        self.close(leaf);
        #[cfg(test)]
        window::pass(Window::CollapseClosed);
        let Some(added) = copy_pages(leaf, &prepared) else {
            self.own(leaf)?;
            return Err(MapError::TooMuchLocked);
        };
        prepared.write_table(permission);
        let former = leaf.frame();
        let page = prepared.page.physical();
        {
            let _regions = self.regions.write();
            leaf.close_behind(page, permission);
        }
        prepared.give_away();
        self.tables.forget(base, base + LEAF_TABLE_BYTES, true);
        // SAFETY: the reference was the former link's, and no processor walks the table any more.
        unsafe { release_table(former) };
        self.resident.private.fetch_add(added, Relaxed);
        COUNTERS.mapped.fetch_add(1, Relaxed);
        COUNTERS.collapsed.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Nobody stores to the table's pages, or changes its entries, until `change` is released.
    fn close(&self, leaf: Leaf<'_>) {
        self.closes_tables.store(true, Relaxed);
        if leaf.is_shared() && links(&leaf) > 1 {
            return;
        }
        {
            let _regions = self.regions.write();
            leaf.share();
        }
        self.tables.forget(leaf.base, leaf.base + LEAF_TABLE_BYTES, false);
    }
}

/// Copies what the entries of a closed table show; returns how many pages there are that were none. None: somebody has one of the pages at hand, and may
/// be about to store to it, or another space has it mapped.
fn copy_pages(leaf: Leaf<'_>, prepared: &Prepared) -> Option<i64> {
    let mut copied = 0;
    for (number, cell) in leaf.cells.iter().enumerate() {
        let entry = cell.load();
        let shows_something = !entry.is_empty() && !entry.contains(UNCOUNTED);
        // SAFETY: nobody removes an entry of a closed table while `change` is held.
        let frame = shows_something.then(|| unsafe { borrow_frame(entry) });
        if frame.as_ref().is_some_and(|frame| frame.references() != 1) {
            return None;
        }
        prepared.page.fill_one(number, frame.as_deref());
        debug_assert!(frame.is_none() || entry.contains(PRIVATE), "anonymous memory has private pages");
        copied += i64::from(frame.is_some());
    }
    Some(i64::from(HUGE_FRAMES) - copied)
}
