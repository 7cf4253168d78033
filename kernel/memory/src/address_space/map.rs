//! Making mappings (mmap).

use super::account::{self, CommitMode};
use super::error::MapError;
use super::placement::{Placed, place};
use super::pooled;
use super::request::{MapBacking, MapFlags, MapRequest, Protection};
use super::space::{AddressSpace, Layout, MAX_REGIONS};
use super::unmap::Dropped;
use crate::fallible;
use crate::file_cache::{CacheKind, FileCache};
use crate::huge_pool::{self, HUGE_PAGE_FRAMES};
use crate::parking::SleepGuard;
use crate::region::{FileMapping, Region, RegionFlags};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};

/// The largest file offset, in pages, that a mapping may reach.
const MAX_FILE_PAGES: u64 = (i64::MAX as u64) >> PAGE_SHIFT;

/// Whole huge pages, for what consists of such.
pub(super) fn round_huge(request: &mut MapRequest) -> Result<(), MapError> {
    let is_huge = || cache_of(&request.backing).is_some_and(|cache| cache.is_huge());
    if request.flags.contains(MapFlags::POOLED) || is_huge() {
        pooled::round(request)?;
    }
    Ok(())
}

impl AddressSpace {
    /// Makes a mapping and returns where it begins.
    ///
    /// # Errors
    /// As mmap(2); see [`MapError`].
    pub fn map(&self, mut request: MapRequest) -> Result<UserAddr, MapError> {
        round_huge(&mut request)?;
        self.map_locked(self.change.lock(), &request)
    }

    /// [`AddressSpace::map`], with the lock held, which it gives back.
    pub(super) fn map_locked(
        &self,
        layout: SleepGuard<'_, Layout>,
        request: &MapRequest,
    ) -> Result<UserAddr, MapError> {
        // In this order: what was there is dropped after the lock, whatever happens.
        let mut dropped = Dropped::new();
        let mut layout = layout;
        check_object(request)?;
        let placed = place(request, &layout, &mut self.regions.write())?;
        let flags = region_flags(request, &layout);
        self.check_limits(&placed, flags)?;
        if placed.replaces {
            dropped = self.remove_range(&mut layout, placed.range())?;
        }
        self.add(&placed, flags, request)?;
        self.note_pages();
        drop(layout);
        drop(dropped);
        if request.flags.contains(MapFlags::POPULATE) && !request.flags.contains(MapFlags::NON_BLOCK)
            || flags.contains(RegionFlags::LOCKED) && !flags.contains(RegionFlags::LOCK_ON_FAULT)
        {
            // Not being able to is not an error of mmap.
            let _ = self.populate(placed.range(), flags.contains(RegionFlags::LOCKED));
        }
        Ok(UserAddr::new(placed.start))
    }

    /// Number of pages that are mapped, kept as the peak if it is one.
    pub(super) fn note_pages(&self) {
        let pages = self.regions.read().pages();
        if self.peak_pages.load(Ordering::Relaxed) < pages {
            self.peak_pages.store(pages, Ordering::Relaxed);
        }
    }

    fn check_limits(&self, placed: &Placed, flags: RegionFlags) -> Result<(), MapError> {
        let limits = self.limits();
        let (count, pages) = {
            let regions = self.regions.read();
            let replaced = if placed.replaces {
                regions
                    .overlapping(placed.start, placed.end)
                    .map(|region| region.end().min(placed.end) - region.start().max(placed.start))
                    .sum::<u64>()
                    >> PAGE_SHIFT
            } else {
                0
            };
            (regions.count(), regions.pages() - replaced + placed.pages())
        };
        if count >= MAX_REGIONS {
            return Err(MapError::OutOfMemory);
        }
        if pages > limits.address_space >> PAGE_SHIFT {
            return Err(MapError::OutOfMemory);
        }
        if is_data(flags) && limits.data != u64::MAX {
            let data = self.pages_where(is_data) + placed.pages();
            if data > limits.data >> PAGE_SHIFT {
                return Err(MapError::OutOfMemory);
            }
        }
        if flags.contains(RegionFlags::LOCKED) {
            let locked = self.locked_pages.load(Ordering::Relaxed) + placed.pages();
            if locked > limits.locked >> PAGE_SHIFT {
                return Err(MapError::TooMuchLocked);
            }
        }
        Ok(())
    }

    /// Pages in regions with certain flags.
    pub(super) fn pages_where(&self, wanted: impl Fn(RegionFlags) -> bool) -> u64 {
        self.regions.read().iter().filter(|region| wanted(region.flags())).map(Region::pages).sum()
    }

    /// Adds the region of a request into free space.
    fn add(&self, placed: &Placed, flags: RegionFlags, request: &MapRequest) -> Result<(), MapError> {
        if flags.contains(RegionFlags::POOLED) {
            return self.add_pooled(placed, flags, request);
        }
        let accounted = flags.contains(RegionFlags::ACCOUNTED);
        if accounted {
            account::charge(placed.pages())?;
        }
        let added = self.add_charged(placed, flags, request);
        if added.is_err() && accounted {
            account::release(placed.pages());
        }
        added
    }

    /// The same with huge pages of the pool, which are promised now. They are kept in memory without being counted as locked.
    #[inline(never)]
    fn add_pooled(&self, placed: &Placed, flags: RegionFlags, request: &MapRequest) -> Result<(), MapError> {
        let flags = flags.difference(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT);
        let backing = match &request.backing {
            MapBacking::Anonymous if flags.contains(RegionFlags::SHARED) => {
                let cache = FileCache::of_huge_pages(placed.end - placed.start, None);
                let cache = fallible::try_arc(cache.map_err(|_| MapError::OutOfMemory)?)?;
                MapBacking::File(fallible::try_arc(FileMapping::new(cache, None))?)
            }
            backing => backing.clone(),
        };
        let first = if matches!(backing, MapBacking::File(_)) { request.offset >> PAGE_SHIFT } else { 0 };
        let flags = pooled::promised(flags, &backing, first..first + placed.pages())?;
        // Cuts within a page are refused where closed tables are looked for.
        self.closes_tables.store(true, Ordering::Relaxed);
        let file = cache_of(&backing).filter(|_| flags.contains(RegionFlags::WRITE)).cloned();
        let added = self.add_charged(placed, flags, &MapRequest { backing, ..request.clone() });
        match (&added, file) {
            (Ok(()), Some(file)) => file.extend_huge((first << PAGE_SHIFT) + (placed.end - placed.start)),
            (Err(_), _) if flags.contains(RegionFlags::PROMISED) => {
                huge_pool::unpromise(placed.pages() / HUGE_PAGE_FRAMES);
            }
            _ => {}
        }
        added
    }

    fn add_charged(&self, placed: &Placed, flags: RegionFlags, request: &MapRequest) -> Result<(), MapError> {
        let backing = match &request.backing {
            MapBacking::Anonymous if flags.contains(RegionFlags::SHARED) => shared_anonymous(placed)?,
            backing => backing.clone(),
        };
        let page_offset = match backing {
            MapBacking::Anonymous | MapBacking::Paged(_) => 0,
            MapBacking::File(_) | MapBacking::Special(_) => request.offset >> PAGE_SHIFT,
        };
        let region = Region { start: placed.start, end: placed.end, page_offset, backing, flags };
        let refused = self.regions.write().insert(region);
        refused.map_err(|region| {
            drop(region);
            MapError::OutOfMemory
        })?;
        if flags.contains(RegionFlags::LOCKED) {
            self.locked_pages.fetch_add(placed.pages(), Ordering::Relaxed);
        }
        Ok(())
    }

    /// Adds private anonymous memory at a place that is free (break, and the like).
    pub(super) fn add_anonymous(
        &self,
        layout: &SleepGuard<'_, Layout>,
        placed: &Placed,
        flags: RegionFlags,
    ) -> Result<(), MapError> {
        let request = MapRequest::anonymous(placed.end - placed.start, Protection::empty());
        let flags = flags | layout.lock_future;
        self.check_limits(placed, flags)?;
        self.add(placed, flags, &request)?;
        self.note_pages();
        Ok(())
    }
}

/// Whether RLIMIT_DATA counts the region: private, writable, not a stack.
pub(super) fn is_data(flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::WRITE) && !flags.intersects(RegionFlags::SHARED | RegionFlags::GROWS_DOWN)
}

/// Whether the pages of such a region count as committed.
pub(super) fn counts_as_committed(flags: RegionFlags) -> bool {
    flags.contains(RegionFlags::WRITE)
        && !flags.intersects(RegionFlags::SHARED | RegionFlags::POOLED)
        && (!flags.contains(RegionFlags::NO_RESERVE) || account::commit_mode() == CommitMode::Never)
}

fn check_object(request: &MapRequest) -> Result<(), MapError> {
    let (MapBacking::File(_) | MapBacking::Special(_)) = &request.backing else { return Ok(()) };
    if request.offset & (PAGE_SIZE as u64 - 1) != 0 {
        return Err(MapError::InvalidArgument);
    }
    let pages = request.length.div_ceil(PAGE_SIZE as u64);
    if (request.offset >> PAGE_SHIFT).checked_add(pages).is_none_or(|end| end > MAX_FILE_PAGES) {
        return Err(MapError::Overflow);
    }
    if !request.maximum.contains(request.protection) {
        return Err(MapError::AccessDenied);
    }
    Ok(())
}

fn region_flags(request: &MapRequest, layout: &Layout) -> RegionFlags {
    let mut flags = RegionFlags::from_protection(request.protection)
        | RegionFlags::from_maximum(request.maximum)
        | layout.lock_future;
    for (wanted, flag) in [
        (MapFlags::SHARED, RegionFlags::SHARED),
        (MapFlags::GROWS_DOWN, RegionFlags::GROWS_DOWN),
        (MapFlags::NO_RESERVE, RegionFlags::NO_RESERVE),
        (MapFlags::LOCKED, RegionFlags::LOCKED),
        (MapFlags::STACK, RegionFlags::STACK | RegionFlags::GROWS_DOWN),
        (MapFlags::POOLED, RegionFlags::POOLED),
    ] {
        if request.flags.contains(wanted) {
            flags |= flag;
        }
    }
    if matches!(request.backing, MapBacking::Special(_)) {
        return flags & !(RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT);
    }
    let private = !flags.contains(RegionFlags::SHARED);
    if private && (matches!(request.backing, MapBacking::Anonymous) || flags.contains(RegionFlags::WRITE)) {
        flags |= RegionFlags::MAY_HAVE_PRIVATE;
    }
    let shared_anonymous =
        !private && matches!(request.backing, MapBacking::Anonymous) && !flags.contains(RegionFlags::POOLED);
    if counts_as_committed(flags) || shared_anonymous && !flags.contains(RegionFlags::NO_RESERVE) {
        flags |= RegionFlags::ACCOUNTED;
    }
    flags
}

/// Shared anonymous memory is a file without a name.
fn shared_anonymous(placed: &Placed) -> Result<MapBacking, MapError> {
    let cache = FileCache::with_size(CacheKind::SharedMemory, placed.end - placed.start);
    let cache = fallible::try_arc(cache.map_err(|_| MapError::OutOfMemory)?)?;
    Ok(MapBacking::File(fallible::try_arc(FileMapping::new(cache, None))?))
}

/// The cache behind a mapping of a file.
pub(super) fn cache_of(backing: &MapBacking) -> Option<&Arc<FileCache>> {
    match backing {
        MapBacking::File(mapping) => Some(mapping.cache()),
        MapBacking::Anonymous | MapBacking::Special(_) | MapBacking::Paged(_) => None,
    }
}
