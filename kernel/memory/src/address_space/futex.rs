//! What a futex word is called: the same word has the same name wherever it is mapped.

use super::map::cache_of;
use super::space::AddressSpace;
use crate::region::RegionFlags;
use machine::address::{PAGE_SHIFT, UserAddr};
use machine::fault::FaultError;

/// The name of a futex word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FutexKey {
    /// A word of one address space.
    Private {
        /// [`AddressSpace::id`].
        space: u64,
        /// Its address.
        address: u64,
    },
    /// A word of a file or of shared memory.
    Shared {
        /// `FileCache::id`.
        cache: u64,
        /// Bytes from the start of the object.
        offset: u64,
    },
}

impl AddressSpace {
    /// The name of the word at an address. With `private` the program promises that it shares the word with nobody else,
    /// and nothing is looked up.
    ///
    /// # Errors
    /// When nothing is mapped there.
    #[inline]
    pub fn futex_key(&self, address: UserAddr, private: bool) -> Result<FutexKey, FaultError> {
        let value = address.as_u64();
        let own = FutexKey::Private { space: self.id(), address: value };
        if private {
            return Ok(own);
        }
        let regions = self.regions.read();
        let region = regions.find(value).ok_or(FaultError::NotMapped)?;
        if !region.flags().intersects(RegionFlags::PROTECTION) {
            return Err(FaultError::AccessDenied);
        }
        match cache_of(region.backing()) {
            Some(cache) if region.flags().contains(RegionFlags::SHARED) => {
                let offset = (region.page_of(value) << PAGE_SHIFT) + address.page_offset() as u64;
                Ok(FutexKey::Shared { cache: cache.id(), offset })
            }
            _ => Ok(own),
        }
    }
}
