//! Numbered records: changes of files that follow from a seed, so that whoever knows how many of them were made to last knows what must be there.
//!
//! A *writer* works in a folder of its own. Its record *n* is one [`Operation`], made to last by `fsync` and `fdatasync` of what it
//! changed before the next begins. If a machine stops after *n* records were acknowledged, the folder must be as after *n* or *n* + 1 of them,
//! or in the midst of the last. [`check()`] says whether it is.
//!
//! Besides, one thread makes *noise*: changes that nobody makes last. Of its files only this is known: every byte is what was written there, or zero.
#![forbid(unsafe_code)]

mod check;
mod operation;

pub use check::{Tree, check, check_noise};
pub use operation::{FOLDERS, NAMES, Operation, SLOT_BYTES, SLOTS, State};

/// The folder of the noise.
pub const NOISE: &str = "noise";
/// What the noise writes.
pub const NOISE_KEY: u64 = 0x0151;
/// Where marks of records are on a disk: behind the file system.
pub const MARKS_AT: u64 = 96 << 20;
/// Bytes of the mark of a writer: the number of its last record, twice.
pub const MARK_BYTES: u64 = 4096;

/// The folder of a writer.
pub fn folder_of(writer: u64) -> String {
    format!("writer{writer}")
}

/// Numbers that are the same in every run.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn next_number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// One below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.next_number() % limit
    }
}

/// Spreads the bits of a number.
pub fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The bytes from `offset` on of what is written under a key. None is zero: a hole is told from data.
pub fn contents(key: u64, offset: u64, length: u64) -> Vec<u8> {
    let base = mix(key.wrapping_mul(0x9e37_79b9));
    let words = offset / 8..(offset + length).div_ceil(8);
    let bytes = words.flat_map(|word| (mix(base.wrapping_add(word)) | 0x0101_0101_0101_0101).to_le_bytes());
    bytes.skip((offset % 8) as usize).take(length as usize).collect()
}
