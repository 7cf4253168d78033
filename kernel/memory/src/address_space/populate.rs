//! Making pages present before they are touched.

use super::space::AddressSpace;
use crate::region::RegionFlags;
use core::ops::Range;
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};

impl AddressSpace {
    /// Touches all pages of a range as the program could: for writing where that is allowed and stays private (or
    /// `write` demands it nowhere else), else for reading. Holes and inaccessible regions end it.
    pub(super) fn populate(&self, range: Range<u64>, locking: bool) -> Result<(), FaultError> {
        let mut address = range.start;
        while address < range.end {
            let (end, flags) = {
                let regions = self.regions.read();
                let region = regions.find(address).ok_or(FaultError::NotMapped)?;
                (region.end().min(range.end), region.flags())
            };
            if locking && flags.contains(RegionFlags::LOCK_ON_FAULT) {
                address = end;
                continue;
            }
            let access = if flags.contains(RegionFlags::WRITE) && !flags.contains(RegionFlags::SHARED) {
                Access::Write
            } else {
                Access::Read
            };
            self.touch(address..end, access)?;
            address = end;
        }
        Ok(())
    }

    /// Touches all pages of a range with one kind of access. A program may ask for terabytes: its end cuts that short.
    pub(super) fn touch(&self, range: Range<u64>, access: Access) -> Result<(), FaultError> {
        /// Pages touched between two looks whether the program shall end.
        const LOOK_EVERY_BYTES: u64 = 64 * PAGE_SIZE as u64;
        let mut address = range.start;
        while address < range.end {
            if (address - range.start).is_multiple_of(LOOK_EVERY_BYTES) && crate::oom::caller_is_dying() {
                return Err(FaultError::OutOfMemory);
            }
            self.fault(UserAddr::new(address), access)?;
            address += PAGE_SIZE as u64;
        }
        Ok(())
    }
}
