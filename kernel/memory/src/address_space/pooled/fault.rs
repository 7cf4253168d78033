//! Accesses to pages of the pool.

use core::mem::ManuallyDrop;
use core::sync::atomic::Ordering;

use machine::fault::{Access, FaultError};
use machine::page_table::{EntryFlags, Leaf, Mark, Place};

use super::super::entry;
use super::super::gather::Gather;
use super::super::map::cache_of;
use super::super::registry;
use super::super::space::AddressSpace;
use crate::file_cache::{CacheError, FileCache};
use crate::huge_pool::{self, HUGE_PAGE_BYTES, HUGE_PAGE_FRAMES, Kind, PooledPage};
use crate::region::{Region, RegionFlags};

impl AddressSpace {
    /// Resolves a fault in a region of pooled pages as far as that takes more than an attempt.
    ///
    /// # Errors
    /// Bus: there is no page, or it is no page of the file.
    pub(in super::super) fn fill_pooled(&self, address: u64, access: Access) -> Result<(), FaultError> {
        let base = address & !(HUGE_PAGE_BYTES - 1);
        let shared_with_others = {
            let _change = self.change.lock();
            let region = self.regions.read().find(base).filter(|region| admits(region, access)).cloned();
            // What else is wrong the next attempt says.
            let Some(region) = region else { return Ok(()) };
            self.fill_place(&region, base, access == Access::Write)?
        };
        if let Some(page) = shared_with_others {
            self.take_from_others(&page);
        }
        Ok(())
    }

    /// Maps a page at a place, or allows more of the one that is there. `change` is held. Returns a page of which the space must be the only one
    /// to have it before it can go on.
    fn fill_place(&self, region: &Region, base: u64, store: bool) -> Result<Option<PooledPage>, FaultError> {
        self.closes_tables.store(true, Ordering::Relaxed);
        // SAFETY: `change` is held and the address lies in a region, so the tables stay.
        let (place, leaf) = unsafe {
            (self.tables.tree().place_or_create(base, &*self.tables), self.tables.tree().leaf(base))
        };
        let place = place.ok_or(FaultError::OutOfMemory)?;
        if let Some(leaf) = leaf {
            return self.permit_pooled(region, leaf, store);
        }
        if place.mark() == Some(Mark::Lost) {
            return Err(FaultError::Bus);
        }
        let flags = region.flags();
        let number = |region: &Region| region.page_of(base) / HUGE_PAGE_FRAMES;
        let page = match cache_of(region.backing()) {
            Some(cache) if flags.contains(RegionFlags::SHARED) => page_of_file(cache, number(region), true)?,
            Some(cache) if number(region) >= cache.size() / HUGE_PAGE_BYTES => return Err(FaultError::Bus),
            Some(cache) => page_of_file(cache, number(region), false)?,
            None => None,
        };
        let stays_with_file = flags.contains(RegionFlags::SHARED) || !store;
        match page {
            Some(page) if stays_with_file => {
                map(place, page, flags, flags.contains(RegionFlags::SHARED));
            }
            source => {
                if flags.contains(RegionFlags::SHARED) {
                    return Err(FaultError::Bus);
                }
                let promised = flags.contains(RegionFlags::PROMISED) && place.is_empty();
                let own = huge_pool::take(Kind::Private, promised).map_err(|_| FaultError::Bus)?;
                match source {
                    Some(source) => own.copy_from(&source),
                    None => own.zero(),
                }
                map(place, own, flags, true);
            }
        }
        Ok(None)
    }

    /// An access that the link of a page does not allow yet.
    fn permit_pooled(
        &self,
        region: &Region,
        leaf: Leaf<'_>,
        store: bool,
    ) -> Result<Option<PooledPage>, FaultError> {
        let (flags, link) = (region.flags(), leaf.link());
        let readable = entry::readable(flags);
        let first = link.physical();
        if !store {
            leaf.set_pooled(first, readable | (link.flags() & EntryFlags::WRITABLE));
            return Ok(None);
        }
        // SAFETY: the link holds a reference, and `change` keeps the link.
        let page = unsafe { PooledPage::borrow(first) };
        let is_own = page.kind() == Kind::Private && page.references() == 1;
        if is_own || flags.contains(RegionFlags::SHARED) {
            leaf.set_pooled(first, readable | EntryFlags::WRITABLE);
            return Ok(None);
        }
        // A page of the file was there so far, and the promise is still to be kept.
        let promised = page.kind() == Kind::Shared && flags.contains(RegionFlags::PROMISED);
        let Ok(copy) = huge_pool::take(Kind::Private, promised) else {
            let is_promised = flags.contains(RegionFlags::PROMISED);
            return if is_promised { Ok(Some((*page).clone())) } else { Err(FaultError::Bus) };
        };
        copy.copy_from(&page);
        let copy = copy.into_link();
        {
            let _regions = self.regions.write();
            leaf.set_pooled(copy, readable);
        }
        // Before anybody can store to the copy nobody reads the former page any more.
        self.tables.forget(leaf.base, leaf.base + HUGE_PAGE_BYTES, false);
        leaf.set_pooled(copy, readable | EntryFlags::WRITABLE);
        drop(ManuallyDrop::into_inner(page));
        Ok(None)
    }

    /// Takes a private page from all spaces that came to have it by forks and were not promised it. No space's `change` is held.
    fn take_from_others(&self, page: &PooledPage) {
        registry::for_each(|space| {
            if !core::ptr::eq(&raw const **space, self) && space.closes_tables.load(Ordering::Relaxed) {
                let _change = space.change.lock();
                space.lose(page);
            }
        });
    }

    /// `change` is held.
    fn lose(&self, page: &PooledPage) {
        let mut gather = Gather::new(&self.tables);
        let mut address = 0;
        loop {
            let next = {
                let regions = self.regions.read();
                let mut position = regions.locate(address);
                while position.is_some_and(|at| !may_lose(regions.at(at).flags())) {
                    position = position.and_then(|at| regions.next(at));
                }
                position.map(|at| regions.at(at).start()..regions.at(at).end())
            };
            let Some(range) = next else { return };
            address = range.end;
            self.take_pages_out(range, Some((page, Mark::Lost)), &mut gather);
        }
    }
}

fn may_lose(flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::POOLED) && !flags.intersects(RegionFlags::SHARED | RegionFlags::PROMISED)
}

/// Whether the region has pooled pages, and the program may access them so.
fn admits(region: &Region, access: Access) -> bool {
    let needed = match access {
        Access::Read => RegionFlags::PROTECTION,
        Access::Write => RegionFlags::WRITE,
        Access::Execute => RegionFlags::EXECUTE,
    };
    region.flags().contains(RegionFlags::POOLED)
        && region.flags().intersects(needed)
        && !region.flags().contains(RegionFlags::RESERVED)
}

fn page_of_file(cache: &FileCache, number: u64, make: bool) -> Result<Option<PooledPage>, FaultError> {
    cache.huge_page(number, make).map_err(|error| match error {
        CacheError::OutOfMemory => FaultError::OutOfMemory,
        _ => FaultError::Bus,
    })
}

fn map(place: Place<'_>, page: PooledPage, flags: RegionFlags, own: bool) {
    let store = own && flags.contains(RegionFlags::WRITE);
    let writable = if store { EntryFlags::WRITABLE } else { EntryFlags::empty() };
    place.map(page.into_link(), entry::readable(flags) | writable);
}
