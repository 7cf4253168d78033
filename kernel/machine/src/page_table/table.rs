//! One table of 512 entries, and where the frames of tables come from.

use super::entry::{Entry, EntryCell, EntryFlags};
use crate::address::PhysAddr;
use crate::mmu;

/// Entries of a table.
pub const ENTRIES: usize = 512;

/// Bytes of user memory that one leaf table maps.
pub const LEAF_TABLE_BYTES: u64 = 1 << 21;

/// Where tables get their frames.
pub trait TableFrames {
    /// A frame of zeros, or None when there is no memory.
    fn allocate_zeroed(&self) -> Option<PhysAddr>;
    /// Takes back a frame that [`TableFrames::allocate_zeroed`] gave and that no table refers to any more.
    fn free(&self, frame: PhysAddr);
}

/// What the processor finds at each level of the tree.
#[repr(C, align(4096))]
pub(super) struct Table(pub(super) [EntryCell; ENTRIES]);

/// Levels count down to the leaf tables at 0.
pub(super) const ROOT_LEVEL: u32 = 3;

/// Entries between tables grant everything; leaf entries restrict.
pub(super) const LINK: EntryFlags =
    EntryFlags::PRESENT.union(EntryFlags::WRITABLE).union(EntryFlags::USER).union(EntryFlags::ACCESSED);

/// In a link to a leaf table: the table's entries are not to be changed by way of it. Other trees link to the table too, or, where the link is
/// [`EntryFlags::LARGE`], the processor does not look at the table.
pub(super) const CLOSED: EntryFlags = EntryFlags::SOFTWARE_0;

/// A link to a leaf table that other trees link to: it does not let stores through.
pub(super) const SHARED_LINK: EntryFlags = LINK.difference(EntryFlags::WRITABLE).union(CLOSED);

/// What all links have in common that map a huge page in the place of a leaf table.
pub(super) const HUGE_LINK: EntryFlags =
    CLOSED.union(EntryFlags::LARGE).union(EntryFlags::ACCESSED).union(EntryFlags::DIRTY);

/// In a link that maps a huge page: the page is one of those that are counted as a whole. Its table is the page's own, whoever maps it, and allows everything: what an
/// access may do the link says alone. Such a link may be hidden, as a leaf entry may: not present, and keeping its page.
pub(super) const POOLED: EntryFlags = EntryFlags::SOFTWARE_1;

/// Which entry of a table at this level covers the address.
#[inline(always)]
pub(super) const fn index(address: u64, level: u32) -> usize {
    ((address >> (12 + 9 * level)) & 511) as usize
}

/// Bytes that one entry of a table at this level covers.
#[inline(always)]
pub(super) const fn span(level: u32) -> u64 {
    1 << (12 + 9 * level)
}

impl Table {
    /// The table in the frame at this address.
    ///
    /// # Safety
    /// The frame is a page table that stays one for `'a`.
    #[inline(always)]
    pub(super) unsafe fn at<'a>(frame: PhysAddr) -> &'a Table {
        // SAFETY: the direct map shows the frame for good; its words are only ever accessed as atomics, and the
        // caller keeps the frame a table.
        unsafe { &*mmu::phys_to_virt(frame).cast::<Table>() }
    }

    /// The table below this entry, if there is one.
    ///
    /// # Safety
    /// As [`Table::at`], for the table below.
    #[inline(always)]
    pub(super) unsafe fn child<'a>(&self, slot: usize) -> Option<&'a Table> {
        let entry = self.0[slot].load();
        if !entry.is_present() {
            return None;
        }
        debug_assert!(!entry.contains(EntryFlags::LARGE), "huge pages lie in the place of leaf tables only");
        // SAFETY: a present entry above the directories' names a table; the caller keeps it.
        Some(unsafe { Table::at(entry.physical()) })
    }

    /// The table below this entry, made now if there is none. None: no memory.
    ///
    /// # Safety
    /// As [`Table::at`], for the table below.
    #[inline]
    pub(super) unsafe fn child_or_create<'a>(
        &self,
        slot: usize,
        frames: &impl TableFrames,
    ) -> Option<&'a Table> {
        // SAFETY: as the caller's.
        if let Some(child) = unsafe { self.child(slot) } {
            return Some(child);
        }
        // SAFETY: as the caller's.
        unsafe { self.create_child(slot, frames) }
    }

    /// # Safety
    /// As [`Table::child_or_create`].
    #[inline(never)]
    pub(super) unsafe fn create_child<'a>(
        &self,
        slot: usize,
        frames: &impl TableFrames,
    ) -> Option<&'a Table> {
        let frame = frames.allocate_zeroed()?;
        match self.0[slot].compare_exchange(Entry::EMPTY, Entry::new(frame, LINK)) {
            // SAFETY: the frame was just linked as a table and the caller keeps it.
            Ok(()) => Some(unsafe { Table::at(frame) }),
            Err(winner) => {
                frames.free(frame);
                // SAFETY: somebody else linked a table first, which the caller keeps as well.
                Some(unsafe { Table::at(winner.physical()) })
            }
        }
    }
}
