//! Who still owes a quiescent state, as a combining tree of bits.
//!
//! A leaf word has one bit for each of 64 CPUs; a word of the level above has one bit for each of 64 words below it, and so on up to
//! the root. A bit says: somebody below owes. Up to 64 CPUs the only word is leaf and root in one, so a report is one atomic
//! operation on it; with more CPUs only the last reporter of each word goes on to the next one, so no word is written by
//! more than 64 CPUs.
//!
//! Transitions of a bit:
//! - clear → set: [`Tree::begin`], by the one CPU that starts a grace period, from the root downwards. All words are clear before.
//! - set → clear: [`Tree::clear`], by the CPU itself or on its behalf; whoever clears the last bit of a word clears the
//!   word's bit above, once.
//!
//! Invariant: a word with a set bit has its own bit set in the word above. That is why the tree is filled from the root
//! down, all inner bits first, and those of leaves where nobody owes are cleared by the one who fills them: the root
//! becomes clear exactly once, after the last leaf was filled.
//!
//! `tests/models.rs` compiles this file against loom's atomics.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU64, Ordering};

use crate::CachePadded;

/// Bits of a word.
pub(crate) const FAN_OUT: usize = 64;

/// Words of a tree for so many CPUs.
pub(crate) const fn words_for(cpus: usize) -> usize {
    let mut level = cpus.div_ceil(FAN_OUT);
    let mut words = level;
    while level > 1 {
        level = level.div_ceil(FAN_OUT);
        words += level;
    }
    words
}

/// The bits of a word that has so many things below it from this one on.
const fn full(things: usize) -> u64 {
    if things >= FAN_OUT { u64::MAX } else { (1 << things) - 1 }
}

/// A tree of [`words_for`] words: the leaves, then the level above, and so on; the root is last.
pub(crate) struct Tree<const WORDS: usize> {
    cpus: usize,
    words: [CachePadded<AtomicU64>; WORDS],
}

impl<const WORDS: usize> Tree<WORDS> {
    /// A tree in which nobody owes anything.
    #[cfg(not(all(loom, test)))]
    pub(crate) const fn new(cpus: usize) -> Self {
        assert!(words_for(cpus) == WORDS, "a tree has the words that its CPUs need");
        Self { cpus, words: [const { CachePadded::new(AtomicU64::new(0)) }; WORDS] }
    }

    /// A tree in which nobody owes anything.
    #[cfg(all(loom, test))]
    pub(crate) fn new(cpus: usize) -> Self {
        assert!(words_for(cpus) == WORDS, "a tree has the words that its CPUs need");
        Self { cpus, words: core::array::from_fn(|_| CachePadded::new(AtomicU64::new(0))) }
    }

    /// Whether the CPU owes a quiescent state. One load: a stale answer is put right by a later look.
    #[inline(always)]
    pub(crate) fn owes(&self, cpu: usize) -> bool {
        self.words[cpu / FAN_OUT].load(Ordering::Relaxed) & (1 << (cpu % FAN_OUT)) != 0
    }

    /// The members of a leaf that owe a quiescent state, as bits.
    pub(crate) fn owing(&self, leaf: usize) -> u64 {
        self.words[leaf].load(Ordering::SeqCst)
    }

    /// Whether anybody owes anything.
    #[cfg(test)]
    pub(crate) fn is_clear(&self) -> bool {
        self.words[WORDS - 1].load(Ordering::SeqCst) == 0
    }

    /// Makes all CPUs for which `owes` says so owe a quiescent state; returns whether the tree is clear already and it was the
    /// caller who made it so. Only while it is clear, by one CPU at a time.
    pub(crate) fn begin(&self, owes: impl Fn(usize) -> bool) -> bool {
        let leaves = self.cpus.div_ceil(FAN_OUT);
        self.fill_inner(leaves);
        let mut became_clear = false;
        for leaf in 0..leaves {
            let first = leaf * FAN_OUT;
            let members = (self.cpus - first).min(FAN_OUT);
            let bits = (0..members)
                .filter(|&member| owes(first + member))
                .fold(0, |bits, member| bits | 1 << member);
            self.words[leaf].store(bits, Ordering::SeqCst);
            if bits == 0 {
                became_clear |= self.clear_above(leaf);
            }
        }
        became_clear
    }

    /// Sets all bits of the inner words, the root's first.
    fn fill_inner(&self, leaves: usize) {
        if WORDS == 1 {
            return;
        }
        let mut end = WORDS;
        while end > leaves {
            // The words below the last level seen so far; a level's size follows from the one below.
            let (level, start) = self.level_that_ends_at(end);
            let below = self.words_in_level(level - 1);
            for index in start..end {
                let things = below - (index - start) * FAN_OUT;
                self.words[index].store(full(things), Ordering::SeqCst);
            }
            end = start;
        }
    }

    /// Words in a level; level 0 are the leaves.
    fn words_in_level(&self, level: usize) -> usize {
        (0..level).fold(self.cpus.div_ceil(FAN_OUT), |words, _| words.div_ceil(FAN_OUT))
    }

    /// The number of the level whose last word is before this index, and the index of its first word.
    fn level_that_ends_at(&self, end: usize) -> (usize, usize) {
        let mut start = 0;
        let mut level = 0;
        loop {
            let words = self.words_in_level(level);
            if start + words == end {
                return (level, start);
            }
            start += words;
            level += 1;
        }
    }

    /// Clears the debt of a CPU, if it has one; returns whether that was the last one of all. Reads before are ordered
    /// before the clear (pairs with the SeqCst accesses of whoever finds the tree clear).
    pub(crate) fn clear(&self, cpu: usize) -> bool {
        let (leaf, bit) = (cpu / FAN_OUT, 1 << (cpu % FAN_OUT));
        let before = self.words[leaf].fetch_and(!bit, Ordering::SeqCst);
        before & bit != 0 && before == bit && self.clear_above(leaf)
    }

    /// A word has become clear: clears its bit in the word above, and so on; returns whether the root is clear now.
    fn clear_above(&self, word: usize) -> bool {
        if WORDS == 1 {
            return true;
        }
        let (mut start, mut level, mut place) = (0, 0, word);
        loop {
            let words = self.words_in_level(level);
            if words == 1 {
                return true;
            }
            start += words;
            level += 1;
            let (parent, bit) = (start + place / FAN_OUT, 1 << (place % FAN_OUT));
            let before = self.words[parent].fetch_and(!bit, Ordering::SeqCst);
            debug_assert!(before & bit != 0, "a word with debts has its bit set above");
            if before != bit {
                return false;
            }
            place /= FAN_OUT;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_grow_a_level_at_each_power_of_the_fan_out() {
        for (cpus, words) in
            [(1, 1), (64, 1), (65, 3), (128, 3), (4096, 65), (4097, 65 + 1 + 2), (64 * 4096, 4096 + 65)]
        {
            assert_eq!(words_for(cpus), words, "{cpus} CPUs");
        }
    }

    /// Everybody owes; they clear in the given order: only the last one makes the tree clear.
    fn last_of<const WORDS: usize>(cpus: usize, order: impl Iterator<Item = usize>) {
        let tree = Tree::<WORDS>::new(cpus);
        assert!(!tree.begin(|_| true));
        let mut cleared = 0;
        for cpu in order {
            assert!(tree.owes(cpu));
            assert!(!tree.is_clear());
            cleared += 1;
            assert_eq!(tree.clear(cpu), cleared == cpus, "CPU {cpu}, the {cleared}th");
            assert!(!tree.owes(cpu));
            assert!(!tree.clear(cpu), "nobody owes twice");
        }
        assert!(tree.is_clear());
    }

    #[test]
    fn only_the_last_report_clears_the_tree() {
        last_of::<1>(64, 0..64);
        last_of::<3>(65, (0..65).rev());
        last_of::<3>(100, 0..100);
        // A stride that visits all leaves in turn.
        last_of::<65>(4096, (0..4096).map(|index| index * 67 % 4096));
        last_of::<{ words_for(5000) }>(5000, (0..5000).map(|index| index * 67 % 5000));
    }

    #[test]
    fn leaves_without_debts_are_passed_over() {
        let tree = Tree::<65>::new(4096);
        assert!(!tree.begin(|cpu| cpu == 777));
        assert!(!tree.clear(778));
        assert!(tree.clear(777));
        assert!(tree.begin(|_| false), "nobody owes: clear from the start");
        assert!(tree.is_clear());
    }

    #[test]
    fn reports_from_many_threads_clear_the_tree_once() {
        use std::sync::atomic::AtomicU32;
        const CPUS: usize = 300;
        let tree = Tree::<{ words_for(CPUS) }>::new(CPUS);
        for _ in 0..50 {
            let clears = AtomicU32::new(u32::from(tree.begin(|cpu| cpu % 3 != 0)));
            std::thread::scope(|scope| {
                for part in 0..4 {
                    let (tree, clears) = (&tree, &clears);
                    scope.spawn(move || {
                        for cpu in (0..CPUS).filter(|cpu| cpu % 4 == part) {
                            clears.fetch_add(u32::from(tree.clear(cpu)), Ordering::Relaxed);
                        }
                    });
                }
            });
            assert_eq!(clears.into_inner(), 1);
            assert!(tree.is_clear());
        }
    }
}
