//! Cyclic redundancy checks of on-disk structures: eight bytes a step, by the processor's instruction for one of them if it has that, or by tables made at their first use (at compile time they would be 33 KB of the kernel's file).

use core::array;
use core::sync::atomic::{AtomicU32, Ordering};

use sync::Once;

/// Tables for one reflected polynomial. Each value is written once, where it stays: they are too big for a stack.
struct Tables([[AtomicU32; 256]; 8]);

impl Tables {
    const fn new() -> Self {
        Self([const { [const { AtomicU32::new(0) }; 256] }; 8])
    }

    fn fill(&self, polynomial: u32) {
        for (value, byte) in self.0[0].iter().zip(0..) {
            value.store(update_by_bits(polynomial, byte, &[0]), Ordering::Relaxed);
        }
        for (table, byte) in (1..8).flat_map(|table| (0..256).map(move |byte| (table, byte))) {
            let before = self.look(table - 1, byte);
            self.0[table][byte as usize].store((before >> 8) ^ self.look(0, before), Ordering::Relaxed);
        }
    }

    /// What a table has for the lowest byte.
    fn look(&self, table: usize, value: u32) -> u32 {
        self.0[table][(value & 0xff) as usize].load(Ordering::Relaxed)
    }

    fn update(&self, mut crc: u32, bytes: &[u8]) -> u32 {
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            let [a, b, c, d, e, f, g, h] = *chunk;
            let low = crc ^ u32::from_le_bytes([a, b, c, d]);
            let high = u32::from_le_bytes([e, f, g, h]);
            crc = self.look(7, low)
                ^ self.look(6, low >> 8)
                ^ self.look(5, low >> 16)
                ^ self.look(4, low >> 24)
                ^ self.look(3, high)
                ^ self.look(2, high >> 8)
                ^ self.look(1, high >> 16)
                ^ self.look(0, high >> 24);
        }
        for byte in rest {
            crc = (crc >> 8) ^ self.look(0, crc ^ u32::from(*byte));
        }
        crc
    }
}

/// What zeros behind do to a sum: for 2^n of them, by half a byte of the sum at a time. Written once, like [`Tables`].
struct Zeros([Power; ZEROS_MAX_LOG as usize]);

/// For a number of zeros.
struct Power([[AtomicU32; 16]; 8]);

/// Fewer than 2^17 zeros are taken at once.
const ZEROS_MAX_LOG: u32 = 17;

impl Power {
    const fn new() -> Self {
        Self([const { [const { AtomicU32::new(0) }; 16] }; 8])
    }

    fn fill(&self, sum_behind: impl Fn(u32) -> u32) {
        for (place, values) in self.0.iter().enumerate() {
            for (value, digit) in values.iter().zip(0..) {
                value.store(sum_behind(digit << (4 * place)), Ordering::Relaxed);
            }
        }
    }

    fn apply(&self, value: u32) -> u32 {
        let digit = |place: usize| (value >> (4 * place) & 15) as usize;
        let parts: [u32; 8] = array::from_fn(|place| self.0[place][digit(place)].load(Ordering::Relaxed));
        parts.iter().fold(0, |sum, part| sum ^ part)
    }
}

impl Zeros {
    fn fill(&self, polynomial: u32) {
        self.0[0].fill(|sum| update_by_bits(polynomial, sum, &[0]));
        for [half, whole] in self.0.array_windows() {
            whole.fill(|sum| half.apply(half.apply(sum)));
        }
    }

    fn append(&self, mut crc: u32, mut count: usize) -> u32 {
        debug_assert!(count >> ZEROS_MAX_LOG == 0, "blocks are smaller");
        for power in &self.0 {
            if count & 1 != 0 {
                crc = power.apply(crc);
            }
            count >>= 1;
            if count == 0 {
                break;
            }
        }
        crc
    }
}

const CASTAGNOLI: u32 = 0x82f6_3b78;
const IEEE: u32 = 0xedb8_8320;
const ARC: u32 = 0xa001;

fn castagnoli() -> &'static Tables {
    static TABLES: Tables = Tables::new();
    static FILLED: Once<()> = Once::new();
    FILLED.call_once(|| TABLES.fill(CASTAGNOLI));
    &TABLES
}

fn castagnoli_zeros() -> &'static Zeros {
    static ZEROS: Zeros = Zeros([const { Power::new() }; ZEROS_MAX_LOG as usize]);
    static FILLED: Once<()> = Once::new();
    FILLED.call_once(|| ZEROS.fill(CASTAGNOLI));
    &ZEROS
}

/// By bits, for what is seldom added up.
fn update_by_bits(polynomial: u32, crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (polynomial & (crc & 1).wrapping_neg()))
    })
}

/// CRC-32C (Castagnoli) as ext4 uses it: continues from `seed`, without inversions.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    machine::checksum::crc32c(seed, bytes).unwrap_or_else(|| castagnoli().update(seed, bytes))
}

/// The [`crc32c`] of bytes of which a part changed: `sum` was that of all of them, `before` and `after` are those of the part alone, from 0 on, and
/// `behind` is how many bytes follow it, fewer than 128 KiB. So a small change takes time by its own length: sums are linear.
pub fn crc32c_changed(sum: u32, before: u32, after: u32, behind: usize) -> u32 {
    sum ^ castagnoli_zeros().append(before ^ after, behind)
}

/// CRC-32 (IEEE 802.3) as GPT uses it.
pub fn crc32(bytes: &[u8]) -> u32 {
    !update_by_bits(IEEE, !0, bytes)
}

/// CRC-16 (polynomial 0x8005, reflected): continues from `seed`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    // The reflected remainder stays within 16 bits when it begins there.
    update_by_bits(ARC, u32::from(seed), bytes) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECK: &[u8] = b"123456789";

    #[test]
    fn the_check_values_of_the_catalogue_come_out() {
        assert_eq!(!crc32c(!0, CHECK), 0xe306_9283);
        assert_eq!(crc32(CHECK), 0xcbf4_3926);
        assert_eq!(crc16(0, CHECK), 0xbb3d);
    }

    #[test]
    fn the_processor_comes_to_the_same_as_the_tables() {
        let bytes: Vec<u8> = (0..300u32).map(|value| (value * 7) as u8).collect();
        for seed in [0, 1, 0x8000_0000, !0] {
            for from in 0..9 {
                for to in (from..80).chain([256, 299, 300]) {
                    let part = &bytes[from..to];
                    let by_tables = castagnoli().update(seed, part);
                    assert_eq!(crc32c(seed, part), by_tables, "{seed}, {from}..{to}");
                    assert_eq!(machine::checksum::crc32c(seed, part).unwrap_or(by_tables), by_tables);
                }
            }
        }
    }

    #[test]
    fn a_changed_part_changes_the_sum_as_if_all_were_added_up_again() {
        let old: Vec<u8> = (0..0x1_0001u32).map(|value| (value * 7) as u8).collect();
        for (from, to) in [(0, 1), (5, 5), (1000, 1263), (0, old.len()), (old.len() - 3, old.len())] {
            let mut new = old.clone();
            new[from..to].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(31) ^ 0x55);
            let (before, after) = (crc32c(0, &old[from..to]), crc32c(0, &new[from..to]));
            let sum = crc32c_changed(crc32c(9, &old), before, after, old.len() - to);
            assert_eq!(sum, crc32c(9, &new), "{from}..{to}");
        }
    }

    #[test]
    fn pieces_continue_where_the_last_one_ended() {
        let bytes: Vec<u8> = (0..1000u32).map(|value| (value * 7) as u8).collect();
        for cut in [0, 1, 7, 8, 9, 500, 1000] {
            assert_eq!(crc32c(crc32c(5, &bytes[..cut]), &bytes[cut..]), crc32c(5, &bytes));
        }
    }
}
