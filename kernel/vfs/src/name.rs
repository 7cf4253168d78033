//! Names of directory entries.
//!
//! A name is 1 to 255 bytes without `/` and NUL. Up to 24 bytes live in the [`Name`] itself: most names need no
//! allocation of their own.

use core::fmt;

use smallvec::SmallVec;

use crate::{Error, Result};

/// Longest name of a directory entry.
pub const NAME_MAX: usize = 255;
/// Longest path, with its terminating NUL.
pub const PATH_MAX: usize = 4096;

/// An owned name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(SmallVec<[u8; 24]>);

impl Name {
    /// A copy of the bytes. Fails with `ENAMETOOLONG` beyond 255 bytes and when memory runs out.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        let mut name = SmallVec::new();
        if bytes.len() > name.inline_size() {
            crate::allocation::fail_point()?;
            name.try_reserve_exact(bytes.len()).map_err(|_| Error::OutOfMemory)?;
        }
        name.extend_from_slice(bytes);
        Ok(Self(name))
    }

    /// The bytes.
    #[inline]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}", core::str::from_utf8(&self.0).unwrap_or("?"))
    }
}

/// Hashes a name: eight bytes a step, a multiplication each.
#[inline]
pub fn hash_name(name: &[u8]) -> u32 {
    const FACTOR: u64 = 0x517c_c1b7_2722_0a95;
    let mut hash = name.len() as u64;
    let mut chunks = name.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = [0; 8];
        word.copy_from_slice(chunk);
        hash = (hash.rotate_left(5) ^ u64::from_le_bytes(word)).wrapping_mul(FACTOR);
    }
    let mut last = 0;
    for &byte in chunks.remainder() {
        last = last << 8 | u64::from(byte);
    }
    hash = (hash.rotate_left(5) ^ last).wrapping_mul(FACTOR);
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_longer_than_255_bytes_are_refused() {
        assert!(Name::new(&[b'a'; 255]).is_ok());
        assert_eq!(Name::new(&[b'a'; 256]).unwrap_err(), Error::NameTooLong);
    }

    #[test]
    fn similar_names_hash_apart() {
        let mut seen = std::collections::HashSet::new();
        for number in 0..10_000 {
            seen.insert(hash_name(format!("file{number}").as_bytes()));
        }
        assert!(seen.len() > 9_990);
        assert_ne!(hash_name(b"a"), hash_name(b"a\0"));
    }
}
