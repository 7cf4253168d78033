//! What the driver knows of the buffers that the device has.

use alloc::vec::Vec;

use memory::{OutOfMemory, fallible};

use super::memory::Piece;

/// What a device has done that it may not do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// It has given back more buffers than it had.
    TooMany,
    /// It has given back a buffer that it did not have.
    Unknown,
    /// It says to have written more than there was room for.
    TooLong,
    /// It gives back buffers without having written anything, again and again.
    Empty,
}

/// A buffer.
struct Slot<T> {
    /// What the driver wants back with it; there while the device has it.
    token: Option<T>,
    /// Descriptors of the ring that it takes.
    descriptors: u16,
    /// Bytes that the device may write.
    room: u32,
}

/// Buffers by their numbers.
pub struct Slots<T> {
    slots: Vec<Slot<T>>,
    with_device: u16,
}

impl<T> Slots<T> {
    /// None in use.
    ///
    /// # Errors
    /// No memory.
    pub fn new(count: u16) -> Result<Self, OutOfMemory> {
        let mut slots = fallible::try_vec(count.into())?;
        slots.extend((0..count).map(|_| Slot { token: None, descriptors: 0, room: 0 }));
        Ok(Self { slots, with_device: 0 })
    }

    /// How many the device has.
    pub fn with_device(&self) -> u16 {
        self.with_device
    }

    /// The device gets a buffer.
    ///
    /// # Panics
    /// When it has one of that number.
    pub fn give(&mut self, number: u16, token: T, descriptors: u16, pieces: &[Piece]) {
        let slot = &mut self.slots[usize::from(number)];
        assert!(slot.token.is_none(), "a free number was chosen");
        let written = pieces.iter().filter(|piece| piece.written);
        slot.room = written.fold(0, |room: u32, piece| room.saturating_add(piece.bytes));
        slot.descriptors = descriptors;
        slot.token = Some(token);
        self.with_device += 1;
    }

    /// The device gives a buffer back, it says, and has written so many bytes: what came with it, and the descriptors that are free now.
    ///
    /// # Errors
    /// [`Trouble`]; the buffer stays with the device.
    pub fn take(&mut self, number: u32, written: u32) -> Result<(T, u16), Trouble> {
        let slot = usize::try_from(number).ok().and_then(|number| self.slots.get_mut(number));
        let slot = slot.filter(|slot| slot.token.is_some()).ok_or(Trouble::Unknown)?;
        if written > slot.room {
            return Err(Trouble::TooLong);
        }
        let token = slot.token.take().ok_or(Trouble::Unknown)?;
        self.with_device -= 1;
        Ok((token, slot.descriptors))
    }

    /// Takes any buffer away from a device that is not at work any more.
    pub fn take_away(&mut self) -> Option<T> {
        if self.with_device == 0 {
            return None;
        }
        let token = self.slots.iter_mut().find_map(|slot| slot.token.take());
        self.with_device -= u16::from(token.is_some());
        token
    }
}
