//! Taking an object away that counts its regions (shmdt).
//!
//! What was attached at an address may have been cut since by `munmap`, `mprotect` or `mlock`. Its fragments still show the page of the object
//! that belongs at their distance from the address, so they are found by that: the first one says which object it is, and the others must
//! show it through the same attachment, within its size.

use super::error::MapError;
use super::request::MapBacking;
use super::space::{AddressSpace, USER_TOP};
use super::unmap::{Dropped, round_up};
use crate::region::{FileMapping, Region};
use alloc::sync::Arc;
use core::ops::Range;
use machine::address::{PAGE_SHIFT, UserAddr};

/// A fragment: where it is, and what it belongs to.
struct Fragment {
    range: Range<u64>,
    mapping: Arc<FileMapping>,
}

impl AddressSpace {
    /// Removes what is left of the counted object that was mapped at an address.
    ///
    /// # Errors
    /// [`MapError::InvalidArgument`]: nothing is left; no memory.
    pub fn detach(&self, start: UserAddr) -> Result<(), MapError> {
        let base = start.as_u64();
        if start.page_offset() != 0 || base >= USER_TOP {
            return Err(MapError::InvalidArgument);
        }
        let mut dropped = Dropped::new();
        let mut layout = self.change.lock();
        let first = self.fragment(base, base, |_| true).ok_or(MapError::InvalidArgument)?;
        let size = round_up(first.mapping.cache().size()).unwrap_or(u64::MAX);
        let mut next = Some(first.range.clone());
        let mut result = Ok(());
        while let Some(range) = next {
            let above = range.end;
            match self.remove_range(&mut layout, range) {
                // Without memory for the list they go here, with the lock held.
                Ok(mut removed) if dropped.try_reserve(removed.len()).is_ok() => dropped.append(&mut removed),
                Ok(_) => {}
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
            next = self
                .fragment(base, above, |other| Arc::ptr_eq(other, &first.mapping))
                .map(|fragment| fragment.range)
                .filter(|range| range.end - base <= size);
        }
        drop(layout);
        result
    }

    /// The first fragment of what was attached at `base` that lies at or above `from`.
    fn fragment(&self, base: u64, from: u64, wanted: impl Fn(&Arc<FileMapping>) -> bool) -> Option<Fragment> {
        let regions = self.regions.read();
        regions.overlapping(from, USER_TOP).find_map(|region| {
            let mapping = counted(region).filter(|mapping| wanted(mapping))?;
            let distance = region.start().checked_sub(base)? >> PAGE_SHIFT;
            (distance == region.page_offset)
                .then(|| Fragment { range: region.start()..region.end(), mapping: mapping.clone() })
        })
    }
}

fn counted(region: &Region) -> Option<&Arc<FileMapping>> {
    match region.backing() {
        MapBacking::File(mapping) if mapping.is_counted() => Some(mapping),
        _ => None,
    }
}
