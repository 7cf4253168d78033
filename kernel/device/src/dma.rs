//! Memory that a device reaches: owned by the driver, never moved, read and written with volatile accesses.
//!
//! The device may change it at any moment. So no reference to it is ever made: what is read is a copy, and is to be checked as anything that comes
//! from outside. x86's caches are coherent with devices; what is left to do is to keep the compiler and the processor from reordering
//! ([`fence`]).

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

    /// Copies out, byte by byte as the device left them. Panics outside of the buffer.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        for (index, byte) in into.iter_mut().enumerate() {
            *byte = self.read_u8(offset + index);
        }
    }

    /// Copies in. Panics outside of the buffer.
    pub fn write(&self, offset: usize, from: &[u8]) {
        for (index, byte) in from.iter().enumerate() {
            self.write_u8(offset + index, *byte);
        }
    }
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
        assert!(std::panic::catch_unwind(core::panic::AssertUnwindSafe(|| buffer.read_u32(8190))).is_err());
    }
}
