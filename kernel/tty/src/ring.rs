//! A fixed-size byte queue.

use alloc::boxed::Box;
use memory::OutOfMemory;
use memory::fallible::try_vec_of;

/// A queue of at most `capacity` bytes; positions count all bytes ever put in.
pub(crate) struct Ring {
    bytes: Box<[u8]>,
    head: u64,
    tail: u64,
}

impl Ring {
    /// An empty queue.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn new(capacity: usize) -> Result<Self, OutOfMemory> {
        assert!(capacity.is_power_of_two(), "positions are masked");
        Ok(Self { bytes: try_vec_of(0, capacity)?.into_boxed_slice(), head: 0, tail: 0 })
    }

    /// Bytes in the queue.
    pub(crate) fn len(&self) -> usize {
        (self.head - self.tail) as usize
    }

    /// Free room.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len() - self.len()
    }

    /// Appends a byte; false if there is no room.
    pub(crate) fn push(&mut self, byte: u8) -> bool {
        if self.room() == 0 {
            return false;
        }
        let at = self.index(self.head);
        self.bytes[at] = byte;
        self.head += 1;
        true
    }

    /// Takes the oldest bytes into `into`; returns how many.
    pub(crate) fn take(&mut self, into: &mut [u8]) -> usize {
        let count = into.len().min(self.len());
        for byte in &mut into[..count] {
            *byte = self.bytes[self.index(self.tail)];
            self.tail += 1;
        }
        count
    }

    /// Forgets the oldest bytes.
    pub(crate) fn discard_oldest(&mut self, count: usize) {
        self.tail += count.min(self.len()) as u64;
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.tail = self.head;
    }

    fn index(&self, position: u64) -> usize {
        position as usize & (self.bytes.len() - 1)
    }
}
