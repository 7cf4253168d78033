//! Entropy of a hosted machine: the standard library's hash seeds, which the operating system provides.

use std::hash::{BuildHasher, RandomState};

pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for chunk in seed.chunks_exact_mut(8) {
        chunk.copy_from_slice(&RandomState::new().hash_one(0u8).to_le_bytes());
    }
    seed
}
