//! Path names that programs pass.
//!
//! Most are short: up to `INLINE_BYTES` they are copied to the kernel stack, longer ones to the heap.

use alloc::vec::Vec;

use machine::address::UserAddr;
use machine::user_memory::{self, StringError};

use crate::errno::Errno;

/// Longest path name with its terminator.
pub const PATH_MAX: usize = 4096;
/// Bytes of a path that need no allocation.
const INLINE_BYTES: usize = 128;

/// A path name copied from user memory.
pub enum UserPath {
    /// A short one.
    Inline {
        /// The bytes.
        bytes: [u8; INLINE_BYTES],
        /// How many are the path.
        length: u8,
    },
    /// A long one.
    Heap(Vec<u8>),
}

impl UserPath {
    /// Copies a path.
    ///
    /// # Errors
    /// EFAULT, ENAMETOOLONG, ENOMEM.
    #[inline(always)]
    pub fn read(address: u64) -> Result<UserPath, Errno> {
        let start = UserAddr::new(address);
        let mut bytes = [0; INLINE_BYTES];
        match user_memory::read_string(&mut bytes, start) {
            Ok(length) => Ok(UserPath::Inline { bytes, length: length as u8 }),
            Err(StringError::Fault) => Err(Errno::EFAULT),
            Err(StringError::TooLong) => Self::read_long(start),
        }
    }

    #[inline(never)]
    fn read_long(start: UserAddr) -> Result<UserPath, Errno> {
        let mut bytes = memory::fallible::try_vec_of(0, PATH_MAX).map_err(|_| Errno::ENOMEM)?;
        match user_memory::read_string(&mut bytes, start) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(UserPath::Heap(bytes))
            }
            Err(StringError::Fault) => Err(Errno::EFAULT),
            Err(StringError::TooLong) => Err(Errno::ENAMETOOLONG),
        }
    }

    /// The empty path: with AT_EMPTY_PATH it means the descriptor.
    pub const fn empty() -> UserPath {
        UserPath::Inline { bytes: [0; INLINE_BYTES], length: 0 }
    }

    /// Copies a path; a null pointer is the empty path where the flags allow one (as Linux does since 6.11).
    ///
    /// # Errors
    /// As [`UserPath::read`].
    #[inline(always)]
    pub fn read_or_empty(address: u64, empty_allowed: bool) -> Result<UserPath, Errno> {
        if address == 0 && empty_allowed { Ok(Self::empty()) } else { Self::read(address) }
    }

    /// The path without its terminator.
    #[inline(always)]
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            UserPath::Inline { bytes, length } => &bytes[..usize::from(*length)],
            UserPath::Heap(bytes) => bytes,
        }
    }
}
