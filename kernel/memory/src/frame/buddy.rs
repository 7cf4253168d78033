//! The buddy allocator: free blocks of 2^0 to 2^10 frames.
//!
//! A block of order *k* starts at a frame number divisible by 2^*k*. Its *buddy* is the block of the same order whose
//! number differs in bit *k* only. A freed block is merged with its buddy as long as that is free as a whole, so two
//! free buddies of an order below the highest never exist side by side. Blocks never grow beyond [`MAX_ORDER`], which
//! is the size of a chunk (4 MiB): merging never looks at metadata outside the chunk of the freed block.
//!
//! Free blocks of an order form a doubly linked list through their first frame's metadata. New blocks go to the front
//! (their lines are likely in a cache).
//!
//! Locking: none; the owner of a [`Buddy`] has exclusive access to it and to the metadata of free frames.

use core::sync::atomic::Ordering::Relaxed;

use super::metadata::{State, Table};
use super::number::FrameNumber;

/// The highest order: blocks of 1024 frames, 4 MiB.
pub const MAX_ORDER: u8 = 10;

/// How many orders there are.
pub const ORDERS: usize = MAX_ORDER as usize + 1;

/// The free blocks of one pool of frames.
pub(crate) struct Buddy {
    /// First frame of each order's list; 0 ends it.
    heads: [u32; ORDERS],
    /// Length of each order's list.
    blocks: [u32; ORDERS],
    /// Frames in all the lists.
    free_frames: u64,
}

impl Buddy {
    pub(crate) const fn new() -> Self {
        Self { heads: [0; ORDERS], blocks: [0; ORDERS], free_frames: 0 }
    }

    pub(crate) const fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// Free blocks of each order.
    pub(crate) const fn blocks(&self) -> [u32; ORDERS] {
        self.blocks
    }

    /// Takes a free block of the given order, splitting a larger one if need be. The lower halves are used first, so
    /// that the higher parts stay whole.
    pub(crate) fn take(&mut self, table: &impl Table, order: u8) -> Option<FrameNumber> {
        let found = (order..=MAX_ORDER).find(|&candidate| self.heads[usize::from(candidate)] != 0)?;
        let block = FrameNumber::new(self.heads[usize::from(found)]);
        self.unlink(table, block, found);
        for half in (order..found).rev() {
            self.link(table, block.buddy(half), half);
        }
        self.free_frames -= 1 << order;
        Some(block)
    }

    /// Gives a block back and merges it with its free neighbours.
    pub(crate) fn give(&mut self, table: &impl Table, block: FrameNumber, order: u8) {
        debug_assert!(block.is_aligned(order), "a block of order {order} cannot start at {block:?}");
        debug_assert!(
            !matches!(table.at(block).state(), State::Free { .. }),
            "frame {block:?} is free already"
        );
        self.free_frames += 1 << order;
        let (mut block, mut order) = (block, order);
        table.at(block).set_state(State::Inside);
        while order < MAX_ORDER && table.at(block.buddy(order)).is_free_block(order) {
            self.unlink(table, block.buddy(order), order);
            order += 1;
            block = block.aligned_down(order);
        }
        self.link(table, block, order);
    }

    /// Gives back `count` frames from `start` on that need not form a block.
    pub(crate) fn give_range(&mut self, table: &impl Table, start: FrameNumber, count: u32) {
        for (block, order) in blocks_of(start, count) {
            self.give(table, block, order);
        }
    }

    fn link(&mut self, table: &impl Table, block: FrameNumber, order: u8) {
        let head = &mut self.heads[usize::from(order)];
        let metadata = table.at(block);
        metadata.set_state(State::Free { order });
        metadata.previous.store(0, Relaxed);
        metadata.next.store(*head, Relaxed);
        if *head != 0 {
            table.at(FrameNumber::new(*head)).previous.store(block.index(), Relaxed);
        }
        *head = block.index();
        self.blocks[usize::from(order)] += 1;
    }

    fn unlink(&mut self, table: &impl Table, block: FrameNumber, order: u8) {
        let metadata = table.at(block);
        debug_assert!(metadata.is_free_block(order), "{block:?} is not on the list of order {order}");
        let (next, previous) = (metadata.next.load(Relaxed), metadata.previous.load(Relaxed));
        if next != 0 {
            table.at(FrameNumber::new(next)).previous.store(previous, Relaxed);
        }
        if previous != 0 {
            table.at(FrameNumber::new(previous)).next.store(next, Relaxed);
        } else {
            self.heads[usize::from(order)] = next;
        }
        metadata.set_state(State::Inside);
        self.blocks[usize::from(order)] -= 1;
    }
}

/// The largest aligned blocks that make up `count` frames from `start` on, in ascending order.
pub(crate) fn blocks_of(start: FrameNumber, count: u32) -> impl Iterator<Item = (FrameNumber, u8)> {
    let (mut next, mut left) = (start.index(), count);
    core::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let by_alignment = if next == 0 { 31 } else { next.trailing_zeros() };
        let order = by_alignment.min(left.ilog2()).min(u32::from(MAX_ORDER));
        let block = FrameNumber::new(next);
        next += 1 << order;
        left -= 1 << order;
        Some((block, order as u8))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::super::metadata::Metadata;
    use super::*;

    struct TestTable(Vec<Metadata>);

    impl TestTable {
        fn new(frames: usize) -> Self {
            Self((0..frames).map(|_| Metadata::default()).collect())
        }
    }

    impl Table for TestTable {
        fn at(&self, frame: FrameNumber) -> &Metadata {
            &self.0[frame.index() as usize]
        }
    }

    const CHUNK: u32 = 1024;

    fn pool_of_chunks(chunks: u32) -> (TestTable, Buddy) {
        let table = TestTable::new(((chunks + 1) * CHUNK) as usize);
        let mut buddy = Buddy::new();
        buddy.give_range(&table, FrameNumber::new(CHUNK), chunks * CHUNK);
        (table, buddy)
    }

    #[test]
    fn a_range_is_cut_into_the_largest_aligned_blocks() {
        let blocks: Vec<_> =
            blocks_of(FrameNumber::new(3), 14).map(|(block, order)| (block.index(), order)).collect();
        assert_eq!(blocks, [(3, 0), (4, 2), (8, 3), (16, 0)]);
    }

    #[test]
    fn splitting_leaves_the_upper_halves_free() {
        let (table, mut buddy) = pool_of_chunks(1);
        let frame = buddy.take(&table, 0).expect("the chunk is free");
        assert_eq!(frame.index(), CHUNK);
        assert_eq!(buddy.blocks(), [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(buddy.free_frames(), u64::from(CHUNK) - 1);
    }

    #[test]
    fn freeing_everything_restores_whole_chunks() {
        let (table, mut buddy) = pool_of_chunks(2);
        let frames: Vec<_> = core::iter::from_fn(|| buddy.take(&table, 0)).collect();
        assert_eq!(frames.len() as u32, 2 * CHUNK);
        assert_eq!(buddy.free_frames(), 0);
        for frame in frames.into_iter().rev() {
            buddy.give(&table, frame, 0);
        }
        assert_eq!(buddy.blocks()[usize::from(MAX_ORDER)], 2);
    }

    #[test]
    fn nothing_is_found_when_only_smaller_blocks_are_free() {
        let (table, mut buddy) = pool_of_chunks(1);
        let _held = buddy.take(&table, 0);
        assert!(buddy.take(&table, MAX_ORDER).is_none());
    }

    #[test]
    #[should_panic(expected = "free already")]
    fn freeing_a_free_block_is_caught() {
        let (table, mut buddy) = pool_of_chunks(1);
        buddy.give(&table, FrameNumber::new(CHUNK), MAX_ORDER);
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_merge_again(steps in prop::collection::vec((any::<bool>(), 0..=MAX_ORDER, any::<u16>()), 1..300)) {
            let (table, mut buddy) = pool_of_chunks(3);
            let mut held: BTreeMap<u32, u8> = BTreeMap::new();
            for (take, order, pick) in steps {
                if take {
                    let before = buddy.free_frames();
                    if let Some(block) = buddy.take(&table, order) {
                        prop_assert!(block.is_aligned(order));
                        let start = block.index();
                        let end = start + (1 << order);
                        prop_assert!(held.range(..end).next_back().is_none_or(|(&other, &size)| other + (1 << size) <= start));
                        held.insert(start, order);
                        prop_assert_eq!(buddy.free_frames(), before - (1 << order));
                    }
                } else if !held.is_empty() {
                    let key = *held.keys().nth(usize::from(pick) % held.len()).expect("not empty");
                    let order = held.remove(&key).expect("just found");
                    buddy.give(&table, FrameNumber::new(key), order);
                }
                let listed: u64 = buddy.blocks().iter().enumerate().map(|(order, &count)| u64::from(count) << order).sum();
                prop_assert_eq!(listed, buddy.free_frames());
                let in_use: u64 = held.values().map(|&order| 1u64 << order).sum();
                prop_assert_eq!(listed + in_use, u64::from(3 * CHUNK));
            }
            for (start, order) in held {
                buddy.give(&table, FrameNumber::new(start), order);
            }
            prop_assert_eq!(buddy.blocks()[usize::from(MAX_ORDER)], 3);
        }
    }
}
