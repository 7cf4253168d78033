//! What the pool has promised to regions.

use core::ops::Range;

use machine::page_table::Mark;

use super::super::error::MapError;
use super::super::map::cache_of;
use super::super::request::{MapBacking, MapFlags, MapRequest};
use super::super::space::AddressSpace;
use super::super::tables::Tables;
use crate::huge_pool::{self, HUGE_PAGE_BYTES, HUGE_PAGE_FRAMES};
use crate::region::{Region, RegionFlags};

/// Makes a request for pooled pages one for whole pages.
///
/// # Errors
/// INVAL where the file's offset is not that of one, or for what grows.
pub(in super::super) fn round(request: &mut MapRequest) -> Result<(), MapError> {
    request.flags |= MapFlags::POOLED;
    if !request.offset.is_multiple_of(HUGE_PAGE_BYTES) || request.flags.contains(MapFlags::GROWS_DOWN) {
        return Err(MapError::InvalidArgument);
    }
    let rounded = request.length.checked_next_multiple_of(HUGE_PAGE_BYTES);
    request.length = rounded.ok_or(MapError::OutOfMemory)?;
    Ok(())
}

/// Has a mapping promised its pages, unless it does not want that; returns the flags of its region.
///
/// # Errors
/// There are not so many.
pub(in super::super) fn promised(
    flags: RegionFlags,
    backing: &MapBacking,
    pages: Range<u64>,
) -> Result<RegionFlags, MapError> {
    if flags.contains(RegionFlags::NO_RESERVE) {
        return Ok(flags);
    }
    let numbers = pages.start / HUGE_PAGE_FRAMES..pages.end / HUGE_PAGE_FRAMES;
    match cache_of(backing).filter(|_| flags.contains(RegionFlags::SHARED)) {
        Some(cache) => {
            cache.promise_huge(numbers).map_err(|_| MapError::OutOfMemory)?;
            Ok(flags)
        }
        None => {
            huge_pool::promise(numbers.end - numbers.start)?;
            Ok(flags | RegionFlags::PROMISED)
        }
    }
}

/// A region has gone, with its pages: its places become empty, and what was promised for those that were is over.
pub(in super::super) fn end(tables: &Tables, region: &Region) {
    let mut used = 0;
    // SAFETY: the caller holds `change`, or is the only one who knows the space.
    unsafe {
        tables.tree().for_each_place(region.start()..region.end(), &mut |place| {
            debug_assert!(place.mark().is_some(), "the pages have gone");
            place.take();
            used += 1;
        });
    }
    if region.flags().contains(RegionFlags::PROMISED) {
        huge_pool::unpromise(region.pages() / HUGE_PAGE_FRAMES - used);
    }
}

impl AddressSpace {
    /// Promises pages anew for places of a range whose page has gone, as far as there are any. `change` is held.
    pub(in super::super) fn renew_promises(&self, range: Range<u64>) {
        let is_promised = |region: &Region| region.flags().contains(RegionFlags::PROMISED);
        if !self.regions.read().find(range.start).is_some_and(is_promised) {
            return;
        }
        // SAFETY: `change` is held, so the tables stay.
        unsafe {
            self.tables.tree().for_each_place(range, &mut |place| {
                if place.mark() == Some(Mark::Used) && huge_pool::promise(1).is_ok() {
                    place.take();
                }
            });
        }
    }
}
