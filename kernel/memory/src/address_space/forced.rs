//! Stores of a debugger into pages that the program itself may only read (ptrace, `/proc/PID/mem`).
//!
//! A page of a private mapping becomes the program's own copy, which it still may not write: a breakpoint in a library's code is seen by nobody else.
//! Pages of shared mappings are refused, because what is stored there would be. The store is made in the attempt that finds the page to be the
//! program's own, under the region lock, so that a fork sees all of it or nothing.

use super::entry::{self, PRIVATE, UNCOUNTED, borrow_frame};
use super::fault::{Step, slot_of};
use super::remote::MAX_TRIES;
use super::request::MapBacking;
use super::space::AddressSpace;
use crate::frame::Frame;
use crate::region::RegionFlags;
use core::cell::Cell;
use core::sync::atomic::Ordering;
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};
use machine::page_table::{EntryFlags, NoLeaf};

impl AddressSpace {
    /// Writes bytes as the program would, or where it may only read; returns how many.
    ///
    /// # Errors
    /// When not even the first byte can be written.
    pub fn write_forced(&self, address: UserAddr, bytes: &[u8]) -> Result<usize, FaultError> {
        let mut done = 0;
        while done < bytes.len() {
            let position = address.checked_add(done as u64).ok_or(FaultError::NotMapped)?;
            let offset = position.page_offset();
            let count = (PAGE_SIZE - offset).min(bytes.len() - done);
            let part = &bytes[done..done + count];
            let written = self.write_remote(position, part).map(|_| ()).or_else(|error| match error {
                FaultError::AccessDenied => self.force(position.page_floor().as_u64(), offset, part),
                error => Err(error),
            });
            match written {
                Ok(()) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn force(&self, page: u64, offset: usize, bytes: &[u8]) -> Result<(), FaultError> {
        for _ in 0..MAX_TRIES {
            self.expect_private_pages(page);
            // Brought as for a reader first; it may be taken away again before the attempt.
            self.fault(UserAddr::new(page), Access::Read)?;
            let absent = Cell::new(false);
            let mut attempt = || self.attempt_forced(page, &absent, &|frame| frame.write(offset, bytes));
            let first = attempt();
            let outcome = self.settle(page, first, &mut attempt);
            if !absent.get() {
                return outcome;
            }
        }
        Err(FaultError::OutOfMemory)
    }

    /// A region that the program may not write to has had no pages of its own, and a fork would look for none.
    fn expect_private_pages(&self, page: u64) {
        let is_ready =
            |flags: RegionFlags| flags.intersects(RegionFlags::MAY_HAVE_PRIVATE | RegionFlags::SHARED);
        if self.regions.read().find(page).is_none_or(|region| is_ready(region.flags())) {
            return;
        }
        let _no_fork = self.change.lock();
        let mut regions = self.regions.write();
        let Some((start, end)) = regions.find(page).map(|region| (region.start(), region.end())) else {
            return;
        };
        regions.change(start, end, |region| {
            if !is_ready(region.flags) {
                region.flags |= RegionFlags::MAY_HAVE_PRIVATE;
            }
        });
    }

    /// One attempt, as for a fault. Notes that the page is absent, or the region another one.
    fn attempt_forced(&self, page: u64, absent: &Cell<bool>, store: &dyn Fn(&Frame)) -> Step {
        let regions = self.regions.read_locally();
        let Some(region) = regions.find(page) else { return Step::Refused(FaultError::NotMapped) };
        let flags = region.flags();
        let is_own = matches!(region.backing(), MapBacking::Anonymous | MapBacking::File(_));
        let refused = flags.intersects(RegionFlags::SHARED | RegionFlags::RESERVED | RegionFlags::POOLED);
        if refused || !is_own || !flags.intersects(RegionFlags::PROTECTION) {
            return Step::Refused(FaultError::AccessDenied);
        }
        if !flags.contains(RegionFlags::MAY_HAVE_PRIVATE) {
            absent.set(true);
            return Step::Refused(FaultError::NotMapped);
        }
        if self.copying.load(Ordering::Acquire) {
            return Step::Copying;
        }
        // SAFETY: the region lock is held and the address lies in a region, so the tables stay.
        let leaf = match unsafe { self.tables.tree().leaf_or_create(page, &*self.tables) } {
            Ok(leaf) => leaf,
            Err(NoLeaf::OutOfMemory) => return Step::Memory,
            Err(NoLeaf::Shared | NoLeaf::Huge(_) | NoLeaf::Absent) => return Step::Shared,
        };
        let cell = &leaf[slot_of(page)];
        let found = cell.load();
        if !found.is_present() {
            absent.set(true);
            return Step::Refused(FaultError::NotMapped);
        }
        if found.contains(PRIVATE) && !found.contains(UNCOUNTED) {
            // SAFETY: the region lock is held; only another fault can replace the entry.
            let frame = unsafe { borrow_frame(found) };
            if frame.references() == 1 {
                store(&frame);
                return Step::Done;
            }
        }
        let own = entry::readable(flags) | EntryFlags::ACCESSED | EntryFlags::DIRTY | PRIVATE;
        match self.copy_on_write(page, cell, found, own) {
            Step::Done => Step::Again,
            step => step,
        }
    }
}
