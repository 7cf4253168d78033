//! Leaf tables, and sharing them between trees.
//!
//! Several trees may link to one leaf table. None of the links lets stores through, and nobody changes the table's entries but to
//! take permissions away; a tree that wants to change something takes a table of its own first. The processor intersects the
//! permissions of link and entry, so the entries may keep theirs. Who counts the links is the business of the address
//! space above.

use super::entry::{Entry, EntryCell, EntryFlags};
use super::table::{ENTRIES, LINK, SHARED, Table};
use crate::address::PhysAddr;

/// Why there is no leaf table to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeaf {
    /// No memory for it.
    OutOfMemory,
    /// It is shared with other trees.
    Shared,
}

/// A leaf table in its tree, or a piece of it.
#[derive(Clone, Copy)]
pub struct Leaf<'a> {
    /// The address that the first of the entries is for.
    pub base: u64,
    /// The entries.
    pub cells: &'a [EntryCell],
    pub(super) link: &'a EntryCell,
}

impl Leaf<'_> {
    /// Whether other trees may link to the table.
    #[inline(always)]
    pub fn is_shared(&self) -> bool {
        self.link.load().contains(SHARED)
    }

    /// Whether these are all entries of the table.
    pub fn is_whole(&self) -> bool {
        self.cells.len() == ENTRIES
    }

    /// The frame of the table.
    pub fn frame(&self) -> PhysAddr {
        self.link.load().physical()
    }

    /// Marks the table as shared; returns whether it was not before. Processors may hold translations that allow stores.
    pub fn share(&self) -> bool {
        let shared = |link: Entry| link.without(EntryFlags::WRITABLE).with(SHARED);
        self.link.update(|link| (!link.contains(SHARED)).then(|| shared(link))).is_some()
    }

    /// Nobody else links to the table any more: stores go through again.
    pub fn own(&self) {
        self.link.store(Entry::new(self.frame(), LINK));
    }

    /// Links another table in place of this one. Processors may hold translations by the former.
    ///
    /// # Safety
    /// `table` is the frame of a leaf table, which is the tree's from now on.
    pub unsafe fn replace(&self, table: PhysAddr) {
        self.link.store(Entry::new(table, LINK));
    }

    /// Takes the table out of the tree. Processors may hold translations by it.
    pub fn take_out(&self) {
        self.link.store(Entry::EMPTY);
    }
}

/// The entries of the leaf table in a frame.
///
/// # Safety
/// The frame is a leaf table, or zeroed and about to be one, for `'a`.
pub unsafe fn leaf_entries<'a>(table: PhysAddr) -> &'a [EntryCell; ENTRIES] {
    // SAFETY: as the caller says.
    &unsafe { Table::at(table) }.0
}
