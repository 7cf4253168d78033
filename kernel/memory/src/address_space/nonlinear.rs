//! Pages of a shared file in another order than the file's (remap_file_pages): each change of the order makes mappings of their own, as if by mmap at
//! a fixed place, of the same file and with the same protection.

use super::error::MapError;
use super::map::round_huge;
use super::request::{MapBacking, MapFlags, MapRequest};
use super::space::AddressSpace;
use crate::region::RegionFlags;
use machine::address::{PAGE_SHIFT, PAGE_SIZE, UserAddr};

impl AddressSpace {
    /// Has the part of a shared mapping from `start` on show the file from that page on. Addresses are rounded down to whole pages.
    ///
    /// # Errors
    /// [`MapError::InvalidArgument`] when not all of the part belongs to one shared mapping of one file; as [`AddressSpace::map`].
    pub fn remap_file_pages(
        &self,
        start: UserAddr,
        length: u64,
        page: u64,
        may_wait: bool,
    ) -> Result<(), MapError> {
        const WITHIN_PAGE: u64 = PAGE_SIZE as u64 - 1;
        let (start, length) = (start.as_u64() & !WITHIN_PAGE, length & !WITHIN_PAGE);
        let end = start.checked_add(length).filter(|&end| end > start).ok_or(MapError::InvalidArgument)?;
        page.checked_add(length >> PAGE_SHIFT).ok_or(MapError::InvalidArgument)?;
        let offset = page.checked_mul(PAGE_SIZE as u64).ok_or(MapError::Overflow)?;
        let layout = self.change.lock();
        let mut request = self.same_mapping(start, end)?;
        request.offset = offset;
        request.flags.set(MapFlags::POPULATE, may_wait);
        round_huge(&mut request)?;
        self.map_locked(layout, &request).map(|_| ())
    }

    /// What would make the mapping anew that the whole range belongs to.
    fn same_mapping(&self, start: u64, end: u64) -> Result<MapRequest, MapError> {
        let regions = self.regions.read();
        let first = regions.find(start).ok_or(MapError::InvalidArgument)?;
        let MapBacking::File(file) = first.backing() else { return Err(MapError::InvalidArgument) };
        let is_same = |backing: &MapBacking| match backing {
            MapBacking::File(other) => file.same_object(other),
            _ => false,
        };
        let fits = regions
            .overlapping(start, end)
            .all(|region| region.flags() == first.flags() && is_same(region.backing()));
        if !first.flags().contains(RegionFlags::SHARED) || !fits || !regions.covers(start, end) {
            return Err(MapError::InvalidArgument);
        }
        let mut flags = MapFlags::SHARED | MapFlags::FIXED;
        flags.set(MapFlags::LOCKED, first.flags().contains(RegionFlags::LOCKED));
        Ok(MapRequest {
            address: UserAddr::new(start),
            length: end - start,
            protection: first.flags().protection(),
            maximum: first.flags().maximum(),
            flags,
            backing: first.backing().clone(),
            offset: 0,
        })
    }
}
