//! Entropy: RDSEED or RDRAND, and the jitter of the cycle counter.
//!
//! Each output word is the hardware's (if there is one) mixed with the low bits of many cycle counts, so that a bad
//! source does no harm while another is good.

use super::register::cpuid;
use super::time;
use core::arch::asm;

/// Tries for a word from the hardware generator before going without.
const TRIES: u32 = 16;
/// Cycle counts mixed into each word.
const JITTER_SAMPLES: u32 = 32;

fn hardware_word() -> Option<u64> {
    let has_seed = cpuid(7, 0).ebx & 1 << 18 != 0;
    let has_random = cpuid(1, 0).ecx & 1 << 30 != 0;
    for _ in 0..TRIES {
        let (word, valid): (u64, u8);
        // SAFETY: the instructions are only run where CPUID says that they exist.
        unsafe {
            if has_seed {
                asm!("rdseed {}", "setc {}", out(reg) word, out(reg_byte) valid, options(nomem, nostack));
            } else if has_random {
                asm!("rdrand {}", "setc {}", out(reg) word, out(reg_byte) valid, options(nomem, nostack));
            } else {
                return None;
            }
        }
        if valid != 0 {
            return Some(word);
        }
    }
    None
}

/// A bijective mixer (the finaliser of SplitMix64).
fn mix(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

pub(crate) fn seed() -> [u8; 32] {
    let mut seed = [0; 32];
    let mut state = 0x9e37_79b9_7f4a_7c15;
    for chunk in seed.chunks_exact_mut(8) {
        for _ in 0..JITTER_SAMPLES {
            state = mix(state ^ time::cycles());
        }
        state = mix(state ^ hardware_word().unwrap_or(0));
        chunk.copy_from_slice(&state.to_le_bytes());
    }
    seed
}
