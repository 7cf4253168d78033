//! The processor's instruction for CRC-32C, where there is one.

use core::arch::asm;
use core::arch::x86_64::__cpuid;
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What is known of the instruction.
static KNOWN: AtomicU8 = AtomicU8::new(NOTHING);
const NOTHING: u8 = 0;
const MISSING: u8 = 1;
const PRESENT: u8 = 2;

/// The bit of SSE 4.2, which the instruction came with, in what leaf 1 leaves in ECX. It works on general registers alone.
const SSE_4_2: u32 = 1 << 20;

/// Asks the processor once: that takes long in a virtual machine.
#[cold]
fn ask() -> u8 {
    // Miri knows neither instruction.
    let is_present = !cfg!(miri) && __cpuid(1).ecx & SSE_4_2 != 0;
    let known = if is_present { PRESENT } else { MISSING };
    // Relaxed, here and below: every processor says the same, and nothing else is told by it.
    KNOWN.store(known, Relaxed);
    known
}

/// CRC-32C (Castagnoli) of bytes, continued from `seed`, without inversions. `None`: the processor can't.
#[inline]
pub fn crc32c(seed: u32, bytes: &[u8]) -> Option<u32> {
    let known = match KNOWN.load(Relaxed) {
        NOTHING => ask(),
        known => known,
    };
    (known == PRESENT).then(|| add_up(seed, bytes))
}

/// The processor must have the instruction.
fn add_up(seed: u32, bytes: &[u8]) -> u32 {
    let mut sum = u64::from(seed);
    let mut add_word = |word: [u8; 8]| {
        let word = u64::from_le_bytes(word);
        // SAFETY: only called where CPUID says that the instruction exists; it changes its first operand and nothing else.
        unsafe {
            asm!("crc32 {}, {}", inout(reg) sum, in(reg) word, options(pure, nomem, nostack, preserves_flags));
        }
    };
    // Four words a round, so that counting rounds takes less time than adding.
    let (words, rest) = bytes.as_chunks::<8>();
    let (rounds, words) = words.as_chunks::<4>();
    for [first, second, third, fourth] in rounds {
        add_word(*first);
        add_word(*second);
        add_word(*third);
        add_word(*fourth);
    }
    words.iter().for_each(|word| add_word(*word));
    for byte in rest {
        // SAFETY: as above.
        unsafe {
            asm!("crc32 {:e}, {}", inout(reg) sum, in(reg_byte) *byte, options(pure, nomem, nostack, preserves_flags));
        }
    }
    sum as u32
}
