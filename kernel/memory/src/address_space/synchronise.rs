//! Writing shared pages back (msync).

use super::error::MapError;
use super::request::{MapBacking, SyncMode};
use super::space::AddressSpace;
use super::unmap::{page_range, round_up};
use crate::region::RegionFlags;
use machine::address::{PAGE_SHIFT, UserAddr};

impl AddressSpace {
    /// Writes the shared pages of a range back.
    ///
    /// # Errors
    /// As msync(2).
    pub fn sync(
        &self,
        start: UserAddr,
        length: u64,
        mode: SyncMode,
        invalidate: bool,
    ) -> Result<(), MapError> {
        // As on Linux, whose length of all memory is none.
        let length = round_up(length).unwrap_or(0);
        let range = page_range(start, length)
            .map_err(|error| if start.page_offset() == 0 { MapError::OutOfMemory } else { error })?;
        self.each_piece(range, |piece| {
            if invalidate && piece.flags().contains(RegionFlags::LOCKED) {
                return Err(MapError::Busy);
            }
            if mode == SyncMode::Synchronous
                && piece.flags().contains(RegionFlags::SHARED)
                && let MapBacking::File(mapping) = piece.backing()
                && mapping.cache().has_representative()
            {
                let first = piece.page_of(piece.start());
                let end = first + piece.pages();
                let done = match mapping.object() {
                    Some(object) => object.make_durable(first << PAGE_SHIFT, end << PAGE_SHIFT),
                    None => mapping.cache().write_back(first, end).is_ok(),
                };
                if !done {
                    return Err(MapError::InputOutput);
                }
            }
            Ok(())
        })
    }
}
