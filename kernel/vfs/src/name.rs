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

/// Hashes a name: eight bytes a step, a multiplication each, of which both halves of the product count. All bits of the result depend on
/// all of the name: tables use the lowest bits, and names often differ in a few digits only.
#[inline]
pub fn hash_name(name: &[u8]) -> u32 {
    let mut hash = name.len() as u64;
    let mut rest = name;
    while let Some((word, behind)) = rest.split_first_chunk::<8>()
        && !behind.is_empty()
    {
        hash = fold(hash ^ u64::from_le_bytes(*word));
        rest = behind;
    }
    hash = fold(hash ^ last_word(name, rest));
    (hash ^ hash >> 32) as u32
}

/// Both halves of the product with a number whose bits look random.
#[inline(always)]
const fn fold(word: u64) -> u64 {
    const FACTOR: u128 = 0x9e37_79b9_7f4a_7c15;
    let product = word as u128 * FACTOR;
    product as u64 ^ (product >> 64) as u64
}

/// The last bytes of a name, `rest` of which have not been hashed yet. Some that have been may come again: the length says how many.
#[inline(always)]
fn last_word(name: &[u8], rest: &[u8]) -> u64 {
    if let Some(word) = name.last_chunk::<8>() {
        u64::from_le_bytes(*word)
    } else if let (Some(first), Some(last)) = (rest.first_chunk::<4>(), rest.last_chunk::<4>()) {
        u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*last)) << 32
    } else {
        rest.iter().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }
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
        for bits in [0, 8, 19] {
            let mut buckets = [0; 1 << 13];
            for number in 0..10_000 {
                buckets[(hash_name(format!("file-{number}").as_bytes()) >> bits) as usize % (1 << 13)] += 1;
            }
            assert!(
                buckets.iter().max() < Some(&12),
                "{:?} names share 13 bits from {bits} on",
                buckets.iter().max()
            );
        }
        assert_ne!(hash_name(b"a"), hash_name(b"a\0"));
    }
}
