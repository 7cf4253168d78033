//! Access to the memory of a program that is not running here (ptrace, `/proc/PID/mem`, process_vm_readv).
//!
//! The page is found as by a fault of that program; the bytes are copied a page at a time under the region lock.

use super::entry::UNCOUNTED;
use super::request::MapBacking;
use super::space::{AddressSpace, zero_page};
use crate::frame::Frame;
use crate::region::{RegionFlags, RegionTree};
use core::mem::ManuallyDrop;
use machine::address::{PAGE_SIZE, UserAddr};
use machine::fault::{Access, FaultError};
use machine::page_table::{Entry, EntryFlags};

/// Faults per page before giving up: another thread may take the page away again and again.
pub(super) const MAX_TRIES: usize = 100;

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

    /// Reads bytes of private memory without a file, and brings nothing in for it; returns how many, which is fewer than asked for where other memory begins.
    /// Whoever looks so waits for nobody, whatever the program has put in the place of what is looked for.
    pub fn read_own(&self, address: UserAddr, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            let Some(position) = address.checked_add(done as u64) else { break };
            let offset = position.page_offset();
            let count = (PAGE_SIZE - offset).min(buffer.len() - done);
            if !self.read_own_page(position.page_floor().as_u64(), offset, &mut buffer[done..done + count]) {
                break;
            }
            done += count;
        }
        done
    }

    fn read_own_page(&self, page: u64, offset: usize, piece: &mut [u8]) -> bool {
        for _ in 0..MAX_TRIES {
            let regions = self.regions.read();
            let Some(region) = regions.find(page) else { return false };
            let is_own = matches!(region.backing(), MapBacking::Anonymous)
                && !region.flags().intersects(RegionFlags::SHARED | RegionFlags::POOLED)
                && region.flags().intersects(RegionFlags::PROTECTION);
            if !is_own {
                return false;
            }
            if let Some(frame) = self.present_frame(&regions, page, Access::Read) {
                frame.read(offset, piece);
                return true;
            }
            if self.entry_under_lock(page).is_empty() {
                // It was never stored to.
                piece.fill(0);
                return true;
            }
        }
        false
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
            let page = position.page_floor();
            match self.with_page(page, access, |frame| transfer(frame, offset, done, count)) {
                Ok(()) => done += count,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// The frame behind a page, after faulting it in as need be.
    ///
    /// # Errors
    /// Why the program could not access the page either.
    pub fn page_for(&self, page: UserAddr, access: Access) -> Result<Frame, FaultError> {
        self.with_page(page, access, Frame::clone)
    }

    /// Calls `visit` with the frame behind a page, after faulting it in as need be. The region lock is held meanwhile, so
    /// that a fork sees all of the visit or nothing.
    fn with_page<R>(
        &self,
        page: UserAddr,
        access: Access,
        mut visit: impl FnMut(&Frame) -> R,
    ) -> Result<R, FaultError> {
        for _ in 0..MAX_TRIES {
            let visited = {
                let regions = self.regions.read();
                self.present_frame(&regions, page.as_u64(), access).map(|frame| visit(&frame))
            };
            match visited {
                Some(result) => return Ok(result),
                None => self.fault(page, access)?,
            }
        }
        Err(FaultError::OutOfMemory)
    }

    /// The frame of a page if the program could access it right now, with a reference.
    pub(super) fn present_frame(&self, regions: &RegionTree, page: u64, access: Access) -> Option<Frame> {
        let region = regions.find(page)?;
        let needed = match access {
            Access::Read => RegionFlags::empty(),
            Access::Write => RegionFlags::WRITE,
            Access::Execute => RegionFlags::EXECUTE,
        };
        if !region.flags().intersects(RegionFlags::PROTECTION) || !region.flags().contains(needed) {
            return None;
        }
        let entry = self.entry_under_lock(page);
        let store = access == Access::Write;
        if !entry.is_present() || store && !entry.contains(EntryFlags::WRITABLE) {
            return None;
        }
        let owned_elsewhere = entry.contains(UNCOUNTED) || matches!(region.backing(), MapBacking::Special(_));
        if owned_elsewhere {
            debug_assert!(!entry.contains(UNCOUNTED) || entry.physical() == zero_page());
            // SAFETY: the page of zeros is never freed, and the region keeps the frames of a special mapping.
            let owned = ManuallyDrop::new(unsafe { Frame::from_physical(entry.physical()) });
            return Some((*owned).clone());
        }
        // The entry may lose its frame at any moment (advice, another fault). Once there is a reference and the entry
        // still names the frame, it is the right one and stays.
        let frame = Frame::try_from_physical(entry.physical())?;
        let now = self.entry_under_lock(page);
        let same = now.is_present() && now.physical() == entry.physical();
        (same && (!store || now.contains(EntryFlags::WRITABLE))).then_some(frame)
    }

    /// The entry of a page, as the processor sees it; empty where there is no table. The region lock is held and a region contains the page.
    pub(super) fn entry_under_lock(&self, page: u64) -> Entry {
        // SAFETY: the region lock keeps the region, and the region its tables.
        unsafe { self.tables.tree().entry(page) }
    }

    /// The entry of a page, if a region contains the page.
    pub(super) fn entry_at(&self, page: u64) -> Option<Entry> {
        let regions = self.regions.read();
        regions.find(page).map(|_| self.entry_under_lock(page))
    }

    /// Whether a page has a frame.
    pub(super) fn has_page(&self, page: u64) -> bool {
        self.entry_at(page).is_some_and(|entry| !entry.is_empty())
    }
}
