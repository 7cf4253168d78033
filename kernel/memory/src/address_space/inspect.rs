//! Looking at an address space: regions for `/proc/PID/maps`, residency for mincore.

use super::entry::{PRIVATE, UNCOUNTED};
use super::error::MapError;
use super::map::cache_of;
use super::space::AddressSpace;
use super::unmap::page_range;
use crate::frame::Frame;
use crate::region::Region;
use core::ops::ControlFlow;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};

/// A page that is in memory, as `/proc/PID/pagemap` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresentPage {
    /// The number of its frame.
    pub frame_number: u64,
    /// It belongs to a file or to shared memory.
    pub of_file: bool,
    /// Nobody else has it mapped; always false of the page of zeros.
    pub exclusive: bool,
}

impl AddressSpace {
    /// A copy of the region that contains the address, or of the next one above.
    pub fn region_at_or_after(&self, address: UserAddr) -> Option<Region> {
        let regions = self.regions.read();
        regions.locate(address.as_u64()).map(|position| regions.at(position).clone())
    }

    /// Calls `visit` with a copy of each region in ascending order. No lock is held meanwhile, so the picture may be one
    /// of a moving object.
    pub fn for_each_region(&self, mut visit: impl FnMut(&Region)) {
        let mut address = 0;
        while let Some(region) = self.region_at_or_after(UserAddr::new(address)) {
            visit(&region);
            address = region.end();
        }
    }

    /// Number of regions.
    pub fn region_count(&self) -> usize {
        self.regions.read().count()
    }

    /// Says for each page of a range whether it is in memory (mincore).
    ///
    /// # Errors
    /// As mincore(2): ENOMEM for a hole.
    pub fn resident(
        &self,
        start: UserAddr,
        length: u64,
        mut report: impl FnMut(bool),
    ) -> Result<(), MapError> {
        let range = page_range(start, length)
            .map_err(|error| if start.page_offset() == 0 { MapError::OutOfMemory } else { error })?;
        let mut expected = range.start;
        self.each_piece(range, |piece| {
            if piece.start() != expected {
                return Err(MapError::OutOfMemory);
            }
            expected = piece.end();
            let mut address = piece.start();
            while address < piece.end() {
                let mapped = self.has_page(address);
                let cached = || {
                    cache_of(piece.backing()).is_some_and(|cache| cache.is_resident(piece.page_of(address)))
                };
                report(mapped || cached());
                address += PAGE_SIZE as u64;
            }
            Ok(())
        })
    }

    /// What a page has in memory; `None` when it has nothing, or nothing that may be accessed.
    pub fn present_page(&self, page: UserAddr) -> Option<PresentPage> {
        let entry = self.entry_at(page.as_u64())?;
        if !entry.is_present() {
            return None;
        }
        let frame_number = entry.physical().as_u64() >> PAGE_SHIFT;
        let counted = !entry.contains(UNCOUNTED);
        let private = entry.contains(PRIVATE);
        let exclusive = counted
            && !self.shares_table(page.as_u64())
            && Frame::try_from_physical(entry.physical()).is_some_and(|frame| {
                // Its own reference and the one just taken; a file's page has its cache's, too.
                frame.references() <= if private { 2 } else { 3 }
            });
        Some(PresentPage { frame_number, of_file: counted && !private, exclusive })
    }

    /// The first page at or after `from`, below `end`, that has something in memory of its own entry: a frame, or the page of zeros.
    pub fn next_in_tables(&self, from: UserAddr, end: u64) -> Option<UserAddr> {
        let _layout = self.change.lock();
        // SAFETY: `change` is held, so the tables stay.
        let found = unsafe {
            self.tables.tree().for_each_leaf(from.as_u64()..end, |leaf| {
                match leaf.cells.iter().position(|cell| !cell.load().is_empty()) {
                    Some(index) => ControlFlow::Break(leaf.base + (index * PAGE_SIZE) as u64),
                    None => ControlFlow::Continue(()),
                }
            })
        };
        match found {
            ControlFlow::Break(address) => Some(UserAddr::new(address)),
            ControlFlow::Continue(()) => None,
        }
    }

    /// Copies a page that is in memory and belongs to the program or a file, whatever the program may do with it. Returns whether there was one.
    pub fn copy_page(&self, page: UserAddr, buffer: &mut [u8; PAGE_SIZE]) -> bool {
        let Some(entry) = self.entry_at(page.as_u64()) else { return false };
        if entry.is_empty() || entry.contains(UNCOUNTED) {
            return false;
        }
        let frame = Frame::try_from_physical(entry.physical());
        // The entry may have lost its frame before there was a reference. If it still names it, it is the right one.
        let now = self.entry_at(page.as_u64());
        let frame = frame.filter(|frame| now.is_some_and(|now| now.physical() == frame.physical()));
        frame.map(|frame| frame.read(0, buffer)).is_some()
    }
}
