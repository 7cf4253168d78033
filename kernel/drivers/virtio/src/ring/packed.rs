//! The packed layout: one ring of descriptors that the driver fills and the device writes over as it gives buffers back.
//!
//! Two bits of a descriptor tell whose it is: they differ when it is the device's, and are equal when it was given back; what they stand for changes with each
//! round. A buffer has a number of its own, which the device repeats when it gives it back; it takes as many places of the ring as it has descriptors, and
//! they become free in the order in which the device gives buffers back, at the place where it writes next.
//!
//! Order: as in the [split layout](super::Split); what shows a buffer is the flags of its first descriptor, written last.

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use machine::address::PhysAddr;
use memory::{OutOfMemory, fallible};

use super::memory::{Area, DESCRIPTOR_BYTES, INDIRECT, NEXT, Piece, RingMemory, WRITE, passes};
use super::slots::{Slots, Trouble};

const AVAILABLE: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// Of the two structures behind the ring: always, never, or at a certain descriptor.
const EVENTS_ON: u16 = 0;
const EVENTS_OFF: u16 = 1;
const EVENTS_AT: u16 = 2;
/// Of the place of an event: the round.
const ROUND: u16 = 1 << 15;

/// A place in the ring, and whether the round is an odd one, the first being so.
#[derive(Clone, Copy)]
struct Place {
    index: u16,
    odd: bool,
}

impl Place {
    const START: Self = Self { index: 0, odd: true };

    fn advance(&mut self, count: u16, size: u16) {
        debug_assert!(count <= size);
        self.index += count;
        if self.index >= size {
            self.index -= size;
            self.odd = !self.odd;
        }
    }

    /// As it is written for events.
    fn event(self) -> u16 {
        self.index | if self.odd { ROUND } else { 0 }
    }
}

/// See the theory of this file.
pub struct Packed<T, M> {
    memory: M,
    tables: Option<Area<M>>,
    size: u16,
    event_index: bool,
    slots: Slots<T>,
    /// Numbers of no buffer.
    free: Vec<u16>,
    /// Places of the ring that are in use.
    in_use: u16,
    /// Where the next buffer goes.
    head: Place,
    /// Places filled since the last [`Packed::publish`].
    unpublished: u16,
    /// Where the device gives the next buffer back.
    tail: Place,
}

impl<T, M: RingMemory> Packed<T, M> {
    /// Bytes of memory for a ring of this size.
    pub const fn bytes(size: u16) -> usize {
        Self::device_event(size) + 4
    }

    /// Where the driver says which interrupts it wants.
    pub const fn driver_event(size: u16) -> usize {
        DESCRIPTOR_BYTES * size as usize
    }

    /// Where the device says which notifications it wants.
    pub const fn device_event(size: u16) -> usize {
        Self::driver_event(size) + 4
    }

    /// An empty ring in zeroed memory. With tables, a buffer of several pieces takes one descriptor.
    ///
    /// # Errors
    /// No memory.
    ///
    /// # Panics
    /// If the size is 0 or more than 32,768.
    pub fn new(
        memory: M,
        size: u16,
        event_index: bool,
        tables: Option<Area<M>>,
    ) -> Result<Self, OutOfMemory> {
        assert!(size > 0 && size <= 1 << 15, "the transport has checked the size");
        let mut free = fallible::try_vec(size.into())?;
        free.extend((0..size).rev());
        Ok(Self {
            memory,
            tables,
            size,
            event_index,
            slots: Slots::new(size)?,
            free,
            in_use: 0,
            head: Place::START,
            unpublished: 0,
            tail: Place::START,
        })
    }

    /// Buffers that the device has.
    pub fn with_device(&self) -> u16 {
        self.slots.with_device()
    }

    fn write_piece(memory: &M, offset: usize, piece: &Piece, number: u16) {
        memory.write_u64(offset, piece.address.as_u64());
        memory.write_u32(offset + 8, piece.bytes);
        memory.write_u16(offset + 12, number);
    }

    fn flags(place: Place, piece: &Piece, more: u16) -> u16 {
        let whose = if place.odd { AVAILABLE } else { USED };
        whose | more | if piece.written { WRITE } else { 0 }
    }

    /// Gives the device a buffer, which it may see at once, and hears of by [`Packed::publish`] at the latest.
    ///
    /// # Errors
    /// The token, if there is no room for so many pieces now.
    ///
    /// # Panics
    /// Without any piece.
    pub fn add(&mut self, pieces: &[Piece], token: T) -> Result<(), T> {
        assert!(!pieces.is_empty(), "a buffer has a piece");
        let in_table =
            self.tables.as_ref().is_some_and(|area| pieces.len() > 1 && pieces.len() <= area.entries);
        let wanted = if in_table { 1 } else { pieces.len() };
        if wanted > usize::from(self.size - self.in_use) {
            return Err(token);
        }
        let Some(number) = self.free.pop() else { return Err(token) };
        let wanted = wanted as u16;
        self.slots.give(number, token, wanted, pieces);
        if in_table {
            let table = self.fill_table(pieces, number);
            self.fill(&[table], number, INDIRECT);
        } else {
            self.fill(pieces, number, 0);
        }
        self.in_use += wanted;
        self.unpublished += wanted;
        Ok(())
    }

    /// Writes descriptors from the head on, the flags of the first last.
    fn fill(&mut self, pieces: &[Piece], number: u16, more: u16) {
        let mut place = self.head;
        let mut first = None;
        for (index, piece) in pieces.iter().enumerate() {
            let offset = usize::from(place.index) * DESCRIPTOR_BYTES;
            Self::write_piece(&self.memory, offset, piece, number);
            let next = if index + 1 < pieces.len() { NEXT } else { 0 };
            let flags = Self::flags(place, piece, more | next);
            if first.is_none() {
                first = Some((offset, flags));
            } else {
                self.memory.write_u16(offset + 14, flags);
            }
            place.advance(1, self.size);
        }
        fence(Ordering::Release);
        if let Some((offset, flags)) = first {
            self.memory.write_u16(offset + 14, flags);
        }
        self.head = place;
    }

    fn fill_table(&self, pieces: &[Piece], number: u16) -> Piece {
        let area = self.tables.as_ref().expect("the caller has seen the tables");
        for (index, piece) in pieces.iter().enumerate() {
            let offset = area.offset(number) + index * DESCRIPTOR_BYTES;
            Self::write_piece(&area.memory, offset, piece, 0);
            area.memory.write_u16(offset + 14, if piece.written { WRITE } else { 0 });
        }
        Piece::read(PhysAddr::new(area.table(number)), (pieces.len() * DESCRIPTOR_BYTES) as u32)
    }

    /// Says whether the device wants to be notified of the buffers added since the last time.
    pub fn publish(&mut self) -> bool {
        let added = core::mem::take(&mut self.unpublished);
        if added == 0 {
            return false;
        }
        fence(Ordering::SeqCst);
        let event = Self::device_event(self.size);
        match self.memory.read_u16(event + 2) & 3 {
            EVENTS_ON => true,
            EVENTS_AT if self.event_index => {
                let wanted = self.memory.read_u16(event);
                let round = if self.head.odd { ROUND } else { 0 };
                let behind = if wanted & ROUND == round { 0 } else { self.size };
                let new = self.head.index;
                passes((wanted & !ROUND).wrapping_sub(behind), new, new.wrapping_sub(added))
            }
            _ => false,
        }
    }

    fn is_waiting(&self) -> bool {
        let flags = self.memory.read_u16(usize::from(self.tail.index) * DESCRIPTOR_BYTES + 14);
        let ours = if self.tail.odd { AVAILABLE | USED } else { 0 };
        self.slots.with_device() > 0 && flags & (AVAILABLE | USED) == ours
    }

    /// The next buffer that the device has given back, and how many bytes it has written.
    ///
    /// # Errors
    /// [`Trouble`]; the ring is not to be used any more then.
    pub fn take(&mut self) -> Result<Option<(T, u32)>, Trouble> {
        if !self.is_waiting() {
            return Ok(None);
        }
        fence(Ordering::Acquire);
        let offset = usize::from(self.tail.index) * DESCRIPTOR_BYTES;
        let (written, number) = (self.memory.read_u32(offset + 8), self.memory.read_u16(offset + 12));
        let (token, descriptors) = self.slots.take(number.into(), written)?;
        self.free.push(number);
        self.in_use -= descriptors;
        self.tail.advance(descriptors, self.size);
        Ok(Some((token, written)))
    }

    /// Asks for an interrupt when the next buffer comes back. True if one has come already, for which there may be none.
    pub fn want_interrupt(&mut self) -> bool {
        let event = Self::driver_event(self.size);
        if self.event_index {
            self.memory.write_u16(event, self.tail.event());
            fence(Ordering::Release);
            self.memory.write_u16(event + 2, EVENTS_AT);
        } else {
            self.memory.write_u16(event + 2, EVENTS_ON);
        }
        fence(Ordering::SeqCst);
        self.is_waiting()
    }

    /// Asks for no interrupts. Some may come nevertheless.
    pub fn refuse_interrupts(&mut self) {
        self.memory.write_u16(Self::driver_event(self.size) + 2, EVENTS_OFF);
    }

    /// Takes any buffer away from a device that is not at work any more.
    pub fn take_away(&mut self) -> Option<T> {
        self.slots.take_away()
    }
}
