//! Writing shared pages back (msync).

use super::error::MapError;
use super::map::cache_of;
use super::request::SyncMode;
use super::space::AddressSpace;
use super::unmap::page_range;
use crate::region::RegionFlags;
use machine::address::UserAddr;

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
        let range = page_range(start, length)
            .map_err(|error| if start.page_offset() == 0 { MapError::OutOfMemory } else { error })?;
        self.each_piece(range, |piece| {
            if invalidate && piece.flags().contains(RegionFlags::LOCKED) {
                return Err(MapError::Busy);
            }
            if mode == SyncMode::Synchronous
                && piece.flags().contains(RegionFlags::SHARED)
                && let Some(cache) = cache_of(piece.backing())
            {
                let first = piece.page_of(piece.start());
                cache.write_back(first, first + piece.pages()).map_err(|_| MapError::InputOutput)?;
            }
            Ok(())
        })
    }
}
