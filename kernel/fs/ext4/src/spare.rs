//! Spares: what blocks held before their last change, kept to become the private copies of the next handles that change them.
//!
//! A handle's private copy differs from what it was made of in a few places, and most blocks that it changes are changed by the next handle, too.
//! So the value that a published copy replaces is kept, with the places where the two differ: with those copied from the newer one it
//! is a copy of that, without memory being taken for it or the rest of the block being copied.
//!
//! A spare is only used if the block's newest value is still the one that replaced it, and only if nobody looks at it any more: readers and commits
//! hold references to values, and a value with references is never changed. Otherwise a copy is made from scratch.
//!
//! There are so many at most. When the younger half is full, the older half is dropped: what is changed again and again stays, what
//! was passed through, as the inodes of a tree that is removed, goes.
//!
//! The spares are the running transaction's, under the change lock, and go when it is closed: what they hold is the commit's then.

use alloc::sync::Arc;
use core::ops::Range;

use crate::cache::{BlockBytes, BlockMap};
use crate::{Error, Result};

/// Spares in each half at most: together 1 MiB with the usual blocks.
const HALF_MAX: usize = 128;
/// Pieces that a block is divided into.
const PIECES: usize = 64;

/// Pieces of a block that two of its values differ in at most, one bit each.
#[derive(Clone, Copy, Default)]
pub(crate) struct Differences(u64);

impl Differences {
    /// Anything may differ.
    pub(crate) const ALL: Self = Self(!0);

    /// What lies in `range` of a block of that size may differ, too.
    pub(crate) fn add(&mut self, range: Range<usize>, block_bytes: usize) {
        debug_assert!(range.end <= block_bytes, "a place in the block");
        if range.is_empty() {
            return;
        }
        let piece = block_bytes / PIECES;
        let (first, last) = (range.start / piece, (range.end - 1) / piece);
        self.0 |= !0 >> (PIECES - 1 - (last - first)) << first;
    }

    /// Makes `old` equal to `new`, which differs from it here only.
    fn copy(self, new: &[u8], old: &mut [u8]) {
        let piece = new.len() / PIECES;
        let mut left = self.0;
        while left != 0 {
            let first = left.trailing_zeros() as usize;
            let end = first + (left >> first).trailing_ones() as usize;
            let range = first * piece..end * piece;
            old[range.clone()].copy_from_slice(&new[range]);
            left = if end < PIECES { left >> end << end } else { 0 };
        }
        debug_assert!(*old == *new, "all changes were told");
    }
}

struct Spare {
    bytes: BlockBytes,
    newer: BlockBytes,
    differences: Differences,
}

/// See the theory of this file. A block has one in one of the halves at most.
#[derive(Default)]
pub(crate) struct Spares {
    young: BlockMap<Spare>,
    old: BlockMap<Spare>,
}

impl Spares {
    /// Makes room for so many more, so that [`keep`](Self::keep) can't fail.
    pub(crate) fn reserve(&mut self, count: usize) -> Result<()> {
        if self.young.len() + count > HALF_MAX {
            self.old.clear();
            core::mem::swap(&mut self.young, &mut self.old);
        }
        self.young.try_reserve(count).map_err(|_| Error::OutOfMemory)
    }

    /// Keeps what a block held before `newer`. Room was reserved.
    pub(crate) fn keep(
        &mut self,
        block: u64,
        bytes: BlockBytes,
        newer: BlockBytes,
        differences: Differences,
    ) {
        self.old.remove(&block);
        self.young.insert(block, Spare { bytes, newer, differences });
    }

    /// A copy of a block's newest value that nobody else has, if its spare can become that.
    pub(crate) fn take(&mut self, block: u64, newest: &BlockBytes) -> Option<BlockBytes> {
        let spare = self.young.remove(&block).or_else(|| self.old.remove(&block));
        let Spare { mut bytes, newer, differences } = spare?;
        if !Arc::ptr_eq(&newer, newest) {
            return None;
        }
        differences.copy(newest, Arc::get_mut(&mut bytes)?);
        Some(bytes)
    }

    /// The block has no use for one.
    pub(crate) fn drop(&mut self, block: u64) {
        self.young.remove(&block);
        self.old.remove(&block);
    }

    /// Drops all.
    pub(crate) fn clear(&mut self) {
        self.young.clear();
        self.old.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(fill: impl Fn(usize) -> u8) -> BlockBytes {
        Arc::new((0..1024).map(fill).collect())
    }

    fn differences(ranges: &[(usize, usize)]) -> Differences {
        let mut differences = Differences::default();
        ranges.iter().for_each(|(from, to)| differences.add(*from..*to, 1024));
        differences
    }

    #[test]
    fn what_differs_is_copied_wherever_it_is() {
        let cases: [&[(usize, usize)]; 6] =
            [&[(0, 1)], &[(1023, 1024)], &[(15, 17), (900, 1024)], &[(0, 1024)], &[(3, 3)], &[(16, 1008)]];
        for ranges in cases {
            let differs = |at| ranges.iter().any(|(from, to)| (*from..*to).contains(&at));
            let new = value(|at| if differs(at) { 2 } else { 1 });
            let mut spares = Spares::default();
            spares.keep(7, value(|_| 1), new.clone(), differences(ranges));
            assert_eq!(spares.take(7, &new).expect("nobody has it"), new);
            assert!(spares.take(7, &new).is_none(), "it was taken");
        }
        let new = value(|_| 2);
        let mut spares = Spares::default();
        spares.keep(7, value(|_| 1), new.clone(), Differences::ALL);
        assert_eq!(spares.take(7, &new).expect("nobody has it"), new);
    }

    #[test]
    fn what_is_changed_again_and_again_stays_and_what_was_passed_through_goes() {
        let new = value(|_| 2);
        let mut spares = Spares::default();
        for passed in 1..10 * HALF_MAX as u64 {
            let taken = spares.take(0, &new);
            assert!(taken.is_some() || passed == 1, "it was used by the last handle");
            spares.reserve(2).unwrap();
            for block in [0, passed] {
                spares.keep(block, value(|_| 1), new.clone(), Differences::ALL);
            }
            assert!(spares.young.len() + spares.old.len() <= 2 * HALF_MAX);
        }
        assert!(spares.take(1, &new).is_none());
        assert!(spares.take(10 * HALF_MAX as u64 - 1, &new).is_some(), "the newest");
    }

    #[test]
    fn a_value_that_somebody_looks_at_is_left_alone() {
        let (old, new) = (value(|_| 1), value(|_| 2));
        let mut spares = Spares::default();
        spares.keep(7, old.clone(), new.clone(), Differences::ALL);
        assert!(spares.take(7, &new).is_none());
        assert_eq!(old, value(|_| 1));
    }

    #[test]
    fn a_spare_of_another_value_is_of_no_use() {
        let mut spares = Spares::default();
        spares.keep(7, value(|_| 1), value(|_| 2), differences(&[(0, 1)]));
        assert!(spares.take(7, &value(|_| 2)).is_none(), "equal, but not known to be");
    }
}
