//! Undoing huge pages, and having them again after a fork.

use core::sync::atomic::Ordering::Relaxed;

use machine::address::PAGE_SIZE;
use machine::page_table::{Entry, EntryFlags, LEAF_TABLE_BYTES, Leaf};

use super::super::entry::{PERMISSION, PRIVATE};
use super::super::space::AddressSpace;
use super::policy::COUNTERS;
use crate::frame::huge::set_table_behind;

/// A huge page leaves with the memory that it maps, or its table becomes a shared one: the caller links the table in its place, or does now.
pub(in super::super) fn leave() {
    COUNTERS.mapped.fetch_sub(1, Relaxed);
}

impl AddressSpace {
    /// Links the table behind a huge page in its place. `change` is held.
    pub(in super::super) fn undo_huge(&self, leaf: Leaf<'_>) {
        debug_assert!(leaf.is_huge());
        {
            let _regions = self.regions.write();
            leaf.own();
        }
        leave();
        COUNTERS.undone.fetch_add(1, Relaxed);
        // Processors may hold translations of both sizes for a while, which is why they agree.
        let base = leaf.base & !(LEAF_TABLE_BYTES - 1);
        self.tables.forget(base, base + LEAF_TABLE_BYTES, false);
    }

    /// Maps a huge page in the place of a table that the space has for itself again after a fork, if its entries still are such a page's. Entries that
    /// let stores through lead to pages that nobody else maps. Returns whether it does. `change` is held.
    pub(in super::super) fn reunite(&self, leaf: Leaf<'_>) -> bool {
        let needed = EntryFlags::PRESENT | EntryFlags::WRITABLE | PRIVATE;
        let first = leaf.cells[0].load();
        let start = first.physical();
        if !leaf.is_whole() || !first.contains(needed) || !start.as_u64().is_multiple_of(LEAF_TABLE_BYTES) {
            return false;
        }
        let permission = |entry: Entry| entry.flags() & PERMISSION;
        let agree = leaf.cells.iter().enumerate().all(|(number, cell)| {
            let entry = cell.load();
            entry.contains(needed)
                && entry.physical().as_u64() == start.as_u64() + (number * PAGE_SIZE) as u64
                && permission(entry) == permission(first)
        });
        let wanted = || {
            let regions = self.regions.read();
            regions.find(leaf.base).is_some_and(|region| self.gets_huge_page(region, leaf.base))
        };
        if !agree || !wanted() {
            return false;
        }
        set_table_behind(start, leaf.frame());
        leaf.close_behind(start, permission(first));
        COUNTERS.mapped.fetch_add(1, Relaxed);
        true
    }
}
