//! Frames on their way out: kept until no processor has a translation to them.
//!
//! Entries are cleared first, the frames collected here; when the batch is full or the operation ends, the translations
//! of the range are forgotten once and the frames freed. A batch is a few words on the stack, and one frame borrowed as
//! an array when those don't suffice; without memory for that the small batch just fills more often.

use super::shared_tables;
use super::tables::Tables;
use crate::frame::{Frame, Purpose, Urgency, Zeroed};
use crate::huge_pool::PooledPage;
use arrayvec::ArrayVec;
use core::ops::Range;
use machine::address::{PAGE_SIZE, PhysAddr};
use machine::mmu;
use machine::page_table::TableFrames;

const FEW: usize = 12;
const MANY: usize = PAGE_SIZE / size_of::<u64>();

/// In the address of a frame that is kept: it is a leaf table that other spaces link to.
const SHARED_TABLE: u64 = 1;

/// The same: it is a link's reference to the page of the pool that begins there.
const POOLED: u64 = 2;

/// See the theory of this file.
pub(super) struct Gather<'a> {
    tables: &'a Tables,
    /// What must be forgotten; empty when start is not below end.
    start: u64,
    end: u64,
    freed_tables: bool,
    /// Something has happened since the last flush.
    pending: bool,
    /// Nobody has the tables loaded: nothing must be forgotten, nothing need be kept.
    unloaded: bool,
    few: ArrayVec<u64, FEW>,
    many: Option<Frame>,
    many_used: usize,
    many_failed: bool,
}

impl<'a> Gather<'a> {
    pub(super) fn new(tables: &'a Tables) -> Gather<'a> {
        Gather {
            tables,
            start: u64::MAX,
            end: 0,
            freed_tables: false,
            pending: false,
            unloaded: false,
            few: ArrayVec::new_const(),
            many: None,
            many_used: 0,
            many_failed: false,
        }
    }

    /// For tables that no processor has loaded.
    pub(super) fn for_unloaded(tables: &'a Tables) -> Gather<'a> {
        let mut gather = Gather::new(tables);
        gather.unloaded = true;
        gather
    }

    /// Whether entries may be changed without regard to hardware.
    pub(super) fn is_unloaded(&self) -> bool {
        self.unloaded
    }

    /// Entries and tables of this range may be given to the batch.
    #[inline]
    pub(super) fn cover(&mut self, range: Range<u64>) {
        self.start = self.start.min(range.start);
        self.end = self.end.max(range.end);
    }

    /// An entry without a reference was cleared.
    #[inline]
    pub(super) fn cleared(&mut self) {
        self.pending = true;
    }

    /// Takes over the reference of a cleared entry. The range it was in must be covered.
    ///
    /// # Safety
    /// The entry's reference is given once.
    #[inline]
    pub(super) unsafe fn release(&mut self, frame: PhysAddr) {
        self.pending = true;
        if self.unloaded {
            // SAFETY: the reference is the caller's gift, and no processor can reach the frame through the tables.
            drop(unsafe { Frame::from_physical(frame) });
        } else {
            self.keep(frame.as_u64());
        }
    }

    #[inline]
    fn keep(&mut self, word: u64) {
        if self.few.try_push(word).is_err() {
            self.keep_among_many(word);
        }
    }

    /// Takes over a link's reference to a leaf table that other spaces link to. The range must be covered.
    ///
    /// # Safety
    /// The table was taken out of the tree, and the reference is given once.
    pub(super) unsafe fn release_shared_table(&mut self, table: PhysAddr) {
        self.tables.table_left();
        if self.unloaded {
            // SAFETY: the reference is the caller's gift, and no processor can reach the table through this tree.
            unsafe { shared_tables::release_table(table) };
            return;
        }
        (self.pending, self.freed_tables) = (true, true);
        self.keep(table.as_u64() | SHARED_TABLE);
    }

    /// Takes over a link's reference to a page of the pool. The range must be covered.
    ///
    /// # Safety
    /// The link was taken out of the tree, and the reference is given once. Nobody has found the page's table by it and is not through with it.
    pub(super) unsafe fn release_pooled(&mut self, first: PhysAddr) {
        if self.unloaded {
            // SAFETY: the reference is the caller's gift.
            drop(unsafe { PooledPage::from_link(first) });
            return;
        }
        self.pending = true;
        self.keep(first.as_u64() | POOLED);
    }

    /// Takes over a table that was taken out of the tree. The range must be covered.
    ///
    /// # Safety
    /// The table is given once.
    pub(super) unsafe fn release_table(&mut self, table: PhysAddr) {
        if self.unloaded {
            self.tables.free(table);
            return;
        }
        self.freed_tables = true;
        self.tables.table_left();
        // SAFETY: a table's frame is a counted frame like any other.
        unsafe { self.release(table) };
    }

    #[inline(never)]
    fn keep_among_many(&mut self, word: u64) {
        if self.many.is_none() && !self.many_failed {
            self.many = Frame::allocate_urgent(Purpose::Kernel, Zeroed::No, Urgency::Emergency).ok();
            self.many_failed = self.many.is_none();
        }
        if self.many.is_none() || self.many_used == MANY {
            self.flush();
        }
        if let Some(many) = &self.many {
            many.write(self.many_used * size_of::<u64>(), &word.to_ne_bytes());
            self.many_used += 1;
        } else {
            self.few.push(word);
        }
    }

    /// Makes all processors forget, and frees what was kept.
    pub(super) fn flush(&mut self) {
        if !self.pending {
            return;
        }
        if self.start < self.end && !self.unloaded {
            self.tables.forget(self.start, self.end, self.freed_tables);
        }
        (self.pending, self.freed_tables) = (false, false);
        for word in self.few.drain(..) {
            // SAFETY: the reference was given to the batch, which gives it up here.
            unsafe { release_kept(word) };
        }
        if let Some(many) = &self.many {
            let kept = mmu::phys_to_virt(many.physical()).cast::<u64>();
            for slot in 0..self.many_used {
                // SAFETY: the frame is ours alone and holds `many_used` references given to the batch, each of which is
                // given up here.
                unsafe { release_kept(kept.add(slot).read()) };
            }
            self.many_used = 0;
        }
    }
}

/// Gives up what a word that was kept stands for.
///
/// # Safety
/// It is given up once, and no processor can reach it through the tables any more.
unsafe fn release_kept(word: u64) {
    let frame = PhysAddr::new(word & !(SHARED_TABLE | POOLED));
    // SAFETY: as the caller says.
    unsafe {
        if word & SHARED_TABLE != 0 {
            shared_tables::release_table(frame);
        } else if word & POOLED != 0 {
            drop(PooledPage::from_link(frame));
        } else {
            drop(Frame::from_physical(frame));
        }
    }
}

impl Drop for Gather<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}
