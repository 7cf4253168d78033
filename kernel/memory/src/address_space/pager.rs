//! Ranges whose pages a program provides: page faults as messages, as memory sees them (specs/fiasco-mp.md, items 1 and 4).
//!
//! A region with a pager ([`MapBacking::Paged`]) has no pages of its own. An access to one that nobody has provided ends in
//! [`FaultError::Pager`](machine::fault::FaultError::Pager); the layer above, which knows what the pager's number means, asks it and lets the program try again. So the
//! common path of a fault is what it was: this is one more thing that can stand behind a region.
//!
//! The pager provides pages out of its own address space ([`AddressSpace::provide`]), at any time, in ranges that name it as their pager and nowhere else:
//!
//! | the provider's page | mapped | granted |
//! |---|---|---|
//! | shared memory (of a file in memory: for loads only) | both have it | refused: the memory's other users would keep it |
//! | private anonymous memory | refused: the next fork would part the two | moves |
//! | of a range with a pager | both have it | moves |
//!
//! An entry in such a range counts as shared memory, holds its reference to the frame like any other, and has two properties more:
//! [`STORABLE`], because a page may be provided for loads only, and its *depth*.
//!
//! # Derivation
//! L4 keeps a tree of the mappings of each frame. Here an entry's depth stands for it: 1 for what came out of memory, and one more than the provider's for
//! what was provided out of a range with a pager. [`AddressSpace::take_back`] removes a frame from all ranges with a pager where it lies deeper than at
//! the caller. Everything that came from the caller's page lies deeper, by whatever hands it went and whatever these have done with their own page since;
//! so what is taken back is gone. What others of the same depth have provided goes too: their clients ask again. Nothing is kept for it, and
//! unmapping and the end of a process know nothing of it. It looks at the entries of all ranges with a pager, as truncating a mapped
//! file looks at all address spaces.
//!
//! # Races
//! Whoever maps takes a frame in one place and puts it into another, and it may be taken back in between. [`TAKEN_BACK`] counts: it is odd while somebody takes
//! back. Who maps reads it before it takes the frame, and puts the frame into the other space only if it is the same still, with that space's `regions` held. Who takes back
//! has each space's `regions` for writing once before it looks at the entries. So either the one sees the count, or the other sees the entry, and nothing appears
//! any more when taking back has returned. Who grants holds [`TAKING_BACK`], because a page on its way is in neither place.
//!
//! Order of locks: [`TAKING_BACK`], then the provider's or a client's `change` (never two), then `regions`.

use super::entry::{self, PRIVATE, SHARED_MEMORY, STORABLE, UNCOUNTED};
use super::error::MapError;
use super::fault::{install_uncounted, slot_of};
use super::gather::Gather;
use super::registry;
use super::remote::MAX_TRIES;
use super::request::MapBacking;
use super::space::{AddressSpace, USER_TOP};
use super::unmap::{self, PageCounts, page_range};
use crate::fallible;
use crate::frame::{Frame, Purpose, Zeroed};
use crate::oom;
use crate::parking::SleepLock;
use crate::region::{Region, RegionFlags};
use alloc::vec::Vec;
use core::ops::{ControlFlow, Range};
use core::sync::atomic::{AtomicU64, Ordering};
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::Access;
use machine::page_table::{Entry, EntryFlags, NoLeaf};

/// Who provides the pages of a region: a number that means something to the layers above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PagerId(pub u64);

/// Pages to be provided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Provision {
    /// Where they are, in the provider's space.
    pub from: UserAddr,
    /// Where they shall be.
    pub to: UserAddr,
    /// How many bytes; whole pages.
    pub length: u64,
    /// For stores too.
    pub store: bool,
    /// The provider loses them.
    pub grant: bool,
}

/// What is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeBack {
    /// The pages.
    Pages,
    /// Only the permission to store.
    Stores,
}

const PAGE: u64 = PAGE_SIZE as u64;

/// Places that one page is in at most: a frame must not run out of references, and one page can be mapped all over a range.
const PLACES_MAX: u32 = 1 << 30;

/// Pages that are taken back in one walk over all ranges with a pager.
const BATCH_PAGES: u64 = 512;

/// What regions with a pager keep of the flags that a region had before.
const KEPT: RegionFlags = RegionFlags::PROTECTION
    .union(RegionFlags::MAY_READ)
    .union(RegionFlags::MAY_WRITE)
    .union(RegionFlags::MAY_EXECUTE)
    .union(RegionFlags::DONT_FORK)
    .union(RegionFlags::DONT_DUMP);

/// Held by whoever takes back, or grants.
static TAKING_BACK: SleepLock<()> = SleepLock::new(());

/// See the theory of this file. Written with [`TAKING_BACK`] held.
static TAKEN_BACK: AtomicU64 = AtomicU64::new(0);

/// A frame, and how it is to be shown.
struct Offer {
    frame: Frame,
    depth: u8,
    store: bool,
}

/// What an attempt to show a page came to.
enum Shown {
    Done,
    /// Another page was there. It must be forgotten before the new one may be stored to.
    Replaced(Frame),
    /// The range is being moved, or another page is there: not without the space's `change`.
    Turn,
    Memory,
    Refused(MapError),
    /// Somebody else changed the entry.
    Again,
    /// Pages are being taken back, or were.
    Overtaken,
}

impl AddressSpace {
    /// Gives a range a pager. What it shows is dropped; it must lie in one mapping of anonymous memory, or in a range that has a pager already.
    ///
    /// # Errors
    /// INVAL for a range that is empty or not aligned, or for other kinds of mappings; no memory also when nothing is mapped there.
    pub fn set_pager(&self, start: UserAddr, length: u64, pager: PagerId) -> Result<(), MapError> {
        let range = page_range(start, length)?;
        if range.is_empty() {
            return Err(MapError::InvalidArgument);
        }
        let mut layout = self.change.lock();
        let flags = {
            let regions = self.regions.read();
            let region = regions.find(range.start).ok_or(MapError::OutOfMemory)?;
            if region.end() < range.end || !can_have_pager(region) {
                return Err(MapError::InvalidArgument);
            }
            region.flags() & KEPT | RegionFlags::SHARED
        };
        let dropped = self.remove_range(&mut layout, range.clone())?;
        let backing = MapBacking::Paged(pager);
        let region = Region { start: range.start, end: range.end, page_offset: 0, backing, flags };
        let refused = self.regions.write().insert(region);
        drop(layout);
        drop(dropped);
        refused.map_err(|region| {
            drop(region);
            MapError::OutOfMemory
        })
    }

    /// The pager of an address.
    pub fn pager_of(&self, address: UserAddr) -> Option<PagerId> {
        match self.regions.read().find(address.as_u64())?.backing() {
            MapBacking::Paged(pager) => Some(*pager),
            _ => None,
        }
    }

    /// Provides pages of this space in a range of `target` whose pager is `pager`. Pages before one that fails have been provided.
    ///
    /// # Errors
    /// BADADDR where nothing is mapped, or the provider has no page itself; PERM where the pager is another one, or the page must not be given (see
    /// the theory of this file); no memory; BUSY if pages are taken back all the time.
    pub fn provide(
        &self,
        target: &AddressSpace,
        pager: PagerId,
        provision: &Provision,
    ) -> Result<(), MapError> {
        let from = page_range(provision.from, provision.length)?;
        let to = page_range(provision.to, provision.length)?;
        for (from, to) in from.step_by(PAGE_SIZE).zip(to.step_by(PAGE_SIZE)) {
            if provision.grant {
                self.grant_page(target, pager, from, to, provision.store)?;
            } else {
                self.map_page(target, pager, from, to, provision.store)?;
            }
        }
        Ok(())
    }

    fn map_page(
        &self,
        target: &AddressSpace,
        pager: PagerId,
        from: u64,
        to: u64,
        store: bool,
    ) -> Result<(), MapError> {
        for _ in 0..MAX_TRIES {
            let before = TAKEN_BACK.load(Ordering::SeqCst);
            if before & 1 != 0 {
                drop(TAKING_BACK.lock());
                continue;
            }
            let offer = self.lend(from, store)?;
            if target.show(pager, to, &offer, Some(before))? {
                return Ok(());
            }
        }
        Err(MapError::Busy)
    }

    /// A page to be mapped elsewhere, after faulting it in as need be.
    fn lend(&self, page: u64, store: bool) -> Result<Offer, MapError> {
        let access = if store { Access::Write } else { Access::Read };
        for _ in 0..MAX_TRIES {
            {
                let regions = self.regions.read();
                let region = regions.find(page).ok_or(MapError::BadAddress)?;
                let paged = match region.backing() {
                    MapBacking::Paged(_) => true,
                    // Stores to a file with a name or descriptor must end with its mappings: it may be sealed then.
                    MapBacking::File(mapping)
                        if !region.is_private()
                            && !mapping.cache().has_representative()
                            && !mapping.cache().is_huge()
                            && (!store || mapping.object().is_none()) =>
                    {
                        false
                    }
                    _ => return Err(MapError::NotPermitted),
                };
                if let Some(frame) = self.present_frame(&regions, page, access) {
                    let entry = self.entry_under_lock(page);
                    let depth = if paged { entry.number() + 1 } else { 1 };
                    if depth > EntryFlags::NUMBER_MAX || frame.references() > PLACES_MAX {
                        return Err(MapError::NotPermitted);
                    }
                    if entry.physical() == frame.physical() {
                        return Ok(Offer { frame, depth, store });
                    }
                    continue;
                }
            }
            self.fault(UserAddr::new(page), access)?;
        }
        Err(MapError::Busy)
    }

    fn grant_page(
        &self,
        target: &AddressSpace,
        pager: PagerId,
        from: u64,
        to: u64,
        store: bool,
    ) -> Result<(), MapError> {
        if core::ptr::eq(self, target) && from == to {
            return Err(MapError::InvalidArgument);
        }
        for _ in 0..MAX_TRIES {
            {
                let _still = TAKING_BACK.lock();
                let _layout = self.change.lock();
                self.own_tables(from..from + PAGE)?;
                if let Some(mut offer) = self.grantable(from)? {
                    offer.store &= store;
                    let shown = target.show(pager, to, &offer, None)?;
                    debug_assert!(shown, "nobody takes back meanwhile");
                    self.drop_pages(from..from + PAGE);
                    return Ok(());
                }
            }
            self.fault(UserAddr::new(from), Access::Write)?;
        }
        Err(MapError::Busy)
    }

    /// A page that can be given away as it is; `None` if it must be made present, and the space's alone, first. `change` is held.
    fn grantable(&self, page: u64) -> Result<Option<Offer>, MapError> {
        let regions = self.regions.read();
        let region = regions.find(page).ok_or(MapError::BadAddress)?;
        if region.flags().intersects(RegionFlags::LOCKED | RegionFlags::POOLED) {
            return Err(MapError::NotPermitted);
        }
        match region.backing() {
            MapBacking::Anonymous => {
                // Who may store to a private page is the only one to have it, and only what holds `change` makes that untrue.
                let frame = self.present_frame(&regions, page, Access::Write);
                let private = self.entry_under_lock(page).contains(PRIVATE);
                Ok(frame.filter(|_| private).map(|frame| Offer { frame, depth: 1, store: true }))
            }
            MapBacking::Paged(_) => {
                let frame = self.present_frame(&regions, page, Access::Read).ok_or(MapError::BadAddress)?;
                let entry = self.entry_under_lock(page);
                if entry.physical() != frame.physical() {
                    return Err(MapError::Busy);
                }
                Ok(Some(Offer { frame, depth: entry.number(), store: entry.contains(STORABLE) }))
            }
            MapBacking::File(_) | MapBacking::Special(_) => Err(MapError::NotPermitted),
        }
    }

    /// Clears the entries of a range. `change` is held, and the tables are the space's own.
    fn drop_pages(&self, range: Range<u64>) {
        let mut gather = Gather::new(&self.tables);
        let zapped = unmap::zap(&self.tables, range, &mut gather);
        self.subtract_resident(zapped);
    }

    /// Puts a page into a range whose pager is `pager`, in the place of what is there. Never takes rights away from a page that is there already. Returns
    /// false if something may have been taken back since the count was so.
    ///
    /// Who takes back must not overtake it between the removal of the former page and the end of its translations. Who grants has [`TAKING_BACK`] held;
    /// others hold `change` for that, which is waited for.
    fn show(
        &self,
        pager: PagerId,
        to: u64,
        offer: &Offer,
        while_count: Option<u64>,
    ) -> Result<bool, MapError> {
        let mut turn = None;
        for _ in 0..MAX_TRIES {
            let may_replace = while_count.is_none() || turn.is_some();
            match self.try_show(pager, to, offer, while_count, may_replace) {
                Shown::Done => return Ok(true),
                Shown::Overtaken => return Ok(false),
                Shown::Refused(error) => return Err(error),
                Shown::Replaced(former) => {
                    self.tables.forget(to, to + PAGE, false);
                    drop(former);
                }
                Shown::Turn => turn = Some(self.change.lock()),
                Shown::Memory => {
                    turn = None;
                    // Waits and reclaims; what it got is there for the next attempt.
                    drop(Frame::allocate(Purpose::Anonymous, Zeroed::No)?);
                }
                Shown::Again => {}
            }
        }
        Err(MapError::Busy)
    }

    fn try_show(
        &self,
        pager: PagerId,
        to: u64,
        offer: &Offer,
        while_count: Option<u64>,
        may_replace: bool,
    ) -> Shown {
        let regions = self.regions.read();
        if while_count.is_some_and(|count| TAKEN_BACK.load(Ordering::SeqCst) != count) {
            return Shown::Overtaken;
        }
        let Some(region) = regions.find(to) else { return Shown::Refused(MapError::BadAddress) };
        if !matches!(region.backing(), MapBacking::Paged(own) if *own == pager) {
            return Shown::Refused(MapError::NotPermitted);
        }
        if region.flags().contains(RegionFlags::RESERVED) {
            // Entries are about to arrive here (mremap), and would be put over this one.
            return if may_replace { Shown::Refused(MapError::Busy) } else { Shown::Turn };
        }
        // SAFETY: the region lock is held and the address lies in a region, so the tables stay.
        let leaf = match unsafe { self.tables.tree().leaf_or_create(to, &*self.tables) } {
            Ok(leaf) => leaf,
            Err(NoLeaf::OutOfMemory) => return Shown::Memory,
            // Closed tables lie in regions of private memory, so this is not one for long.
            Err(NoLeaf::Shared | NoLeaf::Huge(_) | NoLeaf::Absent) => return Shown::Again,
        };
        let cell = &leaf[slot_of(to)];
        let found = cell.load();
        let flags = entry::readable(region.flags())
            | SHARED_MEMORY
            | EntryFlags::ACCESSED
            | EntryFlags::of_number(offer.depth);
        let stores = match (offer.store, region.flags().contains(RegionFlags::WRITE)) {
            (false, _) => EntryFlags::empty(),
            (true, false) => STORABLE,
            (true, true) => STORABLE | EntryFlags::WRITABLE | EntryFlags::DIRTY,
        };
        if found.is_empty() {
            if !install_uncounted(cell, offer.frame.clone(), flags | stores) {
                return Shown::Again;
            }
            self.resident.shared_memory.fetch_add(1, Ordering::Relaxed);
            return Shown::Done;
        }
        if found.physical() == offer.frame.physical() {
            let bare = found.without(EntryFlags::SOFTWARE_NUMBER | EntryFlags::NO_EXECUTE);
            let shown = cell.compare_exchange(found, bare.with(flags | stores)).is_ok();
            return if shown { Shown::Done } else { Shown::Again };
        }
        if !may_replace {
            return Shown::Turn;
        }
        // For loads at first: nobody must read the former page once somebody may see the new one written.
        let new = offer.frame.clone();
        if cell.compare_exchange(found, Entry::new(new.physical(), flags)).is_err() {
            return Shown::Again;
        }
        let _ = new.into_physical();
        // SAFETY: the entry that held this reference is gone. The frame is dropped when its translations are forgotten.
        Shown::Replaced(unsafe { Frame::from_physical(found.physical()) })
    }

    /// Takes back what was provided out of the pages of a range, wherever it has got to; returns the number of places it was taken from.
    ///
    /// # Errors
    /// As of madvise(2) for the range; when there is no memory, some of the pages may have been taken back.
    pub fn take_back(&self, start: UserAddr, length: u64, what: TakeBack) -> Result<usize, MapError> {
        let range = page_range(start, length)?;
        // One place after the other: the whole range must be mapped before anything happens.
        self.each_piece(range.clone(), |_| Ok(()))?;
        let mut places = 0;
        let mut first = range.start;
        while first < range.end
            && let Some(part) = self.next_lendable(first..range.end)
        {
            // A range can be terabytes: others have their turns meanwhile, and who is to end does.
            if oom::caller_is_dying() {
                return Err(MapError::Busy);
            }
            let _one = TAKING_BACK.lock();
            let end = (part.start + BATCH_PAGES * PAGE).min(part.end);
            let frames = self.frames_of(part.start..end)?;
            first = end;
            if frames.is_empty() {
                continue;
            }
            TAKEN_BACK.fetch_add(1, Ordering::SeqCst);
            registry::for_each(|space| places += space.strip(&frames, what));
            TAKEN_BACK.fetch_add(1, Ordering::SeqCst);
        }
        Ok(places)
    }

    /// The next part of a range that pages may have been provided out of.
    fn next_lendable(&self, range: Range<u64>) -> Option<Range<u64>> {
        let regions = self.regions.read();
        let mut position = regions.locate(range.start);
        while let Some(current) = position {
            let region = regions.at(current);
            if region.start() >= range.end {
                return None;
            }
            if has_pager(region) || !region.is_private() {
                return Some(region.start().max(range.start)..region.end().min(range.end));
            }
            position = regions.next(current);
        }
        None
    }

    /// The frames of a range that may have been provided elsewhere, in order, with their depth here.
    fn frames_of(&self, range: Range<u64>) -> Result<Vec<(Frame, u8)>, MapError> {
        let mut frames = Vec::new();
        fallible::try_reserve(&mut frames, ((range.end - range.start) / PAGE) as usize)?;
        for page in range.step_by(PAGE_SIZE) {
            let regions = self.regions.read();
            let Some(region) = regions.find(page) else { continue };
            match region.backing() {
                MapBacking::Paged(_) => {
                    let entry = self.entry_under_lock(page);
                    let counted = !entry.is_empty() && !entry.contains(UNCOUNTED);
                    let frame = counted.then(|| Frame::try_from_physical(entry.physical())).flatten();
                    // The entry may lose its frame at any moment: then this one may be somebody else's by now.
                    let frame =
                        frame.filter(|frame| self.entry_under_lock(page).physical() == frame.physical());
                    frames.extend(frame.map(|frame| (frame, entry.number())));
                }
                MapBacking::File(mapping) if !region.is_private() => {
                    frames.extend(mapping.cache().cached(region.page_of(page)).map(|frame| (frame, 0)));
                }
                _ => {}
            }
        }
        sorting::sort_by_key(&mut frames, |(frame, depth)| (frame.physical().as_u64(), *depth));
        // Where a frame is there twice, the place that is less deep counts.
        frames.dedup_by_key(|(frame, _)| frame.physical());
        Ok(frames)
    }

    /// Takes frames, or the permission to store to them, out of this space's ranges with a pager where they lie deeper than given; says from how many places.
    fn strip(&self, frames: &[(Frame, u8)], what: TakeBack) -> usize {
        if !self.regions.read().iter().any(has_pager) {
            return 0;
        }
        let _layout = self.change.lock();
        // Whoever is about to put an entry here that has not seen the count is through with it.
        drop(self.regions.write());
        let mut gather = Gather::new(&self.tables);
        let mut counts = PageCounts::default();
        let (mut places, mut address) = (0, 0);
        while let Some(range) = self.next_paged(address) {
            address = range.end;
            gather.cover(range.clone());
            // SAFETY: `change` is held, so the tables stay.
            let _ = unsafe {
                self.tables.tree().for_each_leaf(range, |leaf| {
                    for cell in leaf.cells {
                        let Some(former) = cell.update(|entry| stripped(entry, frames, what)) else {
                            continue;
                        };
                        places += 1;
                        match what {
                            TakeBack::Pages => {
                                counts.count(former);
                                gather.release(former.physical());
                            }
                            TakeBack::Stores => gather.cleared(),
                        }
                    }
                    ControlFlow::<()>::Continue(())
                })
            };
        }
        drop(gather);
        self.subtract_resident(counts);
        places
    }

    /// The next range with a pager that ends beyond an address. `change` is held.
    fn next_paged(&self, address: u64) -> Option<Range<u64>> {
        debug_assert!(address <= USER_TOP);
        let regions = self.regions.read();
        let mut position = regions.locate(address);
        while let Some(current) = position {
            let region = regions.at(current);
            if has_pager(region) {
                return Some(region.start().max(address)..region.end());
            }
            position = regions.next(current);
        }
        None
    }
}

fn has_pager(region: &Region) -> bool {
    matches!(region.backing(), MapBacking::Paged(_))
}

/// Anonymous memory that is neither heap nor stack nor locked, or a range that has a pager.
fn can_have_pager(region: &Region) -> bool {
    let special = RegionFlags::GROWS_DOWN
        | RegionFlags::STACK
        | RegionFlags::HEAP
        | RegionFlags::LOCKED
        | RegionFlags::POOLED
        | RegionFlags::RESERVED;
    let kind = match region.backing() {
        MapBacking::Anonymous | MapBacking::Paged(_) => true,
        MapBacking::File(mapping) => !region.is_private() && mapping.object().is_none(),
        MapBacking::Special(_) => false,
    };
    kind && !region.flags().intersects(special)
}

/// What an entry becomes when frames are taken back; `None` if it stays as it is.
fn stripped(entry: Entry, frames: &[(Frame, u8)], what: TakeBack) -> Option<Entry> {
    if entry.is_empty() {
        return None;
    }
    let key = entry.physical().as_u64();
    let index = frames.binary_search_by_key(&key, |(frame, _)| frame.physical().as_u64()).ok()?;
    let (_, depth) = frames.get(index)?;
    if entry.number() <= *depth {
        return None;
    }
    match what {
        TakeBack::Pages => Some(Entry::EMPTY),
        TakeBack::Stores => entry.contains(STORABLE).then(|| entry.without(STORABLE | EntryFlags::WRITABLE)),
    }
}
