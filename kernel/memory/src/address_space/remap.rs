//! Moving and resizing mappings (mremap).
//!
//! A move goes: tables for the new place are made (the only step that can fail), a region that refuses all accesses takes
//! the new place, the old region leaves the tree, the entries move, the new region gets its real flags. So at no time can
//! a fault put a page where an entry is about to arrive.

use super::account;
use super::error::MapError;
use super::gather::Gather;
use super::map::is_data;
use super::placement::free_place;
use super::request::{MapBacking, RemapFlags};
use super::space::{AddressSpace, Layout, MAX_REGIONS, MINIMUM_ADDRESS, USER_TOP};
use super::unmap::{self, Dropped, round_up};
use crate::huge_pool::HUGE_PAGE_BYTES;
use crate::parking::SleepGuard;
use crate::region::{Region, RegionFlags};
use core::ops::{ControlFlow, Range};
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};
use machine::page_table::Entry;

/// The end of the old range and the new length, of mappings of huge pages of the pool: in whole ones. They don't grow, since nobody has promised the pages.
fn round_pooled(
    old: Range<u64>,
    new_length: u64,
    flags: RemapFlags,
    target: Option<u64>,
) -> Result<(u64, u64), MapError> {
    let round = |bytes: u64| bytes.checked_next_multiple_of(HUGE_PAGE_BYTES);
    let (old_length, new_length) = (round(old.end - old.start), round(new_length));
    let (Some(old_length), Some(new_length)) = (old_length, new_length) else {
        return Err(MapError::InvalidArgument);
    };
    let unaligned = |address: u64| !address.is_multiple_of(HUGE_PAGE_BYTES);
    let overlaps =
        |target: u64| target < old.start + old_length && old.start < target.saturating_add(new_length);
    if unaligned(old.start)
        || target.is_some_and(|target| unaligned(target) || overlaps(target))
        || new_length > old_length
        || flags.contains(RemapFlags::DONT_UNMAP)
    {
        return Err(MapError::InvalidArgument);
    }
    Ok((old.start + old_length, new_length))
}

impl AddressSpace {
    /// Resizes or moves a mapping; returns where it is afterwards.
    ///
    /// # Errors
    /// As mremap(2).
    pub fn remap(
        &self,
        old: UserAddr,
        old_length: u64,
        new_length: u64,
        flags: RemapFlags,
        new: UserAddr,
    ) -> Result<UserAddr, MapError> {
        let page = PAGE_SIZE as u64 - 1;
        let moves_only = flags.intersects(RemapFlags::FIXED | RemapFlags::DONT_UNMAP);
        let (old, old_length) = (old.as_u64(), round_up(old_length).ok_or(MapError::InvalidArgument)?);
        let new_length = round_up(new_length).ok_or(MapError::InvalidArgument)?;
        if old & page != 0
            || new_length == 0
            || new_length > USER_TOP
            || moves_only && !flags.contains(RemapFlags::MAY_MOVE)
            || flags.contains(RemapFlags::DONT_UNMAP) && old_length != new_length
        {
            return Err(MapError::InvalidArgument);
        }
        let old_end =
            old.checked_add(old_length).filter(|&end| end <= USER_TOP).ok_or(MapError::BadAddress)?;
        let target = flags.contains(RemapFlags::FIXED).then_some(new.as_u64());
        if let Some(target) = target {
            let overlaps = target < old_end && old < target.saturating_add(new_length);
            if target & page != 0 || target > USER_TOP - new_length || overlaps {
                return Err(MapError::InvalidArgument);
            }
            if target < MINIMUM_ADDRESS {
                return Err(MapError::NotPermitted);
            }
        }
        let mut layout = self.change.lock();
        let (mut old_end, mut new_length) = (old_end, new_length);
        let is_pooled = |region: &Region| region.flags().contains(RegionFlags::POOLED);
        let may_be_pooled = self.closes_tables.load(Ordering::Relaxed);
        if may_be_pooled && self.regions.read().find(old).is_some_and(is_pooled) {
            (old_end, new_length) = round_pooled(old..old_end, new_length, flags, target)?;
        }
        let (result, dropped) = self.remap_locked(&mut layout, old..old_end, new_length, flags, target)?;
        let locked = self.regions.read().find(result).is_some_and(|region| {
            region.flags().contains(RegionFlags::LOCKED)
                && !region.flags().contains(RegionFlags::LOCK_ON_FAULT)
        });
        self.note_pages();
        drop(layout);
        drop(dropped);
        if locked && new_length > old_length {
            // Locked memory that can't be brought in is found out when it is touched.
            let _ = self.populate(result..result + new_length, true);
        }
        Ok(UserAddr::new(result))
    }

    fn remap_locked(
        &self,
        layout: &mut SleepGuard<'_, Layout>,
        old: Range<u64>,
        new_length: u64,
        flags: RemapFlags,
        target: Option<u64>,
    ) -> Result<(u64, Dropped), MapError> {
        let old_length = old.end - old.start;
        let in_place = target.is_none() && !flags.contains(RemapFlags::DONT_UNMAP);
        if in_place && old_length >= new_length && old_length > 0 {
            if self.regions.read().find(old.start).is_none() {
                return Err(MapError::BadAddress);
            }
            let dropped = if new_length < old_length {
                self.remove_range(layout, old.start + new_length..old.end)?
            } else {
                Dropped::new()
            };
            return Ok((old.start, dropped));
        }
        let region = self.regions.read().find(old.start).cloned().ok_or(MapError::BadAddress)?;
        self.check_remap(&region, &old, new_length, flags)?;
        if in_place && old_length > 0 && self.extend_in_place(&region, &old, new_length)? {
            return Ok((old.start, Dropped::new()));
        }
        if !flags.contains(RemapFlags::MAY_MOVE) {
            return Err(MapError::OutOfMemory);
        }
        self.move_region(layout, &region, old, new_length, flags, target)
    }

    fn check_remap(
        &self,
        region: &Region,
        old: &Range<u64>,
        new_length: u64,
        flags: RemapFlags,
    ) -> Result<(), MapError> {
        let old_length = old.end - old.start;
        let shared = region.flags().contains(RegionFlags::SHARED);
        // A length of 0 makes a second mapping of shared pages.
        if old_length == 0 && !shared {
            return Err(MapError::InvalidArgument);
        }
        if flags.contains(RemapFlags::DONT_UNMAP) && matches!(region.backing(), MapBacking::Special(_)) {
            return Err(MapError::InvalidArgument);
        }
        if old.end > region.end() {
            return Err(MapError::BadAddress);
        }
        if new_length > old_length {
            if matches!(region.backing(), MapBacking::Special(_)) {
                return Err(MapError::BadAddress);
            }
            self.check_growth(region.flags(), (new_length - old_length) >> PAGE_SHIFT)?;
        }
        Ok(())
    }

    fn check_growth(&self, flags: RegionFlags, pages: u64) -> Result<(), MapError> {
        let limits = self.limits();
        if self.regions.read().pages() + pages > limits.address_space >> PAGE_SHIFT {
            return Err(MapError::OutOfMemory);
        }
        let data_limit = limits.data != u64::MAX && is_data(flags);
        if data_limit && self.pages_where(is_data) + pages > limits.data >> PAGE_SHIFT {
            return Err(MapError::OutOfMemory);
        }
        let locked = flags.contains(RegionFlags::LOCKED);
        if locked && self.locked_pages.load(Ordering::Relaxed) + pages > limits.locked >> PAGE_SHIFT {
            return Err(MapError::TooMuchLocked);
        }
        Ok(())
    }

    /// Extends a region whose end is the old range's, if the space above is free.
    fn extend_in_place(&self, region: &Region, old: &Range<u64>, new_length: u64) -> Result<bool, MapError> {
        let end = old.start + new_length;
        if region.end() != old.end || end > USER_TOP {
            return Ok(false);
        }
        {
            let regions = self.regions.read();
            if regions.is_used(old.end, end) || regions.guards(end) {
                return Ok(false);
            }
        }
        let grown = (end - old.end) >> PAGE_SHIFT;
        if region.flags().contains(RegionFlags::ACCOUNTED) {
            account::charge(grown)?;
        }
        if region.flags().contains(RegionFlags::LOCKED) {
            self.locked_pages.fetch_add(grown, Ordering::Relaxed);
        }
        let mut regions = self.regions.write();
        let position = regions.locate(old.start).expect("`change` is held, so the region is still there");
        regions.grow_up(position, end);
        Ok(true)
    }

    /// Moves (or doubles) what is mapped to another place.
    fn move_region(
        &self,
        layout: &mut SleepGuard<'_, Layout>,
        region: &Region,
        old: Range<u64>,
        new_length: u64,
        flags: RemapFlags,
        target: Option<u64>,
    ) -> Result<(u64, Dropped), MapError> {
        self.own_tables(old.clone())?;
        self.own_cut(old.start)?;
        self.own_cut(old.end)?;
        // The old region may be cut at both ends, and the new one is added.
        if self.regions.read().count() + 3 > MAX_REGIONS {
            return Err(MapError::OutOfMemory);
        }
        let mut dropped = Dropped::new();
        let start = match target {
            Some(target) => {
                dropped = self.remove_range(layout, target..target + new_length)?;
                target
            }
            None => free_place(&mut self.regions.write(), layout, MINIMUM_ADDRESS, new_length)
                .ok_or(MapError::OutOfMemory)?,
        };
        // Shrinking moves: the tail goes first.
        let old_length = old.end - old.start;
        let kept = old.start..old.start + old_length.min(new_length);
        if kept.end < old.end {
            dropped.append(&mut self.remove_range(layout, kept.end..old.end)?);
        }
        let new = start..start + new_length;
        let stays = flags.contains(RemapFlags::DONT_UNMAP) || old_length == 0;
        self.prepare_move(region, &kept, &new, stays)?;
        if !stays {
            self.take_out(&kept)?;
        }
        if region.flags().contains(RegionFlags::POOLED) {
            self.move_places(&kept, start);
        } else {
            self.move_entries(&kept, start, old_length == 0);
        }
        self.finish_move(region, &kept, &new, stays);
        if !stays {
            self.free_old_tables(&kept);
        }
        Ok((start, dropped))
    }

    /// Everything that can fail: commitment, tables, the (still refusing) region at the new place, cuts at the old one.
    fn prepare_move(
        &self,
        region: &Region,
        kept: &Range<u64>,
        new: &Range<u64>,
        stays: bool,
    ) -> Result<(), MapError> {
        let added = if stays { new.end - new.start } else { (new.end - new.start) - (kept.end - kept.start) };
        let charged = if region.flags().contains(RegionFlags::ACCOUNTED) { added >> PAGE_SHIFT } else { 0 };
        account::charge(charged)?;
        let prepared = self.prepare_place(region, kept, new, stays);
        if prepared.is_err() {
            account::release(charged);
        }
        prepared
    }

    fn prepare_place(
        &self,
        region: &Region,
        kept: &Range<u64>,
        new: &Range<u64>,
        stays: bool,
    ) -> Result<(), MapError> {
        if !stays {
            let mut regions = self.regions.write();
            let cut = regions.split_at(kept.start).and_then(|()| regions.split_at(kept.end));
            if let Err(error) = cut {
                regions.merge_range(kept.start, kept.end);
                return Err(error.into());
            }
        }
        let mut placed = region.clone();
        (placed.start, placed.end) = (new.start, new.end);
        if !matches!(region.backing(), MapBacking::Anonymous | MapBacking::Paged(_)) {
            placed.page_offset = region.page_of(kept.start);
        }
        placed.flags = RegionFlags::RESERVED;
        let inserted = self.regions.write().insert(placed);
        let made = match inserted {
            Ok(()) if region.flags().contains(RegionFlags::POOLED) => {
                self.make_places(kept, new.start).map_err(MapError::from)
            }
            Ok(()) => self.make_tables(kept, new.start),
            Err(refused) => {
                drop(refused);
                return Err(MapError::OutOfMemory);
            }
        };
        if made.is_err() {
            let reserved = self.regions.write().take_first(new.start, new.end);
            drop(reserved);
            self.free_tables_at(new.clone());
            self.regions.write().merge_range(kept.start, kept.end);
        }
        made
    }

    /// Makes the tables at the new place that the entries of the old one will need.
    fn make_tables(&self, old: &Range<u64>, new_start: u64) -> Result<(), MapError> {
        // SAFETY: `change` is held, so the tables stay.
        let made = unsafe {
            self.tables.tree().for_each_leaf(old.clone(), |leaf| {
                let target = new_start + (leaf.base - old.start);
                let last = target + (leaf.cells.len() as u64 - 1) * PAGE_SIZE as u64;
                let tables = &*self.tables;
                let first_made = tables.tree().leaf_or_create(target, tables).is_ok();
                if first_made && tables.tree().leaf_or_create(last, tables).is_ok() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                }
            })
        };
        if made.is_break() { Err(MapError::OutOfMemory) } else { Ok(()) }
    }

    /// Takes the regions of the old place out of the tree; their entries stay for the move.
    fn take_out(&self, old: &Range<u64>) -> Result<(), MapError> {
        let mut regions = self.regions.write();
        while let Some(region) = regions.take_first(old.start, old.end) {
            // The new place has the same backing: this is never the last reference.
            drop(region);
        }
        Ok(())
    }

    /// Moves the entries. A doubled mapping begins without pages.
    fn move_entries(&self, old: &Range<u64>, new_start: u64, doubles: bool) {
        if doubles {
            return;
        }
        // SAFETY: `change` is held, so the tables stay.
        let _ = unsafe {
            self.tables.tree().for_each_leaf(old.clone(), |leaf| {
                for (number, cell) in leaf.cells.iter().enumerate() {
                    if cell.load().is_empty() {
                        continue;
                    }
                    let entry = cell.swap(Entry::EMPTY);
                    let address = new_start + (leaf.base - old.start) + number as u64 * PAGE_SIZE as u64;
                    let target = self.tables.tree().find(address);
                    target.expect("`make_tables` has made the table").store(entry);
                }
                ControlFlow::<()>::Continue(())
            })
        };
        self.tables.forget(old.start, old.end, false);
    }

    /// Gives the new region its flags.
    fn finish_move(&self, region: &Region, old: &Range<u64>, new: &Range<u64>, stays: bool) {
        let pages = (new.end - new.start) >> PAGE_SHIFT;
        let mut flags = region.flags();
        if stays && old.end > old.start {
            // The old place is empty and unlocked (mremap(2), MREMAP_DONTUNMAP); the lock moves along.
            let locked = RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT;
            let cleared = self.change_flags(old.clone(), |region| region.flags().difference(locked));
            if cleared.is_ok() && flags.contains(RegionFlags::LOCKED) {
                self.count_locked(true, false, (old.end - old.start) >> PAGE_SHIFT);
            }
        } else if !stays && flags.contains(RegionFlags::LOCKED) {
            self.count_locked(true, false, (old.end - old.start) >> PAGE_SHIFT);
        }
        flags.remove(RegionFlags::HEAP);
        self.count_locked(false, flags.contains(RegionFlags::LOCKED), pages);
        self.regions.write().change(new.start, new.end, |region| region.flags = flags);
    }

    fn free_old_tables(&self, old: &Range<u64>) {
        self.free_tables_at(old.clone());
        // What surrounds the gap may now be like its new neighbour.
        self.regions.write().merge_range(old.start, old.end);
    }

    /// Takes tables out of a range that has no region any more.
    fn free_tables_at(&self, range: Range<u64>) {
        let (floor, ceiling) = {
            let regions = self.regions.read();
            (
                regions.before(range.start).map_or(0, |position| regions.at(position).end()),
                regions.locate(range.start).map_or(unmap::TABLE_TOP, |position| regions.at(position).start()),
            )
        };
        let mut gather = Gather::new(&self.tables);
        gather.cover(range.clone());
        unmap::free_tables(&self.tables, range, floor, ceiling, &mut gather);
    }
}
