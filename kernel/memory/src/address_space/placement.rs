//! Where a new mapping goes.

use super::error::MapError;
use super::request::{MapFlags, MapRequest};
use super::space::{Layout, MINIMUM_ADDRESS, USER_TOP};
use super::unmap::round_up;
use crate::huge_pool::HUGE_PAGE_BYTES;
use crate::region::RegionTree;
use core::ops::Range;
use machine::address::PAGE_SIZE;

/// Where mappings go whose addresses are to fit 31 bits: above most programs that are linked there.
const SECOND_GIB: Range<u64> = 1 << 30..1 << 31;

/// A request after its arguments have been checked: page-aligned bytes.
pub(super) struct Placed {
    pub(super) start: u64,
    pub(super) end: u64,
    /// What is there must go first.
    pub(super) replaces: bool,
}

impl Placed {
    pub(super) fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    pub(super) fn pages(&self) -> u64 {
        (self.end - self.start) / PAGE_SIZE as u64
    }
}

/// Finds the place for a request.
pub(super) fn place(
    request: &MapRequest,
    layout: &Layout,
    regions: &mut RegionTree,
) -> Result<Placed, MapError> {
    if request.length == 0 {
        return Err(MapError::InvalidArgument);
    }
    let length = round_up(request.length).ok_or(MapError::OutOfMemory)?;
    if length > USER_TOP {
        return Err(MapError::OutOfMemory);
    }
    let wanted = request.address.as_u64();
    let low = if request.flags.contains(MapFlags::KERNEL) { 0 } else { MINIMUM_ADDRESS };
    if request.flags.intersects(MapFlags::FIXED | MapFlags::FIXED_NO_REPLACE) {
        return place_fixed(request, wanted, length, low, regions);
    }
    if request.flags.contains(MapFlags::POOLED) {
        return place_pooled(regions, layout, wanted, length, low.max(MINIMUM_ADDRESS));
    }
    let hint = wanted & !(PAGE_SIZE as u64 - 1);
    if hint >= low && hint > 0 && hint <= USER_TOP - length && is_free(regions, hint, length) {
        return Ok(Placed { start: hint, end: hint + length, replaces: false });
    }
    if request.flags.contains(MapFlags::SECOND_GIB) {
        let start =
            regions.highest_gap(SECOND_GIB.start, SECOND_GIB.end, length).ok_or(MapError::OutOfMemory)?;
        return Ok(Placed { start, end: start + length, replaces: false });
    }
    let start = free_place(regions, layout, low.max(MINIMUM_ADDRESS), length).ok_or(MapError::OutOfMemory)?;
    Ok(Placed { start, end: start + length, replaces: false })
}

/// A place for huge pages: at the first one from the wanted address on, or anywhere.
#[inline(never)]
fn place_pooled(
    regions: &mut RegionTree,
    layout: &Layout,
    wanted: u64,
    length: u64,
    low: u64,
) -> Result<Placed, MapError> {
    let hint = wanted.checked_next_multiple_of(HUGE_PAGE_BYTES).filter(|&hint| hint >= low);
    if let Some(hint) = hint.filter(|&hint| length <= USER_TOP && hint <= USER_TOP - length)
        && is_free(regions, hint, length)
    {
        return Ok(Placed { start: hint, end: hint + length, replaces: false });
    }
    // So much that a multiple of a huge page lies in it.
    let room = length + HUGE_PAGE_BYTES - PAGE_SIZE as u64;
    let start = free_place(regions, layout, low, room).ok_or(MapError::OutOfMemory)?;
    let start = start.next_multiple_of(HUGE_PAGE_BYTES);
    Ok(Placed { start, end: start + length, replaces: false })
}

fn place_fixed(
    request: &MapRequest,
    wanted: u64,
    length: u64,
    low: u64,
    regions: &RegionTree,
) -> Result<Placed, MapError> {
    let unit = if request.flags.contains(MapFlags::POOLED) { HUGE_PAGE_BYTES } else { PAGE_SIZE as u64 };
    if wanted & (unit - 1) != 0 {
        return Err(MapError::InvalidArgument);
    }
    if wanted > USER_TOP - length {
        return Err(MapError::OutOfMemory);
    }
    if wanted < low {
        return Err(MapError::NotPermitted);
    }
    let used = regions.is_used(wanted, wanted + length);
    if used && request.flags.contains(MapFlags::FIXED_NO_REPLACE) {
        return Err(MapError::Exists);
    }
    Ok(Placed { start: wanted, end: wanted + length, replaces: used })
}

/// Whether a hint can be followed: free, and not into the guard of a growing region above.
fn is_free(regions: &mut RegionTree, start: u64, length: u64) -> bool {
    regions.highest_gap(start, start + length, length) == Some(start) && !regions.guards(start + length)
}

/// A free place: the highest below the top of mappings, or else the lowest above it. Where mappings go upwards, only the latter.
pub(super) fn free_place(regions: &mut RegionTree, layout: &Layout, low: u64, length: u64) -> Option<u64> {
    if layout.upwards {
        return regions.lowest_gap(layout.mapping_top, USER_TOP, length);
    }
    regions
        .highest_gap(low, layout.mapping_top, length)
        .or_else(|| regions.lowest_gap(layout.mapping_top, USER_TOP, length))
}
