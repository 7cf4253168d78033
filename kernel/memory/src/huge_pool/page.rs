//! A page of the pool, and its way home.

use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering::{AcqRel, Relaxed};

use machine::address::{PAGE_SIZE, PhysAddr};
use machine::page_table::{ENTRIES, Entry, EntryFlags, leaf_entries};

use super::counts::POOL;
use super::{HUGE_PAGE_BYTES, POOL_PAYS};
use crate::OutOfMemory;
use crate::address_space::{PRIVATE, SHARED_MEMORY};
use crate::charge;
use crate::frame::huge::{HUGE_FRAMES, HugeFrame, prepare_tables_behind, set_table_behind, table_behind};
use crate::frame::metadata::{FOUND_BY_LOOKUP, Metadata};
use crate::frame::number::FrameNumber;
use crate::frame::table::metadata;
use crate::frame::{Frame, Purpose, Zeroed, allocate, contents};

/// Whom a page is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A private mapping, and those that come of it by forks.
    Private,
    /// A file.
    Shared,
}

/// The free pages of the pool: a list through the metadata of their first frames.
pub(super) struct Home {
    first: u32,
}

impl Home {
    pub(super) const fn new() -> Self {
        Self { first: 0 }
    }

    pub(super) fn put(&mut self, page: FrameNumber) {
        metadata(page).next.store(self.first, Relaxed);
        self.first = page.index();
    }

    pub(super) fn get(&mut self) -> Option<FrameNumber> {
        // Frame 0 is not managed.
        let page = Some(self.first).filter(|&first| first != 0).map(FrameNumber::new)?;
        self.first = metadata(page).next.load(Relaxed);
        Some(page)
    }
}

/// A reference to a page in use. None only while the last one is dropped.
pub(crate) struct PooledPage(Option<Frame>);

impl PooledPage {
    /// A free page begins to be used. Its bytes are whatever they were.
    pub(super) fn begin(page: FrameNumber, kind: Kind) -> Self {
        let software = if kind == Kind::Private { PRIVATE } else { SHARED_MEMORY };
        let everything = EntryFlags::PRESENT | EntryFlags::WRITABLE | EntryFlags::USER;
        let flags = everything | EntryFlags::ACCESSED | EntryFlags::DIRTY | software;
        let table = table_behind(page.physical());
        metadata(page).marks.store(HUGE_FRAMES.into(), Relaxed);
        for frame in frames(page) {
            metadata(frame).begin_references(Purpose::HugePage);
        }
        // SAFETY: the table is the page's own, and nobody else knows either.
        let cells = unsafe { leaf_entries(table) };
        for (number, cell) in cells.iter().enumerate() {
            let frame = page.physical().as_u64() + (number * PAGE_SIZE) as u64;
            cell.store(Entry::new(PhysAddr::new(frame), flags));
        }
        // SAFETY: the pool held the only reference to the table, and gives it up here.
        Self(Some(unsafe { Frame::from_physical(table) }))
    }

    fn table(&self) -> &Frame {
        self.0.as_ref().expect("it is there until the drop")
    }

    fn entry(&self, number: usize) -> Entry {
        // SAFETY: the frame is the page's table as long as there is a reference.
        let cells = unsafe { leaf_entries(self.table().physical()) };
        cells[number].load()
    }

    /// The address of the first byte.
    pub(crate) fn physical(&self) -> PhysAddr {
        self.entry(0).physical()
    }

    /// Whom it is for.
    pub(crate) fn kind(&self) -> Kind {
        if self.entry(0).contains(PRIVATE) { Kind::Private } else { Kind::Shared }
    }

    /// References to the page: links that map it, and the file's.
    pub(crate) fn references(&self) -> u32 {
        self.table().references()
    }

    /// A reference to one of its frames.
    pub(crate) fn frame(&self, number: usize) -> Frame {
        let physical = self.entry(number).physical();
        // SAFETY: the page is in use, so its table holds a reference to each frame, and the one that is added is the result's.
        unsafe {
            Frame::share_physical(physical);
            Frame::from_physical(physical)
        }
    }

    fn first(&self) -> FrameNumber {
        FrameNumber::of_allocated(self.physical())
    }

    /// Fills it with zeros.
    pub(crate) fn zero(&self) {
        frames(self.first()).for_each(contents::zero);
    }

    /// Fills it with another page's bytes.
    pub(crate) fn copy_from(&self, other: &Self) {
        for (to, from) in frames(self.first()).zip(frames(other.first())) {
            contents::copy(to, from);
        }
    }

    /// Makes the reference that of a link which maps the page; [`PooledPage::from_link`] takes it back.
    pub(crate) fn into_link(mut self) -> PhysAddr {
        let first = self.physical();
        let _ = self.0.take().map(Frame::into_physical);
        first
    }

    /// The reference of a link that maps the page which begins at an address.
    ///
    /// # Safety
    /// The address came from [`PooledPage::into_link`], and each reference is taken back once.
    pub(crate) unsafe fn from_link(first: PhysAddr) -> Self {
        // SAFETY: as the caller says: the link held a reference to the page's table.
        Self(Some(unsafe { Frame::from_physical(table_behind(first)) }))
    }
}

impl PooledPage {
    /// The same while the link keeps its reference.
    ///
    /// # Safety
    /// The address came from [`PooledPage::into_link`], and the link stays as long as the result is used.
    pub(crate) unsafe fn borrow(first: PhysAddr) -> ManuallyDrop<Self> {
        // SAFETY: the reference is not dropped here.
        ManuallyDrop::new(unsafe { Self::from_link(first) })
    }
}

impl Clone for PooledPage {
    fn clone(&self) -> Self {
        Self(Some(self.table().clone()))
    }
}

impl Drop for PooledPage {
    fn drop(&mut self) {
        let Some(table) = self.0.take().and_then(Frame::give_up) else { return };
        // SAFETY: this was the last reference to the page, so nobody else knows its table.
        let page = FrameNumber::of_allocated(unsafe { leaf_entries(table.physical()) }[0].load().physical());
        // The pool's again, which finds it by the first frame, before that can be home.
        let _ = table.into_physical();
        frames(page).for_each(allocate::release);
    }
}

/// A frame without references is one of the pool's: it is home, and with the last one its page. False if it is nobody's but its account's.
#[cold]
#[inline(never)]
pub(crate) fn came_home(frame: FrameNumber, known: &Metadata) -> bool {
    if known.account() != POOL_PAYS {
        charge::uncharge(known);
        return false;
    }
    let page = frame.aligned_down(crate::frame::huge::HUGE_ORDER);
    // AcqRel: whoever takes the page next sees what the last users of all frames have done.
    if metadata(page).marks.fetch_sub(1, AcqRel) == 1 {
        let given_up = POOL.lock().come_home(page);
        if given_up {
            give_up(page);
        }
    }
    true
}

/// Takes a page, with a table, from free memory, as long as there is plenty. It is not in use.
pub(super) fn bring() -> Result<FrameNumber, OutOfMemory> {
    prepare_tables_behind();
    let leaves_enough = {
        let free = crate::frame::pool::lock();
        free.free() >= free.marks().high + u64::from(HUGE_FRAMES)
    };
    if !leaves_enough {
        return Err(OutOfMemory);
    }
    let page = HugeFrame::allocate(Purpose::HugePage)?;
    // The pool is everybody's.
    let payer = charge::pay_with(None);
    let table = Frame::allocate(Purpose::PageTable, Zeroed::No);
    charge::pay_with(payer);
    let first = page.physical();
    set_table_behind(first, table?.into_physical());
    page.give_away();
    let first = FrameNumber::of_allocated(first);
    for frame in frames(first) {
        metadata(frame).set_account(POOL_PAYS);
        metadata(frame).references.store(FOUND_BY_LOOKUP, Relaxed);
    }
    Ok(first)
}

/// Gives a page back to free memory that is not in use, and that the pool does not count any more.
pub(super) fn give_up(page: FrameNumber) {
    // SAFETY: the page is not in use, so its table is the pool's alone.
    drop(unsafe { Frame::from_physical(table_behind(page.physical())) });
    frames(page).for_each(|frame| allocate::free(frame, Purpose::HugePage));
}

fn frames(page: FrameNumber) -> impl Iterator<Item = FrameNumber> {
    (0..HUGE_FRAMES).map(move |index| page.add(index))
}

const _: () = assert!(ENTRIES as u64 * PAGE_SIZE as u64 == HUGE_PAGE_BYTES);

impl super::counts::Pool {
    /// A page is not in use any more. Returns whether it is to be given up.
    fn come_home(&mut self, page: FrameNumber) -> bool {
        let is_surplus = self.counts().surplus > 0;
        if is_surplus {
            self.counts().surplus -= 1;
            self.counts().total -= 1;
        } else {
            self.home.put(page);
            self.counts().free += 1;
        }
        self.check();
        is_surplus
    }

    /// A page for whoever was promised one, or for who was not. None: there is none.
    pub(super) fn take(&mut self, promised: bool) -> Option<FrameNumber> {
        let counts = self.counts();
        if promised {
            debug_assert!(counts.promised > 0, "a promise is kept once");
            counts.promised -= 1;
        } else if counts.free == counts.promised {
            return None;
        }
        counts.free -= 1;
        let page = self.home.get();
        self.check();
        Some(page.expect("so many are free"))
    }
}
