//! Growing a region downwards when the page below it is touched.

use super::account;
use super::map::counts_as_committed;
use super::space::{AddressSpace, MINIMUM_ADDRESS};
use crate::region::{RegionFlags, STACK_GUARD_BYTES};
use core::sync::atomic::Ordering;
use machine::address::PAGE_SHIFT;
use machine::fault::FaultError;

impl AddressSpace {
    /// Lets the growing region above `address` reach down to it.
    #[inline(never)]
    pub(super) fn grow_stack(&self, address: u64) -> Result<(), FaultError> {
        let _change = self.change.lock();
        let limits = self.limits();
        let mut regions = self.regions.write();
        let Some(position) = regions.locate(address) else { return Err(FaultError::NotMapped) };
        let region = regions.at(position);
        let flags = region.flags();
        if region.start() <= address {
            return Ok(());
        }
        if !flags.contains(RegionFlags::GROWS_DOWN)
            || !flags.intersects(RegionFlags::PROTECTION)
            || address < MINIMUM_ADDRESS
        {
            return Err(FaultError::NotMapped);
        }
        let grown = (region.start() - address) >> PAGE_SHIFT;
        let pages = regions.pages() + grown;
        let locked = if flags.contains(RegionFlags::LOCKED) { grown } else { 0 };
        let below_is_free = regions.previous(position).is_none_or(|below| {
            let below = regions.at(below);
            below.flags().contains(RegionFlags::GROWS_DOWN)
                || !below.flags().intersects(RegionFlags::PROTECTION)
                || address.saturating_sub(below.end()) >= STACK_GUARD_BYTES
        });
        let allowed = below_is_free
            && region.end() - address <= limits.stack
            && pages <= limits.address_space >> PAGE_SHIFT
            && self.locked_pages.load(Ordering::Relaxed) + locked <= limits.locked >> PAGE_SHIFT;
        if !allowed || counts_as_committed(flags) && account::charge(grown).is_err() {
            return Err(FaultError::NotMapped);
        }
        self.locked_pages.fetch_add(locked, Ordering::Relaxed);
        regions.grow_down(position, address);
        Ok(())
    }
}
