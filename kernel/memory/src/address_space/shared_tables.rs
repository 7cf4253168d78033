//! Leaf tables that several address spaces share after a fork.
//!
//! A fork does not copy the 512 entries of a table that lies entirely in a region of anonymous private memory: both spaces link to it
//! from then on, and neither link lets stores through. The frame of the table counts its links; its entries hold one reference
//! to each page, whoever links to it. Whoever wants to change an entry, by a fault or a call, first takes a table of its own:
//!
//! ```text
//! own (one link) ── fork ──> shared (n links) ── a copy, with one more reference to each page ──> own
//!        ^                         │
//!        └── the others have gone ─┘
//! ```
//!
//! Fork, exec and exit of a large process so cost a few hundred instructions for each 2 MiB, and who goes on as before does not even
//! pay for a copy of the tables, let alone of the pages, once the child has gone.
//!
//! Rules:
//! - A shared table lies in one region. So cutting a region within one makes it the space's own first ([`AddressSpace::own_cut`]).
//! - A table becomes shared, and becomes its space's own again, with `change` held; what holds `change` finds its tables as they were. The
//!   link changes with `regions` held for writing, so that no attempt at a fault still walks a table that leaves.
//! - While a table is shared its entries only lose the permission to store: in all spaces at once, which is right, because the
//!   pages get a second reference then. Nobody may hold a translation that allows stores by then: forks forget those before they return.
//! - The last one to let go of a table drops what its entries hold.
//!
//! A shared table is one kind of *closed* tables, whose entries are not to be changed. Those behind huge pages are the other one (`huge`): what
//! makes a table the space's own, here, undoes the huge page in its place.

use super::entry::{PRIVATE, UNCOUNTED, borrow_frame};
use super::error::MapError;
use super::gather::Gather;
use super::huge;
use super::space::AddressSpace;
use super::unmap::PageCounts;
#[cfg(test)]
use super::window::{self, Window};
use crate::OutOfMemory;
use crate::frame::{Frame, Purpose, Zeroed};
use crate::region::{Region, RegionFlags};
use core::mem::ManuallyDrop;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering;
use machine::address::PhysAddr;
use machine::page_table::{ENTRIES, Entry, EntryCell, EntryFlags, LEAF_TABLE_BYTES, Leaf, leaf_entries};

impl AddressSpace {
    /// Lets the child use a whole leaf table of this space, which lies in a region of anonymous private memory of both. Returns the number
    /// of private pages. `change` is held; the child is not known to anybody else; the caller makes processors forget.
    ///
    /// # Errors
    /// When there is no memory for the child's tables above.
    pub(super) fn share_table(&self, child: &AddressSpace, leaf: Leaf<'_>) -> Result<i64, OutOfMemory> {
        let table = leaf.frame();
        for space in [self, child] {
            space.closes_tables.store(true, Ordering::Relaxed);
        }
        {
            // No attempt at a fault changes the table any more once this is locked.
            let _regions = self.regions.write();
            // SAFETY: the link holds a reference to its table.
            let linked = ManuallyDrop::new(unsafe { Frame::from_physical(table) });
            let _ = ManuallyDrop::new((*linked).clone());
            if leaf.is_huge() {
                huge::leave();
            }
            leaf.share();
        }
        #[cfg(test)]
        window::pass(Window::TableClosed);
        let private = private_pages(leaf.cells);
        // SAFETY: the child is only known here, and has nothing at this address yet.
        let linked = unsafe { child.tables.tree().link_shared(leaf.base, table, &*child.tables) };
        if linked.is_none() {
            // SAFETY: the reference that the child's link would have held.
            unsafe { release_table(table) };
            return Err(OutOfMemory);
        }
        child.tables.table_joined();
        Ok(private as i64)
    }

    /// Makes all leaf tables of a range the space's own. `change` is held.
    ///
    /// # Errors
    /// When there is no memory for a table. Some have become the space's own then.
    pub(super) fn own_tables(&self, range: Range<u64>) -> Result<(), OutOfMemory> {
        if !self.closes_tables.load(Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: `change` is held, so nobody else takes tables away, and each is replaced after it was visited.
        let walked = unsafe {
            self.tables.tree().for_each_leaf(range, |leaf| match self.own(leaf) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => ControlFlow::Break(error),
            })
        };
        match walked {
            ControlFlow::Break(error) => Err(error),
            ControlFlow::Continue(()) => Ok(()),
        }
    }

    /// Takes out those closed tables of a range that lie in it as a whole: the memory goes, and its place may have a huge page again. `change` is held.
    pub(super) fn take_closed_tables_out(&self, range: Range<u64>, gather: &mut Gather<'_>) -> PageCounts {
        let mut counts = PageCounts::default();
        if !self.closes_tables.load(Ordering::Relaxed) {
            return counts;
        }
        gather.cover(range.clone());
        // SAFETY: `change` is held, so nobody else takes tables away.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(range, |leaf| {
                if leaf.is_closed() && leaf.is_whole() && !leaf.is_pooled() {
                    counts += self.take_closed_table_out(leaf, gather);
                }
                ControlFlow::<()>::Continue(())
            })
        };
        counts
    }

    fn take_closed_table_out(&self, leaf: Leaf<'_>, gather: &mut Gather<'_>) -> PageCounts {
        let mut counts = PageCounts::default();
        leaf.cells
            .iter()
            .map(EntryCell::load)
            .filter(|entry| !entry.is_empty())
            .for_each(|entry| counts.count(entry));
        let table = leaf.frame();
        {
            // Who has found the table is through with it once this is locked.
            let _regions = self.regions.write();
            if leaf.is_huge() {
                huge::leave();
            }
            leaf.take_out();
        }
        // SAFETY: the table has just left the tree, with the reference that its link held.
        unsafe { gather.release_shared_table(table) };
        counts
    }

    /// The region at an address is to be cut there: a table that lies on both sides becomes the space's own. `change` is held.
    ///
    /// # Errors
    /// When there is no memory for a table. INVAL within a page of the pool.
    pub(super) fn own_cut(&self, address: u64) -> Result<(), MapError> {
        let can_lie_on_both_sides =
            self.closes_tables.load(Ordering::Relaxed) && !address.is_multiple_of(LEAF_TABLE_BYTES);
        if can_lie_on_both_sides { self.own_both_sides(address) } else { Ok(()) }
    }

    #[inline(never)]
    fn own_both_sides(&self, address: u64) -> Result<(), MapError> {
        let is_pooled = |region: &Region| region.flags().contains(RegionFlags::POOLED);
        if self.regions.read().find(address).is_some_and(is_pooled) {
            return Err(MapError::InvalidArgument);
        }
        Ok(self.own_table(address)?)
    }

    /// Makes the leaf table of an address the space's own. `change` is held.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn own_table(&self, address: u64) -> Result<(), OutOfMemory> {
        // SAFETY: `change` is held, so nobody else takes tables away.
        match unsafe { self.tables.tree().leaf(address) } {
            Some(leaf) => self.own(leaf),
            None => Ok(()),
        }
    }

    /// Makes the leaf table of an address one by which a fault can be resolved: the space's own, or again behind a huge page. `change` is held.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn own_for_fault(&self, address: u64) -> Result<(), OutOfMemory> {
        // SAFETY: `change` is held, so nobody else takes tables away.
        match unsafe { self.tables.tree().leaf(address) } {
            Some(leaf) if leaf.is_shared() && links(&leaf) == 1 && self.reunite(leaf) => Ok(()),
            Some(leaf) => self.own(leaf),
            None => Ok(()),
        }
    }

    /// Whether other spaces link to the leaf table of an address.
    pub(super) fn shares_table(&self, address: u64) -> bool {
        let regions = self.regions.read();
        // SAFETY: the region lock keeps the region, and the region its tables.
        let leaf = regions.find(address).and_then(|_| unsafe { self.tables.tree().leaf(address) });
        leaf.is_some_and(|leaf| links(&leaf) > 1)
    }

    /// Makes a leaf table the space's own. `change` is held.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub(super) fn own(&self, leaf: Leaf<'_>) -> Result<(), OutOfMemory> {
        if leaf.is_huge() {
            // A page of the pool stays whole: who changes something of it does that to its link.
            if !leaf.is_pooled() {
                self.undo_huge(leaf);
            }
            return Ok(());
        }
        if !leaf.is_shared() {
            return Ok(());
        }
        let table = leaf.frame();
        // SAFETY: the link holds a reference to its table.
        let shared = ManuallyDrop::new(unsafe { Frame::from_physical(table) });
        if shared.references() == 1 {
            #[cfg(test)]
            window::pass(Window::OwnAlone);
            leaf.own();
            return Ok(());
        }
        #[cfg(test)]
        window::pass(Window::OwnDecided);
        let own = Frame::allocate(Purpose::PageTable, Zeroed::Yes)?;
        // SAFETY: the shared table stays while the link holds its reference, and the new one is not linked yet.
        let (from, to) = unsafe { (leaf_entries(table), leaf_entries(own.physical())) };
        copy_entries(from, to);
        #[cfg(test)]
        window::pass(Window::OwnCopied);
        {
            let _regions = self.regions.write();
            // SAFETY: the frame is a leaf table now, and the tree's.
            unsafe { leaf.replace(own.into_physical()) };
        }
        #[cfg(test)]
        window::pass(Window::OwnReplaced);
        let start = leaf.base & !(LEAF_TABLE_BYTES - 1);
        self.tables.forget(start, start + LEAF_TABLE_BYTES, true);
        // SAFETY: the reference was the former link's.
        unsafe { release_table(table) };
        Ok(())
    }
}

/// How many of a table's entries lead to private pages. Eight at a time: a fork of a large process asks each of its entries.
fn private_pages(cells: &[EntryCell]) -> usize {
    let is_private = |cell: &EntryCell| usize::from(cell.load().contains(PRIVATE));
    let (eights, rest) = cells.as_chunks();
    let eights = eights.iter().map(|[a, b, c, d, e, f, g, h]: &[EntryCell; 8]| {
        let first = is_private(a) + is_private(b) + is_private(c) + is_private(d);
        first + is_private(e) + is_private(f) + is_private(g) + is_private(h)
    });
    eights.sum::<usize>() + rest.iter().map(is_private).sum::<usize>()
}

/// Copies the entries of a shared table. Their pages have one more holder from then on, so none of the two tables lets stores through.
fn copy_entries(from: &[EntryCell; ENTRIES], to: &[EntryCell; ENTRIES]) {
    for (source, target) in from.iter().zip(to) {
        let entry = source.load();
        if entry.is_empty() {
            continue;
        }
        if entry.contains(EntryFlags::WRITABLE) {
            source.update(|entry| Some(entry.without(EntryFlags::WRITABLE)));
        }
        if !entry.contains(UNCOUNTED) {
            // One more reference, for the new entry.
            // SAFETY: nobody removes an entry of a shared table.
            let _ = ManuallyDrop::new(unsafe { (*borrow_frame(entry)).clone() });
        }
        target.store(entry.without(EntryFlags::WRITABLE));
    }
}

/// How many spaces link to a leaf table.
pub(super) fn links(leaf: &Leaf<'_>) -> u64 {
    if leaf.is_pooled() {
        return AddressSpace::pooled_mappings(leaf);
    }
    if !leaf.is_shared() {
        return 1;
    }
    // SAFETY: the link holds a reference to its table.
    u64::from(ManuallyDrop::new(unsafe { Frame::from_physical(leaf.frame()) }).references().max(1))
}

/// Gives up a link's reference to a leaf table. The last one drops the entries' references too.
///
/// # Safety
/// The reference is given up once, and no processor can reach the table through the link any more.
pub(super) unsafe fn release_table(table: PhysAddr) {
    // SAFETY: as the caller says.
    let Some(last) = unsafe { Frame::from_physical(table) }.give_up() else { return };
    #[cfg(test)]
    window::pass(Window::TableDead);
    // SAFETY: nobody else knows the table any more.
    for cell in unsafe { leaf_entries(last.physical()) } {
        let entry = cell.load();
        if !entry.is_empty() && !entry.contains(UNCOUNTED) {
            cell.store(Entry::EMPTY);
            // SAFETY: the entry's reference, which is gone from the table.
            drop(unsafe { Frame::from_physical(entry.physical()) });
        }
    }
}
