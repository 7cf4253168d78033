//! Access to the memory of a program that is not running here (ptrace, `/proc/PID/mem`, process_vm_readv).
//!
//! The page is found as by a fault of that program, its frame held by a reference, and the bytes copied without any lock.

use super::entry::{PRIVATE, UNCOUNTED, borrow_frame};
use super::space::{AddressSpace, zero_page};
use crate::frame::Frame;
use crate::region::RegionFlags;
use core::mem::ManuallyDrop;
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};
use machine::page_table::{Entry, EntryFlags};

/// Faults per page before giving up: another thread may take the page away again and again.
const MAX_TRIES: usize = 100;

impl AddressSpace {
    /// Reads bytes as the program would; returns how many, which is fewer than asked for when a page can't be read.
    ///
    /// # Errors
    /// When not even the first byte can be read.
    pub fn read_remote(&self, address: UserAddr, buffer: &mut [u8]) -> Result<usize, FaultError> {
        self.access_remote(address, buffer.len(), Access::Read, |frame, offset, done, count| {
            frame.read(offset, &mut buffer[done..done + count]);
        })
    }

    /// Writes bytes as the program would; returns how many.
    ///
    /// # Errors
    /// When not even the first byte can be written.
    pub fn write_remote(&self, address: UserAddr, bytes: &[u8]) -> Result<usize, FaultError> {
        self.access_remote(address, bytes.len(), Access::Write, |frame, offset, done, count| {
            frame.write(offset, &bytes[done..done + count]);
        })
    }

    fn access_remote(
        &self,
        address: UserAddr,
        bytes: usize,
        access: Access,
        mut transfer: impl FnMut(&Frame, usize, usize, usize),
    ) -> Result<usize, FaultError> {
        let mut done = 0;
        while done < bytes {
            let position = address.checked_add(done as u64).ok_or(FaultError::NotMapped)?;
            let offset = position.page_offset();
            let count = (PAGE_SIZE - offset).min(bytes - done);
            match self.page_for(position.page_floor(), access) {
                Ok(frame) => transfer(&frame, offset, done, count),
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
            done += count;
        }
        Ok(done)
    }

    /// The frame behind a page, after faulting it in as need be.
    pub fn page_for(&self, page: UserAddr, access: Access) -> Result<Frame, FaultError> {
        for _ in 0..MAX_TRIES {
            if let Some(frame) = self.mapped_frame(page.as_u64(), access) {
                return Ok(frame);
            }
            self.fault(page, access)?;
        }
        Err(FaultError::OutOfMemory)
    }

    fn mapped_frame(&self, page: u64, access: Access) -> Option<Frame> {
        let regions = self.regions.read();
        let flags = regions.find(page)?.flags();
        let allowed = match access {
            Access::Read => flags.intersects(RegionFlags::PROTECTION),
            Access::Write => flags.contains(RegionFlags::WRITE),
            Access::Execute => flags.contains(RegionFlags::EXECUTE),
        };
        if !allowed {
            return None;
        }
        let entry = self.entry_under_lock(page);
        let needed = if access == Access::Write {
            EntryFlags::PRESENT | EntryFlags::WRITABLE
        } else {
            EntryFlags::PRESENT
        };
        if !entry.contains(needed) {
            return None;
        }
        let holder = if entry.contains(UNCOUNTED) {
            debug_assert_eq!(entry.physical(), zero_page());
            // SAFETY: the page of zeros is never freed.
            ManuallyDrop::new(unsafe { Frame::from_physical(entry.physical()) })
        } else {
            // A private page may be replaced by a concurrent fault on write, which then drops the entry's reference; only
            // file pages and pages that nobody shares are safe to take as they are.
            // SAFETY: the region lock is held. The entry is either writable, so that no fault replaces it, or checked
            // again below after the reference was taken.
            unsafe { borrow_frame(entry) }
        };
        let frame = Frame::try_from_physical(holder.physical()).or_else(|| {
            let kept = entry.contains(UNCOUNTED) || !entry.contains(PRIVATE);
            kept.then(|| (*holder).clone())
        })?;
        let now = self.entry_under_lock(page);
        (now.physical() == entry.physical() && now.is_present()).then_some(frame)
    }

    /// The entry of a page; empty where there is no table. The region lock is held and a region contains the page.
    fn entry_under_lock(&self, page: u64) -> Entry {
        // SAFETY: the region lock keeps the region, and the region its tables.
        unsafe { self.tables.tree().find(page) }.map_or(Entry::EMPTY, |cell| cell.load())
    }

    /// Whether a page has a frame.
    pub(super) fn has_page(&self, page: u64) -> bool {
        let regions = self.regions.read();
        regions.find(page).is_some() && !self.entry_under_lock(page).is_empty()
    }
}
