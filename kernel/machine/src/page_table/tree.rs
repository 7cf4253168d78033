//! The tree: finding entries, walking ranges, taking tables away.

use super::entry::{Entry, EntryCell, EntryFlags};
use super::leaf::{Leaf, NoLeaf, Place, table_of};
use super::table::{
    CLOSED, ENTRIES, HUGE_LINK, LEAF_TABLE_BYTES, ROOT_LEVEL, SHARED_LINK, Table, TableFrames, index, span,
};
use crate::address::{PAGE_SHIFT, PAGE_SIZE, PhysAddr};
use crate::mmu;
use core::ops::{ControlFlow, Range};

/// Entries of the root that belong to user space.
const USER_ENTRIES: usize = ENTRIES / 2;

/// A page-table tree, named by its root. Dropping it frees nothing: call [`PageTable::destroy`].
pub struct PageTable {
    root: PhysAddr,
}

impl PageTable {
    /// An empty user half under a fresh root; the kernel's half is shared. None: no memory.
    pub fn new(frames: &impl TableFrames) -> Option<PageTable> {
        let root = frames.allocate_zeroed()?;
        let kernel = mmu::kernel_root();
        if kernel != PhysAddr::default() {
            let (from, to) = (mmu::phys_to_virt(kernel), mmu::phys_to_virt(root));
            // SAFETY: the kernel's root lives for ever and its upper half does not change any more; the new frame is ours
            // alone.
            unsafe { to.add(PAGE_SIZE / 2).copy_from_nonoverlapping(from.add(PAGE_SIZE / 2), PAGE_SIZE / 2) };
        }
        Some(PageTable { root })
    }

    /// The tree under this root.
    ///
    /// # Safety
    /// The frame is the root of a tree that outlives the value.
    pub unsafe fn from_root(root: PhysAddr) -> PageTable {
        PageTable { root }
    }

    /// Where the root is, for the processor.
    pub fn root(&self) -> PhysAddr {
        self.root
    }

    /// The leaf table that covers an address, if there is one; also one behind a huge page.
    ///
    /// # Safety
    /// While the result is used, nobody frees the tables that cover the address, nor the huge page.
    #[inline]
    pub unsafe fn leaf(&self, address: u64) -> Option<Leaf<'_>> {
        // SAFETY: as the caller's.
        let link = unsafe { self.link(address) }?;
        let named = link.load();
        if !named.leads_on() {
            return None;
        }
        // SAFETY: such a link names a leaf table, or a huge page that has one behind it; the caller keeps both.
        let cells = &unsafe { Table::at(table_of(named)) }.0;
        Some(Leaf { base: address & !(LEAF_TABLE_BYTES - 1), cells, link })
    }

    /// The place for the link to the leaf table of an address, if there is a directory for it.
    ///
    /// # Safety
    /// As [`PageTable::leaf`].
    #[inline(always)]
    unsafe fn link(&self, address: u64) -> Option<&EntryCell> {
        // SAFETY: the root lives as long as the tree; the caller keeps the tables below.
        let directory = unsafe { Table::at(self.root).child(index(address, 3))?.child(index(address, 2)) };
        Some(&directory?.0[index(address, 1)])
    }

    /// The leaf entry of an address, if there is a table for it, which must not be closed.
    ///
    /// # Safety
    /// As [`PageTable::leaf`].
    #[inline]
    pub unsafe fn find(&self, address: u64) -> Option<&EntryCell> {
        // SAFETY: as the caller's.
        let leaf = unsafe { self.leaf(address) }?;
        debug_assert!(!leaf.is_closed(), "the entries of a closed table are not to be changed");
        Some(&leaf.cells[index(address, 0)])
    }

    /// What the leaf entry of an address and the link to its table allow together; empty where there is no table.
    ///
    /// # Safety
    /// As [`PageTable::leaf`].
    #[inline(always)]
    pub unsafe fn entry(&self, address: u64) -> Entry {
        // SAFETY: as the caller's.
        let Some(leaf) = (unsafe { self.leaf(address) }) else { return Entry::EMPTY };
        let entry = leaf.cells[index(address, 0)].load();
        let link = leaf.link();
        if link.contains(CLOSED) { limited(entry, link) } else { entry }
    }

    /// The place for the link to the leaf table of an address, making the tables above as needed. None: no memory.
    ///
    /// # Safety
    /// As [`PageTable::leaf`].
    pub unsafe fn place_or_create(&self, address: u64, frames: &impl TableFrames) -> Option<Place<'_>> {
        // SAFETY: as the caller's.
        let directory = unsafe { self.directory_or_create(address, frames) }?;
        Some(Place { base: address & !(LEAF_TABLE_BYTES - 1), link: &directory.0[index(address, 1)] })
    }

    /// Calls `visit` with every place in a range that is not empty: for ranges where only pooled huge pages are mapped.
    ///
    /// # Safety
    /// Nobody frees tables that cover the range meanwhile.
    pub unsafe fn for_each_place(&self, range: Range<u64>, visit: &mut dyn FnMut(Place<'_>)) {
        let mut base = range.start & !(LEAF_TABLE_BYTES - 1);
        while base < range.end {
            // SAFETY: as the caller's.
            match unsafe { self.link(base) } {
                None => base = next_boundary(base, 2),
                Some(link) => {
                    if !link.load().is_empty() {
                        visit(Place { base, link });
                    }
                    base += LEAF_TABLE_BYTES;
                }
            }
        }
    }

    /// All entries of the leaf table that covers an address.
    ///
    /// # Errors
    /// There is no table, or none whose entries may be changed.
    ///
    /// # Safety
    /// As [`PageTable::leaf`].
    #[inline]
    pub unsafe fn open_leaf(&self, address: u64) -> Result<&[EntryCell; ENTRIES], NoLeaf> {
        // SAFETY: as the caller's.
        let link = unsafe { self.link(address) }.ok_or(NoLeaf::Absent)?.load();
        if link.contains(CLOSED) {
            return Err(closed(link));
        }
        if !link.is_present() {
            return Err(NoLeaf::Absent);
        }
        // SAFETY: a present link that is not closed names a leaf table; the caller keeps it.
        Ok(&unsafe { Table::at(link.physical()) }.0)
    }

    /// All entries of the leaf table that covers an address, making tables as needed.
    ///
    /// # Errors
    /// No memory, or the table is closed.
    ///
    /// # Safety
    /// As [`PageTable::leaf`].
    #[inline]
    pub unsafe fn leaf_or_create(
        &self,
        address: u64,
        frames: &impl TableFrames,
    ) -> Result<&[EntryCell; ENTRIES], NoLeaf> {
        // SAFETY: as the caller's.
        unsafe {
            let directory = self.directory_or_create(address, frames).ok_or(NoLeaf::OutOfMemory)?;
            let slot = index(address, 1);
            let link = directory.0[slot].load();
            if link.contains(CLOSED) {
                return Err(closed(link));
            }
            if link.is_present() {
                return Ok(&Table::at(link.physical()).0);
            }
            Ok(&directory.create_child(slot, frames).ok_or(NoLeaf::OutOfMemory)?.0)
        }
    }

    /// Maps the huge page that begins at `first`, making the tables above as needed; its leaf table is known to be behind it. False if there
    /// is something at the address already. None: no memory.
    ///
    /// # Safety
    /// As [`PageTable::leaf`], and nobody but who calls this closes leaf tables or maps huge pages meanwhile.
    pub unsafe fn link_huge(
        &self,
        address: u64,
        first: PhysAddr,
        permission: EntryFlags,
        frames: &impl TableFrames,
    ) -> Option<bool> {
        debug_assert!(address.is_multiple_of(LEAF_TABLE_BYTES));
        debug_assert!(first.as_u64().is_multiple_of(LEAF_TABLE_BYTES));
        // SAFETY: as the caller's.
        let directory = unsafe { self.directory_or_create(address, frames) }?;
        let link = Entry::new(first, permission | HUGE_LINK);
        Some(directory.0[index(address, 1)].compare_exchange(Entry::EMPTY, link).is_ok())
    }

    /// Links a leaf table of another tree, making the tables above as needed. None: no memory.
    ///
    /// # Safety
    /// As [`PageTable::leaf`]; there is no table at the address, and `table` is one that [`Leaf::share`] has marked.
    pub unsafe fn link_shared(&self, address: u64, table: PhysAddr, frames: &impl TableFrames) -> Option<()> {
        // SAFETY: as the caller's.
        let directory = unsafe { self.directory_or_create(address, frames) }?;
        let former = directory.0[index(address, 1)].swap(Entry::new(table, SHARED_LINK));
        debug_assert!(former.is_empty(), "a table was linked there");
        Some(())
    }

    /// # Safety
    /// As [`PageTable::leaf`].
    #[inline]
    unsafe fn directory_or_create(&self, address: u64, frames: &impl TableFrames) -> Option<&Table> {
        debug_assert!(index(address, ROOT_LEVEL) < USER_ENTRIES, "only the user half is built here");
        // SAFETY: the root lives as long as the tree; the caller keeps the tables below.
        unsafe {
            Table::at(self.root)
                .child_or_create(index(address, 3), frames)?
                .child_or_create(index(address, 2), frames)
        }
    }

    /// Calls `visit` with every piece of a leaf table that lies in the page-aligned range, in ascending order. The cost
    /// follows the tables that exist.
    ///
    /// # Safety
    /// Nobody frees tables that cover the range meanwhile.
    #[inline]
    pub unsafe fn for_each_leaf<B>(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(Leaf<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let mut address = range.start;
        // SAFETY: the root lives as long as the tree; the caller keeps the tables below.
        unsafe {
            let root = Table::at(self.root);
            while address < range.end {
                let Some(pointers) = root.child(index(address, 3)) else {
                    address = next_boundary(address, 3);
                    continue;
                };
                let Some(directory) = pointers.child(index(address, 2)) else {
                    address = next_boundary(address, 2);
                    continue;
                };
                let stop = range.end.min(next_boundary(address, 2));
                while address < stop {
                    let next = stop.min(next_boundary(address, 1));
                    let link = &directory.0[index(address, 1)];
                    let named = link.load();
                    if named.leads_on() {
                        let first = index(address, 0);
                        let count = ((next - address) >> PAGE_SHIFT) as usize;
                        let cells = &Table::at(table_of(named)).0[first..first + count];
                        visit(Leaf { base: address, cells, link })?;
                    }
                    address = next;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Takes the tables away that cover parts of `range` and lie entirely between `floor` and `ceiling`, and hands
    /// each to `release`. There are no other tables between the two: a table is made for an address in use, and goes
    /// when the last range that it serves does. So only `range` is searched. Their leaf entries must be empty already. A processor may still hold a translation cache
    /// entry for a table: the caller frees the frames only after a flush.
    ///
    /// # Safety
    /// Nobody walks or maps addresses between `floor` and `ceiling` meanwhile.
    pub unsafe fn free_tables(
        &self,
        range: Range<u64>,
        floor: u64,
        ceiling: u64,
        release: &mut impl FnMut(PhysAddr),
    ) {
        debug_assert!(floor <= range.start && range.end <= ceiling);
        // SAFETY: the root lives as long as the tree; the caller keeps others away from what is freed.
        unsafe { free_below(Table::at(self.root), ROOT_LEVEL, range, floor, ceiling, release) };
    }

    /// Frees the root. All other tables must be gone.
    ///
    /// # Safety
    /// No processor uses the tree any more.
    pub unsafe fn destroy(self, frames: &impl TableFrames) {
        // SAFETY: the root is still ours.
        let root = unsafe { Table::at(self.root) };
        debug_assert!(root.0[..USER_ENTRIES].iter().all(|entry| entry.load().is_empty()));
        frames.free(self.root);
    }
}

/// An entry of a closed table, as the link lets it through.
fn limited(entry: Entry, link: Entry) -> Entry {
    let withheld = EntryFlags::PRESENT | EntryFlags::WRITABLE | EntryFlags::USER;
    entry.without(withheld - link.flags()).with(link.flags() & EntryFlags::NO_EXECUTE)
}

/// Why a closed link has no table to change.
#[cold]
fn closed(link: Entry) -> NoLeaf {
    if link.contains(EntryFlags::LARGE) { NoLeaf::Huge(link) } else { NoLeaf::Shared }
}

/// The first address beyond the entry at this level that covers `address`.
#[inline(always)]
fn next_boundary(address: u64, level: u32) -> u64 {
    (address & !(span(level) - 1)) + span(level)
}

/// # Safety
/// As [`PageTable::free_tables`]; `table` is a table of `level` in the tree.
unsafe fn free_below(
    table: &Table,
    level: u32,
    range: Range<u64>,
    floor: u64,
    ceiling: u64,
    release: &mut impl FnMut(PhysAddr),
) {
    let mut address = range.start;
    while address < range.end {
        let next = next_boundary(address, level);
        let slot = &table.0[index(address, level)];
        let entry = slot.load();
        if entry.is_present() {
            let base = next - span(level);
            let whole = base >= floor && next <= ceiling;
            let below = address..range.end.min(next);
            if level > 1 {
                // SAFETY: a present entry above the directories' leaves names a table.
                unsafe { free_below(Table::at(entry.physical()), level - 1, below, floor, ceiling, release) };
            }
            if whole {
                debug_assert!(level > 1 || !entry.contains(CLOSED) && leaf_is_empty(entry));
                slot.store(Entry::EMPTY);
                release(entry.physical());
            }
        }
        address = next;
    }
}

fn leaf_is_empty(link: Entry) -> bool {
    // SAFETY: called for an entry that names a leaf table that is still linked.
    unsafe { Table::at(link.physical()) }.0.iter().all(|entry| entry.load().is_empty())
}

/// Where an access by user code at `address` would go in the tree under `root`, None if it would fault: the
/// processor's walk in software, for the hosted back end.
///
/// # Safety
/// `root` is the root of a tree, and nobody frees the tables that cover the address meanwhile.
pub unsafe fn translate(root: PhysAddr, address: u64, write: bool) -> Option<PhysAddr> {
    // SAFETY: as the caller's.
    let tree = unsafe { PageTable::from_root(root) };
    // SAFETY: as the caller's.
    let link = unsafe { tree.link(address) }?.load();
    if !link.is_present() || write && !link.contains(EntryFlags::WRITABLE) {
        return None;
    }
    if link.contains(EntryFlags::LARGE) {
        return link.physical().checked_add(address & (LEAF_TABLE_BYTES - 1));
    }
    // SAFETY: a present link names a leaf table or maps a huge page; the caller keeps the table.
    let cell = &unsafe { Table::at(link.physical()) }.0[index(address, 0)];
    let needed = EntryFlags::PRESENT | EntryFlags::USER;
    let needed = if write { needed | EntryFlags::WRITABLE } else { needed };
    let used = if write { EntryFlags::ACCESSED | EntryFlags::DIRTY } else { EntryFlags::ACCESSED };
    let entry = cell.update(|entry| entry.contains(needed).then(|| entry.with(used)))?;
    entry.physical().checked_add(address & (PAGE_SIZE as u64 - 1))
}

const _: () = assert!(span(1) == LEAF_TABLE_BYTES && size_of::<Table>() == PAGE_SIZE);

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
