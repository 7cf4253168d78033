//! Keeping pages in memory (mlock and its relatives). There is no swap: a locked page is one that was made present and is
//! not given up by advice.

use super::error::MapError;
use super::request::{LockAllFlags, MapBacking};
use super::space::{AddressSpace, USER_TOP};
use super::unmap::page_range;
use crate::region::RegionFlags;
use core::ops::Range;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};

impl AddressSpace {
    /// Makes the pages of a range present and keeps them; with `on_fault` each from its first use on.
    ///
    /// # Errors
    /// As mlock(2).
    pub fn lock(&self, start: UserAddr, length: u64, on_fault: bool) -> Result<(), MapError> {
        let range = widened(start, length)?;
        if range.is_empty() {
            return Ok(());
        }
        let limit = self.limits().locked;
        if limit == 0 {
            return Err(MapError::NotPermitted);
        }
        let flags =
            if on_fault { RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT } else { RegionFlags::LOCKED };
        {
            let _layout = self.change.lock();
            let unlocked = self.unlocked_pages(&range);
            if self.locked_pages.load(Ordering::Relaxed) + unlocked > limit >> PAGE_SHIFT {
                return Err(MapError::OutOfMemory);
            }
            self.set_locked(range.clone(), flags)?;
        }
        self.populate(range, true).map_err(|error| match error {
            machine::fault::FaultError::AccessDenied => MapError::OutOfMemory,
            other => lock_error(other),
        })
    }

    /// Gives the pages of a range free again.
    ///
    /// # Errors
    /// As munlock(2).
    pub fn unlock(&self, start: UserAddr, length: u64) -> Result<(), MapError> {
        let range = widened(start, length)?;
        if range.is_empty() {
            return Ok(());
        }
        let _layout = self.change.lock();
        self.set_locked(range, RegionFlags::empty())
    }

    /// Locks everything there is, or will be (mlockall).
    ///
    /// # Errors
    /// As mlockall(2).
    pub fn lock_all(&self, flags: LockAllFlags) -> Result<(), MapError> {
        if flags.is_empty() || flags == LockAllFlags::ON_FAULT {
            return Err(MapError::InvalidArgument);
        }
        let limit = self.limits().locked;
        if limit == 0 {
            return Err(MapError::NotPermitted);
        }
        let mut region_flags = RegionFlags::LOCKED;
        region_flags.set(RegionFlags::LOCK_ON_FAULT, flags.contains(LockAllFlags::ON_FAULT));
        let mut layout = self.change.lock();
        let current = flags.contains(LockAllFlags::CURRENT);
        if current && self.regions.read().pages() > limit >> PAGE_SHIFT {
            return Err(MapError::OutOfMemory);
        }
        let future = flags.contains(LockAllFlags::FUTURE);
        layout.lock_future = if future { region_flags } else { RegionFlags::empty() };
        if !current {
            return Ok(());
        }
        ignore_holes(self.set_locked(0..USER_TOP, region_flags))?;
        drop(layout);
        let mut address = 0;
        while let Some(region) = self.region_at_or_after(UserAddr::new(address)) {
            // As for mlockall(2), what can't be brought in is no error.
            let _ = self.populate(region.start()..region.end(), true);
            address = region.end();
        }
        Ok(())
    }

    /// Undoes [`AddressSpace::lock`] and [`AddressSpace::lock_all`].
    ///
    /// # Errors
    /// When there is no memory to merge regions.
    pub fn unlock_all(&self) -> Result<(), MapError> {
        let mut layout = self.change.lock();
        layout.lock_future = RegionFlags::empty();
        ignore_holes(self.set_locked(0..USER_TOP, RegionFlags::empty()))
    }

    fn unlocked_pages(&self, range: &Range<u64>) -> u64 {
        self.regions
            .read()
            .overlapping(range.start, range.end)
            .filter(|region| !region.flags().contains(RegionFlags::LOCKED))
            .map(|region| (region.end().min(range.end) - region.start().max(range.start)) >> PAGE_SHIFT)
            .sum()
    }

    fn set_locked(&self, range: Range<u64>, flags: RegionFlags) -> Result<(), MapError> {
        let both = RegionFlags::LOCKED | RegionFlags::LOCK_ON_FAULT;
        self.each_piece(range, |piece| {
            if matches!(piece.backing(), MapBacking::Special(_))
                || piece.flags().contains(RegionFlags::POOLED)
            {
                return Ok(());
            }
            let new = piece.flags().difference(both) | flags;
            if new != piece.flags() {
                self.change_flags(piece.start()..piece.end(), |region| {
                    region.flags().difference(both) | flags
                })?;
                let was = piece.flags().contains(RegionFlags::LOCKED);
                self.count_locked(was, new.contains(RegionFlags::LOCKED), piece.pages());
            }
            Ok(())
        })
    }
}

/// mlock widens its range to whole pages.
fn widened(start: UserAddr, length: u64) -> Result<Range<u64>, MapError> {
    let offset = start.page_offset() as u64;
    let length = length.checked_add(offset).ok_or(MapError::InvalidArgument)?;
    debug_assert!(offset < PAGE_SIZE as u64);
    page_range(start.page_floor(), length).map_err(|_| MapError::OutOfMemory)
}

fn ignore_holes(result: Result<(), MapError>) -> Result<(), MapError> {
    // Holes between regions are reported as missing memory; everything that is there has been handled.
    if result == Err(MapError::OutOfMemory) { Ok(()) } else { result }
}

fn lock_error(error: machine::fault::FaultError) -> MapError {
    use machine::fault::FaultError;
    match error {
        FaultError::NotMapped | FaultError::OutOfMemory | FaultError::AccessDenied => MapError::OutOfMemory,
        FaultError::Bus | FaultError::Pager => MapError::TooMuchLocked,
    }
}
