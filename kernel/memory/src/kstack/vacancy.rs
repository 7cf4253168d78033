//! Which slots no stack has: arithmetic on bits, and a set of chunk numbers (pure).
//!
//! The slots are parted into chunks of [`CHUNK_SLOTS`]: what a chunk needs of page tables and descriptors is made, and given back,
//! as one. A word tells which of a chunk's slots are vacant. The lowest vacant slots are given out first, so that what a crowd
//! of threads has needed becomes vacant from the top on when the crowd is gone.

/// Slots of a chunk: one page of descriptors, two frames of page tables.
pub(super) const CHUNK_SLOTS: u32 = 64;

/// All slots of a chunk are vacant.
pub(super) const ALL_VACANT: u64 = u64::MAX;

/// The bits of the 2^`order` slots from `first` on, which is divisible by that.
pub(super) const fn run_mask(first: u32, order: u8) -> u64 {
    // At most 8 slots, so the shift stays below 64.
    ((1 << (1_u32 << order)) - 1) << first
}

/// The lowest run of 2^`order` vacant slots that starts at a multiple of its length.
pub(super) fn lowest_run(vacant: u64, order: u8) -> Option<u32> {
    (0..CHUNK_SLOTS).step_by(1 << order).find(|&first| {
        let run = run_mask(first, order);
        vacant & run == run
    })
}

/// A set of numbers below `64 * 64 * 64` that knows its lowest member from any number on in a few steps.
#[derive(Debug)]
pub(super) struct Chunks {
    /// A bit for each word of `middle` that is not 0.
    top: u64,
    /// A bit for each word of `bottom` that is not 0.
    middle: [u64; 64],
    /// A bit for each member.
    bottom: [u64; 64 * 64],
}

/// The lowest bit of a word that is set, from `from` on.
const fn lowest_bit(word: u64, from: u32) -> Option<u32> {
    if from >= u64::BITS {
        return None;
    }
    let rest = word >> from << from;
    if rest == 0 { None } else { Some(rest.trailing_zeros()) }
}

impl Chunks {
    /// Numbers that can be members: those below.
    pub(super) const LIMIT: u32 = 64 * 64 * 64;

    /// The empty set.
    pub(super) const fn new() -> Self {
        Self { top: 0, middle: [0; 64], bottom: [0; 64 * 64] }
    }

    /// Makes `chunk` a member.
    pub(super) fn insert(&mut self, chunk: u32) {
        self.bottom[chunk as usize / 64] |= 1 << (chunk % 64);
        self.middle[chunk as usize / 4096] |= 1 << (chunk / 64 % 64);
        self.top |= 1 << (chunk / 4096);
    }

    /// Makes `chunk` no member.
    pub(super) fn remove(&mut self, chunk: u32) {
        let (bottom, middle) = (chunk as usize / 64, chunk as usize / 4096);
        self.bottom[bottom] &= !(1 << (chunk % 64));
        if self.bottom[bottom] == 0 {
            self.middle[middle] &= !(1 << (chunk / 64 % 64));
            if self.middle[middle] == 0 {
                self.top &= !(1 << (chunk / 4096));
            }
        }
    }

    /// The lowest member that is not below `from`.
    pub(super) fn lowest_from(&self, from: u32) -> Option<u32> {
        if from >= Self::LIMIT {
            return None;
        }
        let (top, middle, bottom) = (from / 4096, from / 64 % 64, from % 64);
        if let Some(bit) = lowest_bit(self.bottom[from as usize / 64], bottom) {
            return Some(from / 64 * 64 + bit);
        }
        let (top, middle) = match lowest_bit(self.middle[top as usize], middle + 1) {
            Some(bit) => (top, bit),
            None => {
                let top = lowest_bit(self.top, top + 1)?;
                (top, self.middle[top as usize].trailing_zeros())
            }
        };
        let word = top * 64 + middle;
        Some(word * 64 + self.bottom[word as usize].trailing_zeros())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn runs_start_at_multiples_of_their_length() {
        assert_eq!(lowest_run(ALL_VACANT, 3), Some(0));
        assert_eq!(lowest_run(ALL_VACANT << 1, 0), Some(1));
        assert_eq!(lowest_run(ALL_VACANT << 1, 1), Some(2));
        assert_eq!(lowest_run(ALL_VACANT << 1, 3), Some(8));
        assert_eq!(lowest_run(0b0110, 1), None);
        assert_eq!(lowest_run(1 << 63, 0), Some(63));
        assert_eq!(lowest_run(0xff << 56, 3), Some(56));
        assert_eq!(lowest_run(0, 0), None);
    }

    proptest! {
        #[test]
        fn a_run_is_vacant_and_none_below_is(vacant in any::<u64>(), order in 0_u8..=3) {
            let runs = (0..CHUNK_SLOTS).step_by(1 << order);
            let mut fitting = runs.filter(|&first| (first..first + (1 << order)).all(|slot| vacant >> slot & 1 == 1));
            prop_assert_eq!(lowest_run(vacant, order), fitting.next());
        }

        #[test]
        fn the_set_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..3_u32, 0..Chunks::LIMIT), 1..200)) {
            let mut chunks = Box::new(Chunks::new());
            let mut model = BTreeSet::new();
            for (insert, spread, chunk) in steps {
                // Near neighbours, members of one word of the middle, and anything.
                let chunk = chunk % [128, 8192, Chunks::LIMIT][spread as usize];
                if insert {
                    chunks.insert(chunk);
                    model.insert(chunk);
                } else {
                    chunks.remove(chunk);
                    model.remove(&chunk);
                }
                for from in [0, chunk.saturating_sub(1), chunk, chunk + 1, chunk + 64, chunk + 4096] {
                    prop_assert_eq!(chunks.lowest_from(from), model.range(from..).next().copied());
                }
            }
        }
    }
}
