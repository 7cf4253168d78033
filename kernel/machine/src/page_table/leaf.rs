//! Leaf tables, sharing them between trees, and huge pages in their place.
//!
//! Several trees may link to one leaf table. None of the links lets stores through, and nobody changes the table's entries but to
//! take permissions away; a tree that wants to change something takes a table of its own first. The processor intersects the
//! permissions of link and entry, so the entries may keep theirs. Who counts the links is the business of the address
//! space above.
//!
//! A link may also map 2 MiB itself. The leaf table that says the same page by page exists all the same, *behind* the huge page: who
//! walks the tree sees its entries, and the huge page is undone by linking the table in its place, for which no memory is needed. Which table is
//! behind a huge page the owner of frames knows ([`find_tables_behind`]).
//!
//! *Pooled* huge pages are mapped as a whole or not at all: several trees may map one, each with permissions of its own, and nothing is ever linked in their place.
//! Their places have one more state than others: *marked*, without a page, which means to the address space what it likes.

use super::entry::{Entry, EntryCell, EntryFlags};
use super::table::{CLOSED, ENTRIES, HUGE_LINK, LEAF_TABLE_BYTES, LINK, POOLED, SHARED_LINK, Table};
use crate::address::PhysAddr;
use crate::set_once::SetOnce;

/// Where the table behind a huge page is, by the page's first frame.
static TABLE_BEHIND: SetOnce<fn(PhysAddr) -> PhysAddr> = SetOnce::new();

/// Registers who knows the frame of the leaf table behind a huge page, by the page's first frame. Once, before there is a huge page.
pub fn find_tables_behind(find: fn(PhysAddr) -> PhysAddr) {
    TABLE_BEHIND.set(find);
}

/// The frame of the table that a link names, or that is behind the huge page that it maps.
#[inline(always)]
pub(super) fn table_of(link: Entry) -> PhysAddr {
    if link.contains(EntryFlags::LARGE) { table_behind(link) } else { link.physical() }
}

#[inline(never)]
fn table_behind(link: Entry) -> PhysAddr {
    let find = TABLE_BEHIND.get().expect("registered before there is a huge page");
    find(link.physical())
}

/// Why there is no leaf table to change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLeaf {
    /// No memory for it.
    OutOfMemory,
    /// It is shared with other trees.
    Shared,
    /// A huge page is mapped in its place, by this link.
    Huge(Entry),
    /// There is none yet.
    Absent,
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
        let link = self.link.load();
        link.contains(CLOSED) && !link.contains(EntryFlags::LARGE)
    }

    /// Whether a huge page is mapped in the table's place. Its entries agree with that page.
    #[inline(always)]
    pub fn is_huge(&self) -> bool {
        self.link.load().contains(EntryFlags::LARGE)
    }

    /// Whether a pooled huge page is mapped, or hidden, here.
    #[inline(always)]
    pub fn is_pooled(&self) -> bool {
        self.link.load().contains(POOLED)
    }

    /// The link itself.
    pub fn link(&self) -> Entry {
        self.link.load()
    }

    /// Maps a pooled huge page here, that or another one, with these permissions. Processors may hold translations by the former link.
    pub fn set_pooled(&self, first: PhysAddr, permission: EntryFlags) {
        debug_assert!(self.is_pooled());
        self.link.store(pooled_link(first, permission));
    }

    /// Takes a pooled huge page out of the tree, and marks its place.
    pub fn take_out_marked(&self, mark: Mark) {
        debug_assert!(self.is_pooled());
        self.link.store(mark.entry());
    }

    /// Whether the table is shared, or behind a huge page: its entries are not to be changed.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.link.load().contains(CLOSED)
    }

    /// Whether these are all entries of the table.
    pub fn is_whole(&self) -> bool {
        self.cells.len() == ENTRIES
    }

    /// The frame of the table.
    pub fn frame(&self) -> PhysAddr {
        table_of(self.link.load())
    }

    /// Marks the table as shared; returns whether it was not before. Processors may hold translations that allow stores. A huge page in its
    /// place is undone: as for [`Leaf::own`].
    pub fn share(&self) -> bool {
        let was_shared = self.is_shared();
        self.link.store(Entry::new(self.frame(), SHARED_LINK));
        !was_shared
    }

    /// Nobody else links to the table any more, or a huge page is undone: the processor walks the table, and stores go through again. Of a
    /// huge page processors may still hold the translation, which says the same as the entries.
    pub fn own(&self) {
        self.link.store(Entry::new(self.frame(), LINK));
    }

    /// Maps the huge page that begins at `first` in the table's place. Its entries say the same, with the same permissions, and the table
    /// is known to be behind the page ([`find_tables_behind`]).
    pub fn close_behind(&self, first: PhysAddr, permission: EntryFlags) {
        debug_assert!(first.as_u64().is_multiple_of(LEAF_TABLE_BYTES));
        self.link.store(Entry::new(first, permission | HUGE_LINK));
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

/// The link that maps a pooled huge page.
pub(super) fn pooled_link(first: PhysAddr, permission: EntryFlags) -> Entry {
    debug_assert!(first.as_u64().is_multiple_of(LEAF_TABLE_BYTES));
    Entry::new(first, permission | HUGE_LINK | POOLED)
}

/// What the place of a pooled huge page says that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// It had one.
    Used,
    /// Its page was taken away for somebody else.
    Lost,
}

impl Mark {
    const fn entry(self) -> Entry {
        Entry::new(
            PhysAddr::new(0),
            match self {
                Mark::Used => EntryFlags::SOFTWARE_2,
                Mark::Lost => EntryFlags::SOFTWARE_3,
            },
        )
    }
}

/// The place for a link to a leaf table, in ranges where only pooled huge pages are mapped.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The first address that it is for.
    pub base: u64,
    pub(super) link: &'a EntryCell,
}

impl Place<'_> {
    /// What the place says if it has no page.
    pub fn mark(&self) -> Option<Mark> {
        let found = self.link.load();
        [Mark::Used, Mark::Lost].into_iter().find(|mark| mark.entry() == found)
    }

    /// Whether there is nothing, not even a mark.
    pub fn is_empty(&self) -> bool {
        self.link.load().is_empty()
    }

    /// Empties the place; what was there is for [`Place::put`], or to be released. Processors may hold translations by it.
    pub fn take(&self) -> Entry {
        self.link.swap(Entry::EMPTY)
    }

    /// Puts what [`Place::take`] took elsewhere here.
    pub fn put(&self, link: Entry) {
        debug_assert!(!self.link.load().leads_on());
        self.link.store(link);
    }

    /// Maps a pooled huge page here, where there is none, with these permissions.
    pub fn map(&self, first: PhysAddr, permission: EntryFlags) {
        self.put(pooled_link(first, permission));
    }
}

/// The entries of the leaf table in a frame.
///
/// # Safety
/// The frame is a leaf table for `'a`, or about to be one whose entries nobody else can read before they are written.
pub unsafe fn leaf_entries<'a>(table: PhysAddr) -> &'a [EntryCell; ENTRIES] {
    // SAFETY: as the caller says.
    &unsafe { Table::at(table) }.0
}
