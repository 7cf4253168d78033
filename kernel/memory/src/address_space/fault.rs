//! Page faults.
//!
//! One attempt ([`AddressSpace::attempt`]) runs under the region lock and never sleeps: find the region, check the access,
//! find or make the entry's table, then by what the entry says:
//!
//! ```text
//! empty,  anonymous:  read → page of zeros        write → fresh zeroed frame
//! empty,  pager:      the layer above asks it
//! empty,  file:       in the cache? private write → copy of the page, else the page itself, with its neighbours
//! hidden or without the permission: private and the only reference → grant; else copy
//!                                   page of zeros → fresh zeroed frame; shared → grant
//! present with the permission: somebody else was faster
//! ```
//!
//! An entry in a table that other spaces share is not looked at: the space gets a table of its own first (see `shared_tables`). Where there is no
//! table yet, anonymous memory may get a huge page instead (see `huge`).
//!
//! An attempt that needs something it can't have under the lock says what ([`Step`]); it is done with the lock released
//! and the attempt repeated. Every store into an entry is a compare-and-swap against what the decision was based on.

use super::entry::{self, PRIVATE, SHARED_MEMORY, STORABLE, UNCOUNTED, borrow_frame};
use super::request::MapBacking;
use super::space::{AddressSpace, zero_page};
#[cfg(test)]
use super::window::{self, Window};
use crate::file_cache::{CacheError, CacheKind, FileCache, Intent};
use crate::frame::{Frame, Purpose, Zeroed};
use crate::region::{FileMapping, Region, RegionFlags, RegionTree};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicI64, Ordering};
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};
use machine::page_table::{ENTRIES, Entry, EntryCell, EntryFlags};

/// Attempts before a fault gives up: each one that fails has made progress elsewhere.
const MAX_ATTEMPTS: usize = 1000;

/// Attempts after memory ran out. Each is preceded by an allocation that may wait and succeeded.
const MAX_MEMORY_ATTEMPTS: usize = 16;

/// Pages around a file page that are mapped along with it: 64 KiB.
const AROUND_PAGES: u64 = 16;

/// What an attempt came to.
pub(super) enum Step {
    /// The access can be repeated.
    Done,
    /// The program may not do that.
    Refused(FaultError),
    /// No region here, but one above that may grow down.
    Grow,
    /// A page of a file is needed, which may take time.
    Bring { mapping: Arc<FileMapping>, page: u64, intent: Intent },
    /// No memory without waiting.
    Memory,
    /// A fork is under way.
    Copying,
    /// The table of the entry is closed, most likely because other spaces share it.
    Shared,
    /// There is no table, and the memory gets a huge page.
    Huge,
    /// The region's pages are the pool's, and there is none that may be accessed so.
    Pool(Access),
    /// A copy has been put in that may not be written yet: the page before it must be forgotten first.
    Forget { copy: Frame, former: Option<Frame> },
    /// Somebody else changed the entry.
    Again,
}

impl AddressSpace {
    /// Resolves a fault of the program at an address. May sleep.
    ///
    /// # Errors
    /// Why the access can't be made.
    #[inline(always)]
    pub fn fault(&self, address: UserAddr, access: Access) -> Result<(), FaultError> {
        let address = address.as_u64() & !(PAGE_SIZE as u64 - 1);
        let step = self.attempt(address, access);
        if matches!(step, Step::Done) {
            // Nothing is in it; dropping it would ask what is.
            core::mem::forget(step);
            return Ok(());
        }
        self.fault_slowly(address, access, step)
    }

    /// Does what attempts need and repeats them.
    ///
    /// Threads that store into the same page at once would each put in a copy, find the other's copy in their next attempt,
    /// with its second reference, and copy that, in step with each other for ever. So from the second copy on a thread takes
    /// its turn: it makes its attempts while it holds `change`, and waits for that without a copy of its own.
    #[inline(never)]
    fn fault_slowly(&self, address: u64, access: Access, first: Step) -> Result<(), FaultError> {
        self.settle(address, first, &mut || self.attempt(address, access))
    }

    /// Goes on after a first attempt, until one succeeds.
    pub(super) fn settle(
        &self,
        address: u64,
        first: Step,
        attempt: &mut dyn FnMut() -> Step,
    ) -> Result<(), FaultError> {
        let mut step = first;
        let (mut memory_attempts, mut copies) = (0, 0);
        let mut turn = None;
        for _ in 0..MAX_ATTEMPTS {
            if let Step::Forget { copy, former } = step {
                self.tables.forget(address, address + PAGE_SIZE as u64, false);
                drop((copy, former));
                copies += 1;
                if copies > 1 && turn.is_none() {
                    turn = Some(self.change.lock());
                }
                step = attempt();
                continue;
            }
            turn = None;
            match step {
                Step::Done => return Ok(()),
                Step::Refused(error) => return Err(error),
                Step::Grow => self.grow_stack(address)?,
                Step::Bring { mapping, page, intent } => {
                    bring(mapping.cache(), page, intent)?;
                    if intent == Intent::Write {
                        mapping.cache().pace_stores();
                    }
                }
                Step::Memory => wait_for_memory(&mut memory_attempts)?,
                Step::Huge => {
                    if self.fill_huge(address).is_err() {
                        wait_for_memory(&mut memory_attempts)?;
                    }
                }
                Step::Pool(access) => self.fill_pooled(address, access)?,
                // No fork begins before the next attempt.
                Step::Copying => turn = Some(self.change.lock()),
                Step::Shared => {
                    turn = Some(self.change.lock());
                    self.own_for_fault(address).map_err(|_| FaultError::OutOfMemory)?;
                }
                Step::Forget { .. } | Step::Again => {}
            }
            step = attempt();
        }
        if let Step::Forget { copy, former } = step {
            self.tables.forget(address, address + PAGE_SIZE as u64, false);
            drop((copy, former));
        }
        Err(FaultError::OutOfMemory)
    }

    /// One attempt; see the theory of this file.
    fn attempt(&self, address: u64, access: Access) -> Step {
        let regions = self.regions.read_locally();
        let Some(region) = regions.find(address) else { return outside(&regions, address) };
        let flags = region.flags;
        let allowed = match access {
            Access::Read => flags.intersects(RegionFlags::PROTECTION),
            Access::Write => flags.contains(RegionFlags::WRITE),
            Access::Execute => flags.contains(RegionFlags::EXECUTE),
        };
        if !allowed || flags.contains(RegionFlags::RESERVED) {
            return Step::Refused(FaultError::AccessDenied);
        }
        // SAFETY: the region lock is held and the address lies in a region, so the tables stay.
        let leaf = match unsafe { self.tables.tree().open_leaf(address) } {
            Ok(leaf) => leaf,
            Err(why) => match self.leaf_for_attempt(region, address, access, why) {
                Ok(leaf) => leaf,
                Err(step) => return step,
            },
        };
        let cell = &leaf[slot_of(address)];
        let entry = cell.load();
        let write = access == Access::Write;
        if !entry.is_empty() {
            return self.permit(region, address, cell, entry, write);
        }
        match &region.backing {
            MapBacking::Anonymous => self.fill_anonymous(flags, cell, write),
            MapBacking::File(mapping) => self.fill_file(region, mapping, address, leaf, write),
            MapBacking::Special(mapping) => match mapping.frame(region.page_of(address)) {
                None => Step::Refused(FaultError::Bus),
                Some(frame) => self.install(cell, frame.clone(), entry::readable(flags)),
            },
            MapBacking::Paged(_) => Step::Refused(FaultError::Pager),
        }
    }

    /// The first access to a page of anonymous memory.
    #[inline]
    fn fill_anonymous(&self, flags: RegionFlags, cell: &EntryCell, write: bool) -> Step {
        if !write {
            let zeros = Entry::new(zero_page(), entry::readable(flags) | UNCOUNTED | EntryFlags::ACCESSED);
            return if cell.compare_exchange(Entry::EMPTY, zeros).is_ok() { Step::Done } else { Step::Again };
        }
        let Ok(frame) = Frame::allocate(Purpose::Anonymous, Zeroed::Yes) else { return Step::Memory };
        self.install(cell, frame, entry::readable(flags) | PRIVATE | EntryFlags::WRITABLE | EntryFlags::DIRTY)
    }

    /// Puts a frame into an empty entry.
    #[inline]
    fn install(&self, cell: &EntryCell, frame: Frame, flags: EntryFlags) -> Step {
        if !install_uncounted(cell, frame, flags) {
            return Step::Again;
        }
        self.counter_of(flags).fetch_add(1, Ordering::Relaxed);
        Step::Done
    }

    /// Counts pages in memory whose entries have such flags.
    #[inline(always)]
    fn counter_of(&self, flags: EntryFlags) -> &AtomicI64 {
        if flags.contains(PRIVATE) {
            &self.resident.private
        } else if flags.contains(SHARED_MEMORY) {
            &self.resident.shared_memory
        } else {
            &self.resident.file
        }
    }

    /// The first access to a page of a file.
    #[inline(never)]
    fn fill_file(
        &self,
        region: &Region,
        mapping: &Arc<FileMapping>,
        address: u64,
        leaf: &[EntryCell; ENTRIES],
        write: bool,
    ) -> Step {
        let cache = mapping.cache();
        let page = region.page_of(address);
        if page >= cache.size_in_pages() {
            return Step::Refused(FaultError::Bus);
        }
        let shared = region.flags.contains(RegionFlags::SHARED);
        let noticed = shared && write && cache.has_representative();
        let Some(frame) = cache.mappable(page) else {
            let intent = if shared && write { Intent::Write } else { Intent::Read };
            return Step::Bring { mapping: mapping.clone(), page, intent };
        };
        if noticed && !cache.is_dirty(page) {
            return Step::Bring { mapping: mapping.clone(), page, intent: Intent::Write };
        }
        let cell = &leaf[slot_of(address)];
        if write && !shared {
            let Ok(copy) = Frame::allocate(Purpose::Anonymous, Zeroed::No) else { return Step::Memory };
            copy.copy_from(&frame);
            let flags = entry::readable(region.flags) | PRIVATE | EntryFlags::WRITABLE | EntryFlags::DIRTY;
            return self.install(cell, copy, flags);
        }
        let flags = file_entry_flags(region.flags, cache);
        let now = if noticed { flags | EntryFlags::WRITABLE | EntryFlags::DIRTY } else { flags };
        if noticed {
            cache.note_stores();
        }
        let step = self.install(cell, frame, now);
        if !write {
            self.map_around(region, cache, address, leaf, flags);
        }
        step
    }

    /// Maps what the cache has of the pages around, as far as table and region reach.
    #[inline(never)]
    fn map_around(
        &self,
        region: &Region,
        cache: &FileCache,
        address: u64,
        leaf: &[EntryCell; ENTRIES],
        flags: EntryFlags,
    ) {
        let window = AROUND_PAGES * PAGE_SIZE as u64;
        let start = (address & !(window - 1)).max(region.start);
        let end = ((address & !(window - 1)) + window).min(region.end);
        let first = region.page_of(start);
        let last = region.page_of(end - 1).min(cache.size_in_pages().saturating_sub(1));
        let cell_of = |page: u64| &leaf[slot_of(start + (page - first) * PAGE_SIZE as u64)];
        let mut mapped = 0;
        cache.for_each_mappable(
            first,
            last + 1,
            |page| cell_of(page).load().is_empty(),
            |page, frame| mapped += i64::from(install_uncounted(cell_of(page), frame, flags)),
        );
        self.counter_of(flags).fetch_add(mapped, Ordering::Relaxed);
    }

    /// An access to a page whose entry is not empty.
    #[inline]
    fn permit(&self, region: &Region, address: u64, cell: &EntryCell, found: Entry, write: bool) -> Step {
        let readable = entry::readable(region.flags);
        if !write || found.contains(EntryFlags::WRITABLE) {
            // Hidden, or not executable before, or already right.
            let new = found.without(EntryFlags::NO_EXECUTE).with(readable | EntryFlags::ACCESSED);
            return if new == found || cell.compare_exchange(found, new).is_ok() {
                Step::Done
            } else {
                Step::Again
            };
        }
        if region.flags.contains(RegionFlags::SHARED) {
            return self.permit_shared(region, address, cell, found);
        }
        if self.copying.load(Ordering::Acquire) {
            return Step::Copying;
        }
        let writable = readable | EntryFlags::WRITABLE | EntryFlags::ACCESSED | EntryFlags::DIRTY;
        if found.contains(PRIVATE) {
            // SAFETY: the region lock is held; only another fault can replace the entry, and then the exchange fails.
            let frame = unsafe { borrow_frame(found) };
            if frame.references() == 1 {
                let new = found.without(EntryFlags::NO_EXECUTE).with(writable);
                return if cell.compare_exchange(found, new).is_ok() { Step::Done } else { Step::Again };
            }
        }
        self.copy_on_write(address, cell, found, writable | PRIVATE)
    }

    /// A store to a page of a shared mapping that was only readable so far.
    #[inline(never)]
    fn permit_shared(&self, region: &Region, address: u64, cell: &EntryCell, found: Entry) -> Step {
        if let MapBacking::File(mapping) = &region.backing
            && mapping.cache().has_representative()
        {
            let page = region.page_of(address);
            if !mapping.cache().is_dirty(page) {
                return Step::Bring { mapping: mapping.clone(), page, intent: Intent::Write };
            }
            mapping.cache().note_stores();
        }
        if matches!(region.backing, MapBacking::Paged(_)) && !found.contains(STORABLE) {
            return Step::Refused(FaultError::Pager);
        }
        let granted = entry::readable(region.flags) | EntryFlags::WRITABLE | EntryFlags::ACCESSED;
        let new = found.without(EntryFlags::NO_EXECUTE).with(granted | EntryFlags::DIRTY);
        if cell.compare_exchange(found, new).is_ok() { Step::Done } else { Step::Again }
    }

    /// Gives the program its own copy of a page.
    ///
    /// Other processors of the program must not see the old page once somebody may see the new one written. Where there
    /// are any, the copy first goes in without the permission to store and marked as nobody's to grant (it has a second
    /// reference). With the region lock released all forget the old page, then the second reference goes, and the next
    /// attempt finds a page with one holder. Waiting for other processors under the lock would keep changers waiting too,
    /// and all faults behind those.
    #[inline(never)]
    pub(super) fn copy_on_write(
        &self,
        address: u64,
        cell: &EntryCell,
        found: Entry,
        flags: EntryFlags,
    ) -> Step {
        let zeros = found.contains(UNCOUNTED);
        let zeroed = if zeros { Zeroed::Yes } else { Zeroed::No };
        let Ok(copy) = Frame::allocate(Purpose::Anonymous, zeroed) else { return Step::Memory };
        if !zeros {
            // SAFETY: as in `permit`: if the frame goes away meanwhile, the exchange fails and the copy is dropped.
            copy.copy_from(&*unsafe { borrow_frame(found) });
        }
        #[cfg(test)]
        window::pass(Window::PageCopied);
        let alone = self.tables.is_local();
        let first =
            Entry::new(copy.physical(), if alone { flags } else { flags.difference(EntryFlags::WRITABLE) });
        let guard = (!alone).then(|| copy.clone());
        if cell.compare_exchange(found, first).is_err() {
            return Step::Again;
        }
        let _ = copy.into_physical();
        // SAFETY: the entry that held this reference is gone. The frame is freed only when translations of it are forgotten.
        let former = (!zeros).then(|| unsafe { Frame::from_physical(found.physical()) });
        if !found.contains(PRIVATE) {
            self.resident.private.fetch_add(1, Ordering::Relaxed);
            if found.contains(SHARED_MEMORY) {
                self.resident.shared_memory.fetch_sub(1, Ordering::Relaxed);
            } else if !zeros {
                self.resident.file.fetch_sub(1, Ordering::Relaxed);
            }
        }
        match guard {
            Some(copy) => Step::Forget { copy, former },
            None => {
                self.tables.forget(address, address + PAGE_SIZE as u64, false);
                Step::Done
            }
        }
    }
}

/// Waits, reclaims and asks the out-of-memory policy; what that got is there for the next attempt.
#[inline(never)]
fn wait_for_memory(attempts: &mut usize) -> Result<(), FaultError> {
    *attempts += 1;
    if *attempts > MAX_MEMORY_ATTEMPTS {
        return Err(FaultError::OutOfMemory);
    }
    let spare = Frame::allocate(Purpose::Anonymous, Zeroed::No);
    drop(spare.map_err(|_| FaultError::OutOfMemory)?);
    Ok(())
}

/// No region at the address: an error, unless one above may grow.
#[inline(never)]
fn outside(regions: &RegionTree, address: u64) -> Step {
    let above = regions.locate(address).map(|position| regions.at(position).flags());
    if above.is_some_and(|flags| flags.contains(RegionFlags::GROWS_DOWN)) {
        Step::Grow
    } else {
        Step::Refused(FaultError::NotMapped)
    }
}

#[inline(never)]
fn bring(cache: &FileCache, page: u64, intent: Intent) -> Result<(), FaultError> {
    match cache.frame(page, intent) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(FaultError::Bus),
        Err(CacheError::OutOfMemory) => Err(FaultError::OutOfMemory),
        Err(_) => Err(FaultError::Bus),
    }
}

/// The bits for a page of the file itself. Stores to shared pages without a representative need not be noticed.
fn file_entry_flags(flags: RegionFlags, cache: &FileCache) -> EntryFlags {
    let mut bits = entry::readable(flags);
    if cache.kind() == CacheKind::SharedMemory {
        bits |= SHARED_MEMORY;
    }
    if flags.contains(RegionFlags::SHARED | RegionFlags::WRITE) && !cache.has_representative() {
        bits |= EntryFlags::WRITABLE;
    }
    bits
}

/// Puts a frame into an empty entry, if it is still empty. Who does it counts the page.
#[inline]
pub(super) fn install_uncounted(cell: &EntryCell, frame: Frame, flags: EntryFlags) -> bool {
    let new = Entry::new(frame.physical(), flags | EntryFlags::ACCESSED);
    let installed = cell.compare_exchange(Entry::EMPTY, new).is_ok();
    if installed {
        let _ = frame.into_physical();
    }
    installed
}

#[inline(always)]
pub(super) fn slot_of(address: u64) -> usize {
    (address as usize / PAGE_SIZE) & (ENTRIES - 1)
}
