//! What makes two addresses the same futex.
//!
//! A private futex (FUTEX_PRIVATE_FLAG) is an address in an address space. A shared one is a place in the mapped object, so that
//! processes that map it at different addresses meet; in private memory it falls back to the first kind.

use machine::address::{USER_END, UserAddr};
use memory::address_space::FutexKey;

use crate::errno::Errno;
use crate::task::Task;

/// Names one futex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    place: FutexKey,
    /// Private futexes and those that may be shared never meet, even in private memory.
    shared: bool,
}

impl Key {
    /// The futex at an address of the running program. It must be aligned (EINVAL) and in the user half (EFAULT).
    pub fn of(task: &Task, address: u64, shared: bool) -> Result<Key, Errno> {
        if !address.is_multiple_of(4) {
            return Err(Errno::EINVAL);
        }
        if address >= USER_END as u64 {
            return Err(Errno::EFAULT);
        }
        let place =
            task.address_space.futex_key(UserAddr::new(address), !shared).map_err(|_| Errno::EFAULT)?;
        Ok(Key { place, shared })
    }

    /// Spreads keys over the buckets.
    pub(super) fn hash(&self) -> usize {
        const FIBONACCI: u64 = 0x9e37_79b9_7f4a_7c15;
        let (object, offset) = match self.place {
            FutexKey::Private { space, address } => (space >> 4, address),
            FutexKey::Shared { cache, offset } => (cache, offset),
        };
        let mixed = object.wrapping_mul(FIBONACCI) ^ (offset >> 2);
        (mixed.wrapping_mul(FIBONACCI) >> 40) as usize
    }

    #[cfg(test)]
    pub(super) fn test(space: u64, address: u64) -> Key {
        Key { place: FutexKey::Private { space, address }, shared: false }
    }
}
