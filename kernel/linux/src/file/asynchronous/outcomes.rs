//! Outcomes that nobody has taken, in a ring of whole pages, which are charged to the memory group of who makes the context.
//!
//! # How many there may be
//! At least as many as were asked for, and as many as Linux has room for: it gives each processor places ahead, so that twice the number is needed for all to
//! be usable, and fills the pages up. One place is always empty there. What is counted against `aio-max-nr` is what was asked for.

use alloc::vec::Vec;

use memory::fallible;
use memory::frame::{Frame, Purpose, Zeroed};
use zerocopy::IntoBytes;

use crate::abi::IoEvent;
use crate::errno::Errno;

const PAGE: usize = machine::address::PAGE_SIZE;
const EVENT_BYTES: usize = size_of::<IoEvent>();
const EVENTS_PER_PAGE: usize = PAGE / EVENT_BYTES;
/// The head of Linux's ring, in places.
const HEAD: usize = 1;
/// Places for each processor at least, before the number is doubled.
const PLACES_PER_CPU: usize = 4;

const _: () = assert!(PAGE.is_multiple_of(EVENT_BYTES), "no event is in two pages");

/// Places of a ring on Linux that was asked to have room for so many outcomes. One of them is always empty.
fn places(asked: usize, cpus: usize) -> usize {
    let wanted = 2 * asked.max(PLACES_PER_CPU * cpus) + 2;
    (wanted + HEAD).next_multiple_of(EVENTS_PER_PAGE) - HEAD
}

/// See the theory of this file.
pub(super) struct Outcomes {
    frames: Vec<Frame>,
    /// So many there may be.
    room: usize,
    first: usize,
    count: usize,
    /// Places for transfers that are being made.
    reserved: usize,
    pub(super) is_destroyed: bool,
}

impl Outcomes {
    /// None, with room for as many as were asked for at least.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn new(asked: usize) -> Result<Self, Errno> {
        let room = places(asked, machine::cpu::count()) - 1;
        let pages = room.div_ceil(EVENTS_PER_PAGE);
        let mut frames = fallible::try_vec(pages).map_err(|_| Errno::ENOMEM)?;
        for _ in 0..pages {
            frames.push(Frame::allocate(Purpose::Pipe, Zeroed::No).map_err(|_| Errno::ENOMEM)?);
        }
        Ok(Self { frames, room, first: 0, count: 0, reserved: 0, is_destroyed: false })
    }

    /// How many there may be.
    pub(super) fn room(&self) -> usize {
        self.room
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Makes sure that there will be a place for one.
    ///
    /// # Errors
    /// EAGAIN, EINVAL after the end.
    pub(super) fn reserve(&mut self) -> Result<(), Errno> {
        if self.is_destroyed {
            return Err(Errno::EINVAL);
        }
        if self.count + self.reserved >= self.room {
            return Err(Errno::EAGAIN);
        }
        self.reserved += 1;
        Ok(())
    }

    /// A place that was reserved is used, or given back.
    pub(super) fn settle(&mut self, event: Option<&IoEvent>) {
        self.reserved -= 1;
        if let Some(event) = event {
            let (frame, offset) = self.place(self.count);
            frame.write(offset, event.as_bytes());
            self.count += 1;
        }
    }

    /// Copies the first ones; how many.
    pub(super) fn copy(&self, to: &mut [IoEvent]) -> usize {
        let count = self.count.min(to.len());
        for (index, event) in to[..count].iter_mut().enumerate() {
            let (frame, offset) = self.place(index);
            let mut copy = IoEvent::default();
            frame.read(offset, copy.as_mut_bytes());
            *event = copy;
        }
        count
    }

    /// The first ones were taken.
    pub(super) fn forget(&mut self, count: usize) {
        debug_assert!(count <= self.count, "what is taken was there");
        self.first = (self.first + count) % self.room;
        self.count -= count;
    }

    /// Where the one is that comes so many after the first.
    fn place(&self, index: usize) -> (&Frame, usize) {
        let at = (self.first + index) % self.room;
        (&self.frames[at / EVENTS_PER_PAGE], at % EVENTS_PER_PAGE * EVENT_BYTES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_more_than_was_asked_for_and_pages_are_filled() {
        // One page: head, 127 places.
        assert_eq!([places(1, 1), places(1, 4), places(62, 4)], [127; 3]);
        assert_eq!([places(63, 1), places(1, 16)], [255; 2]);
        for asked in [1, 10, 128, 1000, 65_536] {
            assert!(places(asked, 2) > 2 * asked);
        }
    }

    #[test]
    fn outcomes_come_out_in_their_order_until_there_is_no_room() {
        let mut outcomes = Outcomes::new(200).expect("memory");
        let room = outcomes.room();
        let (mut put, mut taken) = (0, 0);
        for round in 0..5 {
            while outcomes.reserve().is_ok() {
                outcomes.settle(Some(&IoEvent { data: put, ..IoEvent::default() }));
                put += 1;
            }
            assert_eq!(outcomes.count(), room);
            for _ in 0..round * 17 + 1 {
                let mut batch = [IoEvent::default(); 3];
                let count = outcomes.copy(&mut batch);
                for event in &batch[..count] {
                    assert_eq!(event.data, taken);
                    taken += 1;
                }
                outcomes.forget(count);
            }
        }
    }
}
