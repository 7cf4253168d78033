//! The tree: finding entries, walking ranges, taking tables away.

use super::entry::{Entry, EntryCell, EntryFlags};
use super::table::{ENTRIES, LEAF_TABLE_BYTES, ROOT_LEVEL, Table, TableFrames, index, span};
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

    /// The leaf entry of an address, if there is a table for it.
    ///
    /// # Safety
    /// While the result is used, nobody frees the tables that cover the address.
    #[inline]
    pub unsafe fn find(&self, address: u64) -> Option<&EntryCell> {
        // SAFETY: the root lives as long as the tree; the caller keeps the tables below.
        unsafe {
            let leaf = Table::at(self.root)
                .child(index(address, 3))?
                .child(index(address, 2))?
                .child(index(address, 1))?;
            Some(&leaf.0[index(address, 0)])
        }
    }

    /// The leaf entry of an address, making tables as needed. None: no memory.
    ///
    /// # Safety
    /// As [`PageTable::find`].
    #[inline]
    pub unsafe fn find_or_create(&self, address: u64, frames: &impl TableFrames) -> Option<&EntryCell> {
        // SAFETY: as the caller's.
        unsafe { Some(&self.leaf_or_create(address, frames)?[index(address, 0)]) }
    }

    /// All entries of the leaf table that covers an address, making tables as needed. None: no memory.
    ///
    /// # Safety
    /// As [`PageTable::find`].
    #[inline]
    pub unsafe fn leaf_or_create(
        &self,
        address: u64,
        frames: &impl TableFrames,
    ) -> Option<&[EntryCell; ENTRIES]> {
        debug_assert!(index(address, ROOT_LEVEL) < USER_ENTRIES, "only the user half is built here");
        // SAFETY: the root lives as long as the tree; the caller keeps the tables below.
        unsafe {
            let leaf = Table::at(self.root)
                .child_or_create(index(address, 3), frames)?
                .child_or_create(index(address, 2), frames)?
                .child_or_create(index(address, 1), frames)?;
            Some(&leaf.0)
        }
    }

    /// Calls `visit` with every piece of a leaf table that lies in the page-aligned range, in ascending order: the
    /// address of the first entry, and the entries. The cost follows the tables that exist.
    ///
    /// # Safety
    /// Nobody frees tables that cover the range meanwhile.
    #[inline]
    pub unsafe fn for_each_leaf<B>(
        &self,
        range: Range<u64>,
        mut visit: impl FnMut(u64, &[EntryCell]) -> ControlFlow<B>,
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
                    if let Some(leaf) = directory.child(index(address, 1)) {
                        let first = index(address, 0);
                        let count = ((next - address) >> PAGE_SHIFT) as usize;
                        visit(address, &leaf.0[first..first + count])?;
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
                debug_assert!(level > 1 || leaf_is_empty(entry));
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
    let cell = unsafe { tree.find(address) }?;
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
