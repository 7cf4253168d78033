//! Memory that a device reaches: owned by the driver, never moved, read and written with volatile accesses.
//!
//! The device may change it at any moment. So no reference to it is ever made: what is read is a copy, and is to be checked as anything that comes
//! from outside. x86's caches are coherent with devices; what is left to do is to keep the compiler and the processor from reordering
//! ([`fence`]).

#[cfg(not(target_os = "none"))]
pub mod witness;

use core::sync::atomic::Ordering;

use machine::address::{PAGE_SIZE, PhysAddr};
use memory::OutOfMemory;
use memory::frame::{Block, Purpose, Zeroed};

/// Everything written before is seen by a device that sees what is written after.
pub fn fence() {
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// Whole frames of physically contiguous memory for a device.
///
/// The frames are free again when it is dropped: the driver has stopped the device before, or taken its right to reach memory.
pub struct Buffer {
    block: Block,
    bytes: usize,
}

macro_rules! access {
    ($read:ident, $write:ident, $type:ty) => {
        /// Reads a value at an aligned offset. Panics outside of the buffer.
        pub fn $read(&self, offset: usize) -> $type {
            // SAFETY: `place` has checked that the value lies in the buffer, aligned. The memory is never referenced.
            unsafe { self.place::<$type>(offset).read_volatile() }
        }

        /// Writes a value at an aligned offset. Panics outside of the buffer.
        pub fn $write(&self, offset: usize, value: $type) {
            // SAFETY: as for reading. All bit patterns are valid for whoever reads next.
            unsafe { self.place::<$type>(offset).write_volatile(value) };
        }
    };
}

impl Buffer {
    /// At least that many bytes, zeroed.
    ///
    /// # Errors
    /// When there is not so much memory in one piece.
    pub fn allocate(bytes: usize) -> Result<Self, OutOfMemory> {
        let frames = bytes.div_ceil(PAGE_SIZE).max(1).next_power_of_two();
        let block = Block::allocate(frames, Purpose::Kernel, Zeroed::Yes)?;
        #[cfg(not(target_os = "none"))]
        witness::made(block.physical(), block.bytes(), block.as_ptr());
        Ok(Self { block, bytes: frames * PAGE_SIZE })
    }

    /// Where the device finds it.
    pub fn physical(&self) -> PhysAddr {
        self.block.physical()
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn place<T>(&self, offset: usize) -> *mut T {
        let inside = offset.checked_add(size_of::<T>()).is_some_and(|end| end <= self.bytes);
        assert!(inside && offset.is_multiple_of(align_of::<T>()), "access outside of a DMA buffer");
        self.block.as_ptr().wrapping_add(offset).cast::<T>()
    }

    access!(read_u8, write_u8, u8);
    access!(read_u16, write_u16, u16);
    access!(read_u32, write_u32, u32);
    access!(read_u64, write_u64, u64);

    /// Copies out what the device left. Panics outside of the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        let mut at = offset;
        let (words, bytes) = split(offset, into.len());
        let (head, rest) = into.split_at_mut(words.start);
        let (middle, tail) = rest.split_at_mut(words.len());
        for byte in head {
            *byte = self.read_u8(at);
            at += 1;
        }
        for word in middle.chunks_exact_mut(WORD) {
            word.copy_from_slice(&self.read_u64(at).to_ne_bytes());
            at += WORD;
        }
        for byte in tail {
            *byte = self.read_u8(at);
            at += 1;
        }
        debug_assert_eq!(at, offset + bytes);
    }

    /// Copies in. Panics outside of the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) {
        let mut at = offset;
        let (words, bytes) = split(offset, from.len());
        for byte in &from[..words.start] {
            self.write_u8(at, *byte);
            at += 1;
        }
        for word in from[words.clone()].chunks_exact(WORD) {
            self.write_u64(at, word.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)));
            at += WORD;
        }
        for byte in &from[words.end..] {
            self.write_u8(at, *byte);
            at += 1;
        }
        debug_assert_eq!(at, offset + bytes);
    }
}

#[cfg(not(target_os = "none"))]
impl Drop for Buffer {
    fn drop(&mut self) {
        witness::unmade(self.block.physical(), self.block.bytes());
    }
}

const WORD: usize = size_of::<u64>();

/// Which of so many bytes from an offset on can be moved in whole aligned words.
fn split(offset: usize, bytes: usize) -> (core::ops::Range<usize>, usize) {
    let start = (offset.next_multiple_of(WORD) - offset).min(bytes);
    let end = start + (bytes - start) / WORD * WORD;
    (start..end, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_is_zeroed_aligned_and_bounded() {
        memory::initialize();
        let buffer = Buffer::allocate(5000).unwrap();
        assert_eq!((buffer.bytes(), buffer.physical().as_usize() % PAGE_SIZE), (2 * PAGE_SIZE, 0));
        assert_eq!(buffer.read_u64(8184), 0);
        buffer.write(4094, &[1, 2, 3, 4]);
        let mut copy = [0; 4];
        buffer.read(4094, &mut copy);
        assert_eq!((copy, buffer.read_u16(4096)), ([1, 2, 3, 4], 0x0403));
        let pattern: Vec<u8> = (0..100).collect();
        for offset in 0..9 {
            buffer.write(offset, &pattern);
            let mut copy = [0; 100];
            buffer.read(offset, &mut copy);
            assert_eq!((&copy[..], buffer.read_u8(offset + 99)), (&pattern[..], 99));
        }
        assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| buffer.read_u32(8190))).is_err());
    }
}
