//! An ordered list in chunks: what the locks of a file, and who waits for them, are kept in.
//!
//! A list of short lists. A place is found by two binary searches; putting in or taking out moves what lies behind it in one chunk,
//! and once in many times the list of chunks. A list of one chunk is a plain vector.
//!
//! # Invariants
//! A chunk has [`CHUNK`] elements at most and one at least, unless it is the only one. Two neighbours that a removal left with half
//! a chunk's elements together are joined, so memory follows the number of elements.

use alloc::vec::Vec;

use crate::{Result, allocation};

/// Elements in a chunk: moving them all costs as much as a few missed searches.
pub(super) const CHUNK: usize = 64;
/// Elements that can be put in at once.
pub(super) const INSERT_MAX: usize = 3;
/// Room that an empty list may keep: whoever locks and unlocks a few ranges again and again allocates nothing.
const KEPT_WHEN_EMPTY: usize = 8;

/// Where an element is, or where one would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    chunk: usize,
    index: usize,
}

/// The list.
pub(super) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
    length: usize,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Chunks<T> {
    pub(super) const FIRST: Place = Place { chunk: 0, index: 0 };

    pub(super) const fn new() -> Self {
        Self { chunks: Vec::new(), length: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn get(&self, place: Place) -> Option<&T> {
        self.chunks.get(place.chunk)?.get(place.index)
    }

    pub(super) fn get_mut(&mut self, place: Place) -> Option<&mut T> {
        self.chunks.get_mut(place.chunk)?.get_mut(place.index)
    }

    /// The place behind one that has an element.
    pub(super) fn next(&self, place: Place) -> Place {
        let inside = self.chunks.get(place.chunk).is_some_and(|chunk| place.index + 1 < chunk.len());
        if inside {
            Place { index: place.index + 1, ..place }
        } else {
            Place { chunk: place.chunk + 1, index: 0 }
        }
    }

    /// The first place whose element is not `before` what is looked for.
    pub(super) fn seek(&self, before: impl Fn(&T) -> bool) -> Place {
        let chunk = self.chunks.partition_point(|chunk| chunk.last().is_some_and(&before));
        let index = self.chunks.get(chunk).map_or(0, |chunk| chunk.partition_point(&before));
        Place { chunk, index }
    }

    /// Makes room for [`INSERT_MAX`] elements at a place; returns where that is now. Changes no element.
    pub(super) fn make_room(&mut self, place: Place) -> Result<Place> {
        let at_end = place.chunk == self.chunks.len();
        let place = match self.chunks.last() {
            // Behind the last element is also in the last chunk.
            Some(last) if at_end => Place { chunk: place.chunk - 1, index: last.len() },
            _ => place,
        };
        match self.chunks.get_mut(place.chunk) {
            None => {
                self.insert_chunk(0, INSERT_MAX)?;
                Ok(Self::FIRST)
            }
            Some(chunk) if chunk.len() + INSERT_MAX <= CHUNK => {
                allocation::reserve(chunk, INSERT_MAX)?;
                Ok(place)
            }
            // Who appends leaves full chunks behind.
            Some(chunk) if at_end && place.index == chunk.len() => {
                self.insert_chunk(place.chunk + 1, INSERT_MAX)?;
                Ok(Place { chunk: place.chunk + 1, index: 0 })
            }
            Some(_) => self.split(place),
        }
    }

    fn insert_chunk(&mut self, at: usize, room: usize) -> Result<()> {
        allocation::reserve(&mut self.chunks, 1)?;
        let mut fresh = Vec::new();
        allocation::reserve(&mut fresh, room)?;
        self.chunks.insert(at, fresh);
        Ok(())
    }

    fn split(&mut self, place: Place) -> Result<Place> {
        const HALF: usize = CHUNK / 2;
        self.insert_chunk(place.chunk + 1, CHUNK)?;
        let (left, right) = self.chunks.split_at_mut(place.chunk + 1);
        let (old, fresh) = (&mut left[place.chunk], &mut right[0]);
        fresh.extend(old.drain(HALF..));
        if place.index <= HALF {
            allocation::reserve(old, INSERT_MAX)?;
            return Ok(place);
        }
        Ok(Place { chunk: place.chunk + 1, index: place.index - HALF })
    }

    /// Takes `count` elements out from a place on and puts others there. Without any to put in it needs no room, otherwise that of
    /// [`Self::make_room`]; returns nothing and cannot fail.
    pub(super) fn replace(&mut self, place: Place, count: usize, fresh: impl Iterator<Item = T>) {
        self.take_out(place, count);
        if let Some(chunk) = self.chunks.get_mut(place.chunk) {
            let before = chunk.len();
            for (offset, element) in fresh.enumerate() {
                debug_assert!(offset < INSERT_MAX && chunk.len() < chunk.capacity(), "no room was made");
                chunk.insert(place.index + offset, element);
            }
            self.length += chunk.len() - before;
        }
        self.join(place.chunk);
    }

    /// Elements from a place on that lie in its chunk and are `wanted`: the first of them are.
    pub(super) fn run(&self, place: Place, wanted: impl Fn(&T) -> bool) -> usize {
        let rest = self.chunks.get(place.chunk).and_then(|chunk| chunk.get(place.index..));
        rest.map_or(0, |rest| rest.partition_point(wanted))
    }

    /// Leaves the place's chunk there, even if it is empty.
    fn take_out(&mut self, place: Place, count: usize) {
        let Some(chunk) = self.chunks.get_mut(place.chunk) else { return };
        debug_assert!(count <= self.length, "as many elements as there are");
        let here = count.min(chunk.len() - place.index);
        chunk.drain(place.index..place.index + here);
        let mut left = count - here;
        let next = place.chunk + 1;
        let mut whole = 0;
        while let Some(chunk) = self.chunks.get(next + whole)
            && chunk.len() <= left
        {
            left -= chunk.len();
            whole += 1;
        }
        self.chunks.drain(next..next + whole);
        if left > 0
            && let Some(chunk) = self.chunks.get_mut(next)
        {
            chunk.drain(..left);
        }
        self.length -= count;
    }

    /// Joins a chunk with a neighbour when both have little.
    fn join(&mut self, at: usize) {
        for left in [at, at.wrapping_sub(1)] {
            let Some([first, second]) = self.chunks.get_mut(left..).and_then(|rest| rest.first_chunk_mut())
            else {
                continue;
            };
            let either_is_empty = first.is_empty() || second.is_empty();
            // Without room they stay apart: it costs memory that is needed for moving them.
            if !either_is_empty
                && (first.len() + second.len() > CHUNK / 2
                    || allocation::reserve(first, second.len()).is_err())
            {
                continue;
            }
            if first.is_empty() {
                core::mem::swap(first, second);
            }
            first.append(second);
            self.chunks.remove(left + 1);
        }
        let room = self.chunks.first().map_or(0, Vec::capacity).max(self.chunks.capacity());
        if self.length == 0 && room > KEPT_WHEN_EMPTY {
            self.chunks = Vec::new();
        }
    }

    /// Room for elements, used or not.
    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.chunks.iter().map(Vec::capacity).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(list: &mut Chunks<u32>, value: u32) {
        let place = list.seek(|&known| known < value);
        let place = list.make_room(place).unwrap();
        list.replace(place, 0, [value].into_iter());
    }

    fn all(list: &Chunks<u32>) -> Vec<u32> {
        let mut place = Chunks::<u32>::FIRST;
        let mut values = Vec::new();
        while let Some(&value) = list.get(place) {
            values.push(value);
            place = list.next(place);
        }
        values
    }

    /// Numbers below `count` once each, in an order without much order.
    fn scattered(count: u32) -> impl Iterator<Item = u32> {
        (0..count).map(move |index| (u64::from(index) * 7919 % u64::from(count)) as u32)
    }

    #[test]
    fn elements_stay_in_order_whatever_the_order_of_arrival() {
        let orders: [Vec<u32>; 3] =
            [(0..1000).collect(), (0..1000).rev().collect(), scattered(1000).collect()];
        for order in orders {
            let mut list = Chunks::new();
            order.into_iter().for_each(|value| insert(&mut list, value));
            assert_eq!((list.len(), all(&list)), (1000, (0..1000).collect()));
        }
    }

    #[test]
    fn a_range_over_many_chunks_is_replaced() {
        let mut list = Chunks::new();
        (0..1000).for_each(|value| insert(&mut list, value * 10));
        for (from, count) in [(995, 5), (1, 600), (0, 3)] {
            let mut expected = all(&list);
            let place = list.make_room(list.seek(|&known| known < expected[from])).unwrap();
            let first = expected[from] + 1;
            list.replace(place, count, [first, first + 1].into_iter());
            expected.splice(from..from + count, [first, first + 1]);
            assert_eq!((list.len(), all(&list)), (expected.len(), expected));
        }
    }

    #[test]
    fn a_few_elements_come_and_go_in_the_same_room() {
        let mut list = Chunks::new();
        (0..3).for_each(|value| insert(&mut list, value));
        list.replace(Chunks::<u32>::FIRST, 3, core::iter::empty());
        let kept = list.capacity();
        (0..3).for_each(|value| insert(&mut list, value));
        assert!(kept > 0 && list.capacity() == kept);
    }

    #[test]
    fn memory_follows_the_number_of_elements() {
        let mut list = Chunks::new();
        scattered(20_000).for_each(|value| insert(&mut list, value));
        for value in scattered(20_000).filter(|value| value % 50 != 0) {
            list.replace(list.seek(|&known| known < value), 1, core::iter::empty());
        }
        assert_eq!(all(&list), (0..20_000).step_by(50).collect::<Vec<_>>());
        assert!(list.capacity() < 400 * 8, "room for {} elements is kept for 400", list.capacity());
        list.replace(Chunks::<u32>::FIRST, 400, core::iter::empty());
        assert_eq!((list.len(), list.capacity()), (0, 0));
    }
}
