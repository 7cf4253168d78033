//! What a record changes, and what is there after so many of them.

use std::collections::BTreeMap;

use crate::{Random, contents, mix};

/// Pieces of the file that is written in place.
pub const SLOTS: u64 = 48;
/// Bytes of each.
pub const SLOT_BYTES: u64 = 4096;
/// Files that are replaced by renaming.
pub const NAMES: u64 = 6;
/// Folders that come and go.
pub const FOLDERS: u64 = 4;
/// The log is cut when it is longer.
const LOG_BYTES_MAX: u64 = 192 << 10;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Append to the log, perhaps behind a hole.
    Append {
        /// Bytes of zeroes before it.
        hole: u64,
        /// Bytes.
        length: u64,
        /// `fdatasync` is enough.
        data_only: bool,
    },
    /// Shorten the log to so many bytes.
    Cut {
        /// What is kept.
        length: u64,
    },
    /// Write a piece in place.
    Overwrite {
        /// Which.
        slot: u64,
    },
    /// Write a new file, and rename it over an old one.
    Replace {
        /// Which.
        which: u64,
        /// Its length.
        length: u64,
    },
    /// Remove such a file.
    Remove {
        /// Which.
        which: u64,
    },
    /// Make a folder with a file in it, or remove both.
    Folder {
        /// Which.
        which: u64,
        /// The file's length.
        length: u64,
    },
}

/// A file that was written as a whole: by which record, how long.
pub(crate) type Whole = (u64, u64);

/// What a writer's folder has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Pieces of the log: their lengths, and the record; 0: zeroes.
    pub(crate) log: Vec<(u64, u64)>,
    /// Which record wrote a slot.
    pub(crate) slots: BTreeMap<u64, u64>,
    /// Files that are replaced.
    pub(crate) named: BTreeMap<u64, Whole>,
    /// Folders, and the file in each.
    pub(crate) folders: BTreeMap<u64, Whole>,
    writer: u64,
    seed: u64,
    records: u64,
}

impl State {
    /// A folder that was just made.
    pub fn new(seed: u64, writer: u64) -> Self {
        Self { seed, writer, ..Self::default() }
    }

    /// After so many records.
    pub fn after(seed: u64, writer: u64, records: u64) -> Self {
        let mut state = Self::new(seed, writer);
        (0..records).for_each(|_| _ = state.advance());
        state
    }

    /// How many there are.
    pub const fn records(&self) -> u64 {
        self.records
    }

    /// Bytes of the log.
    pub fn log_length(&self) -> u64 {
        self.log.iter().map(|(length, _)| length).sum()
    }

    /// The key of what a record writes.
    pub fn key(&self, record: u64) -> u64 {
        mix(self.seed ^ self.writer << 56) ^ record
    }

    /// What the next record does.
    pub fn next_operation(&self) -> Operation {
        let mut random = Random(self.key(self.records + 1));
        let length = [random.below(300), random.below(5000), random.below(40_000)][random.below(3) as usize];
        let length = length + 1;
        let log = self.log_length();
        match random.below(14) {
            0..5 if log < LOG_BYTES_MAX => {
                let hole = if random.below(4) == 0 { random.below(9000) } else { 0 };
                Operation::Append { hole, length, data_only: random.below(2) == 0 }
            }
            0..6 => Operation::Cut { length: random.below(log + 1) },
            6..9 => Operation::Overwrite { slot: random.below(SLOTS) },
            9..11 => Operation::Replace { which: random.below(NAMES), length },
            11 => Operation::Remove { which: random.below(NAMES) },
            _ => Operation::Folder { which: random.below(FOLDERS), length: length % 6000 },
        }
    }

    /// The state after the next record, which it returns.
    pub fn advance(&mut self) -> Operation {
        let operation = self.next_operation();
        self.records += 1;
        match operation {
            Operation::Append { hole, length, .. } => {
                self.log.extend([(hole, 0), (length, self.records)]);
            }
            Operation::Cut { mut length } => {
                for piece in &mut self.log {
                    piece.0 = piece.0.min(length);
                    length -= piece.0;
                }
            }
            Operation::Overwrite { slot } => _ = self.slots.insert(slot, self.records),
            Operation::Replace { which, length } => _ = self.named.insert(which, (self.records, length)),
            Operation::Remove { which } => _ = self.named.remove(&which),
            Operation::Folder { which, length } => {
                if self.folders.remove(&which).is_none() {
                    self.folders.insert(which, (self.records, length));
                }
            }
        }
        self.log.retain(|(length, _)| *length > 0);
        operation
    }

    /// Whether one of the folders is there.
    pub fn has_folder(&self, which: u64) -> bool {
        self.folders.contains_key(&which)
    }

    /// What the log must be.
    pub fn log_contents(&self) -> Vec<u8> {
        let piece = |(length, record): &(u64, u64)| match record {
            0 => vec![0; *length as usize],
            record => contents(self.key(*record), 0, *length),
        };
        self.log.iter().flat_map(piece).collect()
    }

    /// What a slot must be.
    pub fn slot_contents(&self, slot: u64) -> Vec<u8> {
        match self.slots.get(&slot) {
            None => vec![0; SLOT_BYTES as usize],
            Some(record) => contents(self.key(*record), 0, SLOT_BYTES),
        }
    }

    /// What a file must be that was written as a whole.
    pub fn whole_contents(&self, (record, length): Whole) -> Vec<u8> {
        contents(self.key(record), 0, length)
    }
}
