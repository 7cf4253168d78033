//! Hashes of names in indexed directories: the old one, half of MD4, and TEA, each with bytes as signed or unsigned.
//!
//! The hash's lowest bit is not part of it: in an index it says that names with the same hash go on from the block before.

/// Which function an index was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    Legacy,
    HalfMd4,
    Tea,
}

/// Hashes with all bits set are not used: that value ends a directory.
const END: u32 = 0x7fff_ffff << 1;

impl Function {
    /// By its number on the disk: 0 to 2 with signed bytes, 3 to 5 with unsigned ones.
    pub(crate) const fn of_version(version: u8) -> Option<Self> {
        Some(match version % 3 {
            _ if version > 5 => return None,
            0 => Self::Legacy,
            1 => Self::HalfMd4,
            _ => Self::Tea,
        })
    }

    /// The hash of a name.
    pub(crate) fn hash(self, name: &[u8], unsigned: bool, seed: [u32; 4]) -> u32 {
        let mut state =
            if seed == [0; 4] { [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476] } else { seed };
        let hash = match self {
            Self::Legacy => legacy(name, unsigned),
            Self::HalfMd4 => {
                for_each_chunk(name, unsigned, |words: &[u32; 8]| half_md4(&mut state, words));
                state[1]
            }
            Self::Tea => {
                for_each_chunk(name, unsigned, |words: &[u32; 4]| tea(&mut state, words));
                state[0]
            }
        } & !1;
        if hash == END { (0x7fff_ffff - 1) << 1 } else { hash }
    }
}

fn widen(byte: u8, unsigned: bool) -> u32 {
    if unsigned { byte.into() } else { i32::from(byte.cast_signed()).cast_unsigned() }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut before, mut last) = (0x37ab_e8f9u32, 0x12a3_fe2du32);
    for byte in name {
        let mut next = before.wrapping_add(last ^ widen(*byte, unsigned).wrapping_mul(7_152_373));
        if next & 0x8000_0000 != 0 {
            next = next.wrapping_sub(0x7fff_ffff);
        }
        before = last;
        last = next;
    }
    last << 1
}

/// Cuts a name into pieces of `WORDS` words, the last one filled up with the length of what was left.
fn for_each_chunk<const WORDS: usize>(name: &[u8], unsigned: bool, mut each: impl FnMut(&[u32; WORDS])) {
    let mut rest = name;
    while !rest.is_empty() {
        let left = rest.len();
        let fill = left as u32 | (left as u32) << 8;
        let fill = fill | fill << 16;
        let (piece, behind) = rest.split_at(left.min(WORDS * 4));
        let mut words = [fill; WORDS];
        for (index, word) in words.iter_mut().enumerate() {
            let bytes = piece.get(index * 4..).unwrap_or(&[]);
            for byte in bytes.iter().take(4) {
                *word = widen(*byte, unsigned).wrapping_add(*word << 8);
            }
        }
        each(&words);
        rest = behind;
    }
}

fn tea(state: &mut [u32; 4], key: &[u32; 4]) {
    const DELTA: u32 = 0x9e37_79b9;
    let (mut x, mut y) = (state[0], state[1]);
    let mut sum = 0u32;
    let mix = |value: u32, sum: u32, a: u32, b: u32| {
        (value << 4).wrapping_add(a) ^ value.wrapping_add(sum) ^ (value >> 5).wrapping_add(b)
    };
    for _ in 0..16 {
        sum = sum.wrapping_add(DELTA);
        x = x.wrapping_add(mix(y, sum, key[0], key[1]));
        y = y.wrapping_add(mix(x, sum, key[2], key[3]));
    }
    state[0] = state[0].wrapping_add(x);
    state[1] = state[1].wrapping_add(y);
}

fn half_md4(state: &mut [u32; 4], words: &[u32; 8]) {
    type Mix = fn(u32, u32, u32) -> u32;
    const ROUNDS: [(Mix, u32, [usize; 8], [u32; 4]); 3] = [
        (|x, y, z| z ^ (x & (y ^ z)), 0, [0, 1, 2, 3, 4, 5, 6, 7], [3, 7, 11, 19]),
        (|x, y, z| (x & y).wrapping_add((x ^ y) & z), 0x5a82_7999, [1, 3, 5, 7, 0, 2, 4, 6], [3, 5, 9, 13]),
        (|x, y, z| x ^ y ^ z, 0x6ed9_eba1, [3, 7, 2, 6, 1, 5, 0, 4], [3, 9, 11, 15]),
    ];
    let mut now = *state;
    for (mix, constant, order, shifts) in ROUNDS {
        for (step, word) in order.into_iter().enumerate() {
            // The roles rotate: a, d, c, b.
            let a = (4 - step % 4) % 4;
            let [b, c, d] = [now[(a + 1) % 4], now[(a + 2) % 4], now[(a + 3) % 4]];
            let sum = now[a].wrapping_add(mix(b, c, d)).wrapping_add(words[word]).wrapping_add(constant);
            now[a] = sum.rotate_left(shifts[step % 4]);
        }
    }
    for (word, new) in state.iter_mut().zip(now) {
        *word = word.wrapping_add(new);
    }
}
