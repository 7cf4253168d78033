//! A pair of queues: commands go into one, their ends come out of the other.
//!
//! # What is believed of a controller
//! Nothing. All that decides what the driver does next is in the slots, in memory of its own: a command's number is its slot's, and an end whose number nobody waits for, which
//! names another queue or a place outside of it, is [`Trouble`]. An entry's last word is read once, then the others. There are fewer slots than entries, so neither queue
//! overflows, whatever the controller says of how far it has read: an entry is only written again after as many commands have ended as lie between,
//! and commands are fetched in order.

use alloc::vec::Vec;

use device::dma::Buffer;
use machine::address::PhysAddr;
use memory::{OutOfMemory, fallible};

use crate::command::{Command, Ending};

/// Bytes of an entry of the queue of completions.
const ENDING_BYTES: usize = 16;
/// Of its last word: changes with each round through the queue.
const PHASE: u32 = 1 << 16;

/// Memory that the driver and the controller share. Accesses are aligned, inside, and happen exactly as often as they are written.
pub trait QueueMemory: Send + Sync {
    /// Reads 32 bits.
    fn read_u32(&self, offset: usize) -> u32;
    /// Writes 32 bits.
    fn write_u32(&self, offset: usize, value: u32);
    /// Writes 64 bits.
    fn write_u64(&self, offset: usize, value: u64);
    /// Where the controller finds it.
    fn address(&self) -> PhysAddr;
}

impl QueueMemory for Buffer {
    fn read_u32(&self, offset: usize) -> u32 {
        Self::read_u32(self, offset)
    }

    fn write_u32(&self, offset: usize, value: u32) {
        Self::write_u32(self, offset, value);
    }

    fn write_u64(&self, offset: usize, value: u64) {
        Self::write_u64(self, offset, value);
    }

    fn address(&self) -> PhysAddr {
        self.physical()
    }
}

/// What a controller has done that it may not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It has ended a command that it did not have.
    UnknownCommand,
    /// It has ended a command of another queue.
    OtherQueue,
    /// It has read commands beyond the queue's end.
    OutsideOfQueue,
}

/// Where a pair of queues is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placement {
    /// Its number.
    pub id: u16,
    /// Entries of both.
    pub entries: u16,
    /// The queue of commands.
    pub submissions: PhysAddr,
    /// The queue of completions.
    pub completions: PhysAddr,
}

/// See the theory of this file.
pub struct Pair<T, M> {
    id: u16,
    entries: u16,
    submissions: M,
    completions: M,
    /// Where the next command goes.
    tail: u16,
    /// Where the next end is looked for.
    head: u16,
    /// How that differs from what was there before.
    phase: bool,
    /// What the driver wants back with a command; there while the controller has it.
    slots: Vec<Option<T>>,
    free: Vec<u16>,
}

impl<T, M: QueueMemory> Pair<T, M> {
    /// Bytes of the queue of commands.
    pub const fn submission_bytes(entries: u16) -> usize {
        entries as usize * Command::BYTES
    }

    /// Bytes of the queue of completions.
    pub const fn completion_bytes(entries: u16) -> usize {
        entries as usize * ENDING_BYTES
    }

    /// Empty queues, of at least two entries.
    ///
    /// # Errors
    /// No memory.
    pub fn new(id: u16, entries: u16, submissions: M, completions: M) -> Result<Self, OutOfMemory> {
        let places = entries.saturating_sub(1);
        let mut slots = fallible::try_vec(places.into())?;
        slots.extend((0..places).map(|_| None));
        let free = fallible::try_vec(places.into())?;
        let mut pair =
            Self { id, entries, submissions, completions, tail: 0, head: 0, phase: true, slots, free };
        pair.restart();
        Ok(pair)
    }

    /// As new, for a controller that has forgotten its queues. Nothing may be under way.
    pub fn restart(&mut self) {
        (self.tail, self.head, self.phase) = (0, 0, true);
        for offset in (0..Self::completion_bytes(self.entries)).step_by(4) {
            self.completions.write_u32(offset, 0);
        }
        self.free.clear();
        let empty = self.slots.iter().enumerate().filter(|(_, slot)| slot.is_none());
        self.free.extend(empty.rev().map(|(number, _)| number as u16));
    }

    /// Its number.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// How many commands the controller can have.
    pub fn places(&self) -> usize {
        self.slots.len()
    }

    /// Where it is.
    pub fn placement(&self) -> Placement {
        let (submissions, completions) = (self.submissions.address(), self.completions.address());
        Placement { id: self.id, entries: self.entries, submissions, completions }
    }

    /// Puts a command into the queue, which is made when its slot is known. Returns the queue's new end, for the doorbell.
    ///
    /// # Errors
    /// The token, if there is no room now.
    pub fn add(&mut self, token: T, make: impl FnOnce(u16, &T) -> Command) -> Result<u16, T> {
        let Some(number) = self.free.pop() else { return Err(token) };
        let command = make(number, &token);
        command.write(&self.submissions, usize::from(self.tail) * Command::BYTES, number);
        self.slots[usize::from(number)] = Some(token);
        self.tail = self.after(self.tail);
        Ok(self.tail)
    }

    fn after(&self, place: u16) -> u16 {
        if place + 1 == self.entries { 0 } else { place + 1 }
    }

    /// The next command that has ended.
    ///
    /// # Errors
    /// [`Trouble`]; the queue is not to be used any more.
    pub fn take(&mut self) -> Result<Option<(T, Ending)>, Trouble> {
        let offset = usize::from(self.head) * ENDING_BYTES;
        let last = self.completions.read_u32(offset + 12);
        if (last & PHASE != 0) != self.phase {
            return Ok(None);
        }
        let place = self.completions.read_u32(offset + 8);
        let result = self.completions.read_u32(offset);
        if place >> 16 != self.id.into() {
            return Err(Trouble::OtherQueue);
        }
        if place as u16 >= self.entries {
            return Err(Trouble::OutsideOfQueue);
        }
        let number = last as u16;
        let slot = self.slots.get_mut(usize::from(number)).ok_or(Trouble::UnknownCommand)?;
        let token = slot.take().ok_or(Trouble::UnknownCommand)?;
        self.free.push(number);
        self.head = self.after(self.head);
        self.phase ^= self.head == 0;
        Ok(Some((token, Ending { status: (last >> 17) as u16 & 0x7ff, result })))
    }

    /// How far completions were taken, for the doorbell.
    pub fn head(&self) -> u16 {
        self.head
    }

    /// The first command from this number on that the controller has.
    pub fn under_way(&self, from: u16) -> Option<u16> {
        let mut slots = self.slots.iter().enumerate().skip(from.into());
        slots.find_map(|(number, slot)| slot.is_some().then_some(number as u16))
    }

    /// Takes any command away from a controller that is not at work any more. [`Pair::restart`] makes room again.
    pub fn take_away(&mut self) -> Option<T> {
        self.slots.iter_mut().find_map(Option::take)
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
