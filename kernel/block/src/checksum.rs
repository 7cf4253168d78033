//! Cyclic redundancy checks of on-disk structures: eight bytes a step, by the processor's instruction for one of them if it has that, or by tables made at compile time.

/// Tables for one reflected polynomial.
struct Tables([[u32; 256]; 8]);

impl Tables {
    const fn new(polynomial: u32) -> Self {
        let mut tables = [[0; 256]; 8];
        let mut byte = 0;
        while byte < 256 {
            let mut value = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { (value >> 1) ^ polynomial } else { value >> 1 };
                bit += 1;
            }
            tables[0][byte] = value;
            byte += 1;
        }
        let mut table = 1;
        while table < 8 {
            let mut byte = 0;
            while byte < 256 {
                let before = tables[table - 1][byte];
                tables[table][byte] = (before >> 8) ^ tables[0][(before & 0xff) as usize];
                byte += 1;
            }
            table += 1;
        }
        Self(tables)
    }

    fn update(&self, mut crc: u32, bytes: &[u8]) -> u32 {
        let tables = &self.0;
        let look = |table: usize, value: u32| tables[table][(value & 0xff) as usize];
        let (chunks, rest) = bytes.as_chunks::<8>();
        for chunk in chunks {
            let [a, b, c, d, e, f, g, h] = *chunk;
            let low = crc ^ u32::from_le_bytes([a, b, c, d]);
            let high = u32::from_le_bytes([e, f, g, h]);
            crc = look(7, low)
                ^ look(6, low >> 8)
                ^ look(5, low >> 16)
                ^ look(4, low >> 24)
                ^ look(3, high)
                ^ look(2, high >> 8)
                ^ look(1, high >> 16)
                ^ look(0, high >> 24);
        }
        for byte in rest {
            crc = (crc >> 8) ^ look(0, crc ^ u32::from(*byte));
        }
        crc
    }
}

/// What zeros behind do to a sum: for 2^n of them, by half a byte of the sum at a time.
struct Zeros([[[u32; 16]; 8]; ZEROS_MAX_LOG as usize]);

/// Fewer than 2^17 zeros are taken at once.
const ZEROS_MAX_LOG: u32 = 17;

impl Zeros {
    const fn new(tables: &Tables) -> Self {
        let mut all = [[[0; 16]; 8]; ZEROS_MAX_LOG as usize];
        let mut log = 0;
        while log < ZEROS_MAX_LOG as usize {
            let mut place = 0;
            while place < 8 {
                let mut digit = 0;
                while digit < 16 {
                    let value = (digit as u32) << (4 * place);
                    all[log][place][digit] = if log == 0 {
                        (value >> 8) ^ tables.0[0][(value & 0xff) as usize]
                    } else {
                        let half = Self::apply(&all[log - 1], value);
                        Self::apply(&all[log - 1], half)
                    };
                    digit += 1;
                }
                place += 1;
            }
            log += 1;
        }
        Self(all)
    }

    const fn apply(table: &[[u32; 16]; 8], value: u32) -> u32 {
        let mut result = 0;
        let mut place = 0;
        while place < 8 {
            result ^= table[place][(value >> (4 * place) & 15) as usize];
            place += 1;
        }
        result
    }

    fn append(&self, mut crc: u32, mut count: usize) -> u32 {
        debug_assert!(count >> ZEROS_MAX_LOG == 0, "blocks are smaller");
        for table in &self.0 {
            if count & 1 != 0 {
                crc = Self::apply(table, crc);
            }
            count >>= 1;
            if count == 0 {
                break;
            }
        }
        crc
    }
}

static CASTAGNOLI: Tables = Tables::new(0x82f6_3b78);
static CASTAGNOLI_ZEROS: Zeros = Zeros::new(&CASTAGNOLI);
static IEEE: Tables = Tables::new(0xedb8_8320);
static ARC: Tables = Tables::new(0xa001);

/// CRC-32C (Castagnoli) as ext4 uses it: continues from `seed`, without inversions.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    machine::checksum::crc32c(seed, bytes).unwrap_or_else(|| CASTAGNOLI.update(seed, bytes))
}

/// The [`crc32c`] of bytes of which a part changed: `sum` was that of all of them, `before` and `after` are those of the part alone, from 0 on, and
/// `behind` is how many bytes follow it, fewer than 128 KiB. So a small change takes time by its own length: sums are linear.
pub fn crc32c_changed(sum: u32, before: u32, after: u32, behind: usize) -> u32 {
    sum ^ CASTAGNOLI_ZEROS.append(before ^ after, behind)
}

/// CRC-32 (IEEE 802.3) as GPT uses it.
pub fn crc32(bytes: &[u8]) -> u32 {
    !IEEE.update(!0, bytes)
}

/// CRC-16 (polynomial 0x8005, reflected): continues from `seed`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    // The reflected remainder stays within 16 bits when it begins there.
    bytes.iter().fold(seed, |crc, byte| {
        let index = (crc ^ u16::from(*byte)) & 0xff;
        (crc >> 8) ^ ARC.0[0][usize::from(index)] as u16
    })
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
                    let by_tables = CASTAGNOLI.update(seed, part);
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
