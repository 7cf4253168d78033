//! The split layout: a table of descriptors, a ring of buffers that the device may have, and a ring of those that it gives back.
//!
//! A buffer is a chain of descriptors, named by its first. The chains are linked in the driver's own memory too ([`Split::next`]), which is what freeing goes by.
//!
//! Order: a descriptor, and the entry of the ring that names it, are written before the index that shows the entry (Release); what the device gave back is
//! read after its index (Acquire); between showing an index and asking whether the device wants to hear of it, or between asking for interrupts and looking
//! for what came before, nothing may pass (a full fence).

use alloc::vec::Vec;
use core::sync::atomic::{Ordering, fence};

use memory::{OutOfMemory, fallible};

use super::memory::{Area, DESCRIPTOR_BYTES, INDIRECT, NEXT, Piece, RingMemory, WRITE, passes};
use super::slots::{Slots, Trouble};

/// Offsets in the ring of available buffers: flags, index, entries; behind those the index that shall interrupt.
const INDEX: usize = 2;
const ENTRIES: usize = 4;
/// Bytes of an entry in the ring of used buffers.
const USED_BYTES: usize = 8;
/// No interrupts, and no notifications.
const QUIET: u16 = 1;

/// See the theory of this file.
pub struct Split<T, M> {
    memory: M,
    tables: Option<Area<M>>,
    size: u16,
    event_index: bool,
    slots: Slots<T>,
    /// Free descriptors.
    free: Vec<u16>,
    /// The one after, of descriptors in use.
    next: Vec<u16>,
    /// Buffers ever given to the device, as far as 16 bits count.
    given: u16,
    /// The same, at the last [`Split::publish`].
    published: u16,
    /// Buffers ever taken back.
    taken: u16,
}

impl<T, M: RingMemory> Split<T, M> {
    /// Bytes of memory for a ring of this size, a power of two.
    pub const fn bytes(size: u16) -> usize {
        Self::used(size) + ENTRIES + USED_BYTES * size as usize + 2
    }

    /// Where the ring of available buffers is.
    pub const fn available(size: u16) -> usize {
        DESCRIPTOR_BYTES * size as usize
    }

    /// Where the ring of used buffers is.
    pub const fn used(size: u16) -> usize {
        (Self::available(size) + ENTRIES + 2 * size as usize + 2).next_multiple_of(4)
    }

    /// An empty ring in zeroed memory. With tables, a buffer of several pieces takes one descriptor.
    ///
    /// # Errors
    /// No memory.
    ///
    /// # Panics
    /// If the size is no power of two.
    pub fn new(
        memory: M,
        size: u16,
        event_index: bool,
        tables: Option<Area<M>>,
    ) -> Result<Self, OutOfMemory> {
        assert!(size.is_power_of_two() && size <= 1 << 15, "the transport has checked the size");
        let mut free = fallible::try_vec(size.into())?;
        free.extend((0..size).rev());
        let next = fallible::try_vec_of(0, size.into())?;
        let slots = Slots::new(size)?;
        Ok(Self { memory, tables, size, event_index, slots, free, next, given: 0, published: 0, taken: 0 })
    }

    /// Buffers that the device has.
    pub fn with_device(&self) -> u16 {
        self.slots.with_device()
    }

    fn write_descriptor(memory: &M, offset: usize, piece: &Piece, flags: u16, next: u16) {
        let flags = flags | if piece.written { WRITE } else { 0 };
        memory.write_u64(offset, piece.address.as_u64());
        memory.write_u32(offset + 8, piece.bytes);
        memory.write_u16(offset + 12, flags);
        memory.write_u16(offset + 14, next);
    }

    /// Gives the device a buffer, which it may see at once, and hears of by [`Split::publish`] at the latest.
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
        if wanted > self.free.len() {
            return Err(token);
        }
        let head = if in_table { self.add_table(pieces) } else { self.add_chain(pieces) };
        self.slots.give(head, token, wanted as u16, pieces);
        let entry = Self::available(self.size) + ENTRIES + 2 * usize::from(self.given % self.size);
        self.memory.write_u16(entry, head);
        self.given = self.given.wrapping_add(1);
        Ok(())
    }

    fn take_free(&mut self) -> u16 {
        self.free.pop().expect("the caller has counted the free descriptors")
    }

    fn add_table(&mut self, pieces: &[Piece]) -> u16 {
        let head = self.take_free();
        let area = self.tables.as_ref().expect("the caller has seen the tables");
        for (index, piece) in pieces.iter().enumerate() {
            let flags = if index + 1 < pieces.len() { NEXT } else { 0 };
            let offset = area.offset(head) + index * DESCRIPTOR_BYTES;
            Self::write_descriptor(&area.memory, offset, piece, flags, index as u16 + 1);
        }
        let address = machine::address::PhysAddr::new(area.table(head));
        let table = Piece::read(address, (pieces.len() * DESCRIPTOR_BYTES) as u32);
        Self::write_descriptor(&self.memory, usize::from(head) * DESCRIPTOR_BYTES, &table, INDIRECT, 0);
        head
    }

    /// Links descriptors from the last piece to the first.
    fn add_chain(&mut self, pieces: &[Piece]) -> u16 {
        let mut following = None;
        for piece in pieces.iter().rev() {
            let descriptor = self.take_free();
            let (flags, next) = following.map_or((0, 0), |next| (NEXT, next));
            Self::write_descriptor(
                &self.memory,
                usize::from(descriptor) * DESCRIPTOR_BYTES,
                piece,
                flags,
                next,
            );
            self.next[usize::from(descriptor)] = next;
            following = Some(descriptor);
        }
        following.expect("a buffer has a piece")
    }

    /// Shows the device all buffers added so far. Says whether it wants to be notified.
    pub fn publish(&mut self) -> bool {
        if self.published == self.given {
            return false;
        }
        fence(Ordering::Release);
        self.memory.write_u16(Self::available(self.size) + INDEX, self.given);
        fence(Ordering::SeqCst);
        let old = core::mem::replace(&mut self.published, self.given);
        let used = Self::used(self.size);
        if self.event_index {
            let event = self.memory.read_u16(used + ENTRIES + USED_BYTES * usize::from(self.size));
            passes(event, self.given, old)
        } else {
            self.memory.read_u16(used) & QUIET == 0
        }
    }

    fn waiting(&self) -> u16 {
        self.memory.read_u16(Self::used(self.size) + INDEX).wrapping_sub(self.taken)
    }

    /// The next buffer that the device has given back, and how many bytes it has written.
    ///
    /// # Errors
    /// [`Trouble`]; the ring is not to be used any more then.
    pub fn take(&mut self) -> Result<Option<(T, u32)>, Trouble> {
        let waiting = self.waiting();
        if waiting == 0 {
            return Ok(None);
        }
        if waiting > self.slots.with_device() {
            return Err(Trouble::TooMany);
        }
        fence(Ordering::Acquire);
        let entry = Self::used(self.size) + ENTRIES + USED_BYTES * usize::from(self.taken % self.size);
        let (number, written) = (self.memory.read_u32(entry), self.memory.read_u32(entry + 4));
        let (token, descriptors) = self.slots.take(number, written)?;
        self.taken = self.taken.wrapping_add(1);
        let mut descriptor = number as u16;
        for _ in 0..descriptors {
            self.free.push(descriptor);
            descriptor = self.next[usize::from(descriptor)];
        }
        debug_assert!(self.free.len() <= usize::from(self.size), "each descriptor is free once");
        Ok(Some((token, written)))
    }

    /// Asks for an interrupt when the next buffer comes back. True if one has come already, for which there may be none.
    pub fn want_interrupt(&mut self) -> bool {
        let available = Self::available(self.size);
        if self.event_index {
            self.memory.write_u16(available + ENTRIES + 2 * usize::from(self.size), self.taken);
        } else {
            self.memory.write_u16(available, 0);
        }
        fence(Ordering::SeqCst);
        self.waiting() != 0
    }

    /// Asks for no interrupts. Some may come nevertheless.
    pub fn refuse_interrupts(&mut self) {
        if !self.event_index {
            self.memory.write_u16(Self::available(self.size), QUIET);
        }
    }

    /// Takes any buffer away from a device that is not at work any more.
    pub fn take_away(&mut self) -> Option<T> {
        self.slots.take_away()
    }
}
