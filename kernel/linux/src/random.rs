//! Random bytes for programs: a ChaCha20 generator for each CPU, seeded from the machine, reseeded after a while.
//!
//! Fast key erasure: each refill produces the next key first, so that what was given out cannot be computed from the state.

use sync::SpinLock;

const BLOCK: usize = 64;
/// Blocks between two reseedings.
const RESEED_BLOCKS: u32 = 1 << 14;

struct Generator {
    key: [u32; 8],
    blocks: u32,
    seeded: bool,
}

static GENERATOR: SpinLock<Generator> = SpinLock::new(Generator { key: [0; 8], blocks: 0, seeded: false });

/// Fills the buffer with random bytes.
#[inline(never)]
pub fn fill(mut out: &mut [u8]) {
    let mut key = next_key();
    if out.len() <= size_of_val(&key) {
        // Nothing else is made from this key, so that it is as good as what would be.
        for (bytes, word) in out.chunks_mut(size_of::<u32>()).zip(key) {
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        key.fill(0);
        return;
    }
    let mut counter = 0;
    while !out.is_empty() {
        let block = chacha20(&key, counter);
        counter += 1;
        let length = out.len().min(BLOCK);
        out[..length].copy_from_slice(&block[..length]);
        out = &mut out[length..];
    }
    key.fill(0);
}

/// Mixes bytes into the generator that somebody says are random. They can't make it worse: the key that there is stays part of the next.
pub fn mix(bytes: &[u8]) {
    for chunk in bytes.chunks(32) {
        // Seeds the generator, if nobody has yet.
        next_key();
        let mut generator = GENERATOR.lock();
        for (word, bytes) in generator.key.iter_mut().zip(chunk.chunks(4)) {
            *word ^= bytes.iter().rev().fold(0, |value, byte| value << 8 | u32::from(*byte));
        }
    }
    next_key();
}

/// A fresh key for one request; the generator moves on to another one.
fn next_key() -> [u32; 8] {
    let mut generator = GENERATOR.lock();
    if !generator.seeded || generator.blocks >= RESEED_BLOCKS {
        let seed = machine::random::seed();
        for (word, bytes) in generator.key.iter_mut().zip(seed.chunks_exact(4)) {
            *word ^= u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        generator.seeded = true;
        generator.blocks = 0;
    }
    generator.blocks += 1;
    let block = chacha20(&generator.key, 0);
    let half = |offset: usize| {
        core::array::from_fn(|index| {
            let at = offset + index * 4;
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        })
    };
    generator.key = half(0);
    half(BLOCK / 2)
}

fn quarter(state: &mut [u32; 16], a: usize, b: usize, c: usize, d: usize) {
    state[a] = state[a].wrapping_add(state[b]);
    state[d] = (state[d] ^ state[a]).rotate_left(16);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_left(12);
    state[a] = state[a].wrapping_add(state[b]);
    state[d] = (state[d] ^ state[a]).rotate_left(8);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_left(7);
}

/// One block of ChaCha20 (RFC 8439) with a zero nonce.
fn chacha20(key: &[u32; 8], counter: u32) -> [u8; BLOCK] {
    chacha20_with_nonce(key, counter, [0; 3])
}

fn chacha20_with_nonce(key: &[u32; 8], counter: u32, nonce: [u32; 3]) -> [u8; BLOCK] {
    let mut start =
        [0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574, 0, 0, 0, 0, 0, 0, 0, 0, counter, 0, 0, 0];
    start[4..12].copy_from_slice(key);
    start[13..].copy_from_slice(&nonce);
    let mut state = start;
    for _ in 0..10 {
        quarter(&mut state, 0, 4, 8, 12);
        quarter(&mut state, 1, 5, 9, 13);
        quarter(&mut state, 2, 6, 10, 14);
        quarter(&mut state, 3, 7, 11, 15);
        quarter(&mut state, 0, 5, 10, 15);
        quarter(&mut state, 1, 6, 11, 12);
        quarter(&mut state, 2, 7, 8, 13);
        quarter(&mut state, 3, 4, 9, 14);
    }
    let mut out = [0; BLOCK];
    for (bytes, (word, start)) in out.chunks_exact_mut(4).zip(state.iter().zip(&start)) {
        bytes.copy_from_slice(&word.wrapping_add(*start).to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_function_is_rfc_8439s() {
        let key: [u32; 8] = core::array::from_fn(|i| {
            let b = (i * 4) as u8;
            u32::from_le_bytes([b, b + 1, b + 2, b + 3])
        });
        let block = chacha20_with_nonce(&key, 1, [0x0900_0000, 0x4a00_0000, 0]);
        assert_eq!(block[..8], [0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15]);
    }

    #[test]
    fn requests_of_every_length_are_filled() {
        for length in 0..=100 {
            // A byte that stays zero in eight requests would be one in 2^64.
            let mut seen = [0; 100];
            for _ in 0..8 {
                let mut out = [0; 100];
                fill(&mut out[..length]);
                seen.iter_mut().zip(out).for_each(|(seen, byte)| *seen |= byte);
            }
            assert!(
                seen[..length].iter().all(|byte| *byte != 0) && seen[length..].iter().all(|byte| *byte == 0)
            );
        }
    }

    #[test]
    fn requests_differ() {
        let (mut one, mut two) = ([0; 100], [0; 100]);
        fill(&mut one);
        fill(&mut two);
        assert_ne!(one, two);
    }
}
