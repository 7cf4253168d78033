//! Cyclic redundancy checks of on-disk structures: eight bytes a step, by tables made at compile time.

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

static CASTAGNOLI: Tables = Tables::new(0x82f6_3b78);
static IEEE: Tables = Tables::new(0xedb8_8320);
static ARC: Tables = Tables::new(0xa001);

/// CRC-32C (Castagnoli) as ext4 uses it: continues from `seed`, without inversions.
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    CASTAGNOLI.update(seed, bytes)
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
    fn pieces_continue_where_the_last_one_ended() {
        let bytes: Vec<u8> = (0..1000u32).map(|value| (value * 7) as u8).collect();
        for cut in [0, 1, 7, 8, 9, 500, 1000] {
            assert_eq!(crc32c(crc32c(5, &bytes[..cut]), &bytes[cut..]), crc32c(5, &bytes));
        }
    }
}
