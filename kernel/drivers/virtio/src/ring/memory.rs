//! What rings lie in.

use device::dma::Buffer;
use machine::address::PhysAddr;

/// Memory that the driver and the device share. Accesses are aligned, inside, and happen exactly as often as they are written.
pub trait RingMemory: Send + Sync {
    /// Reads 16 bits.
    fn read_u16(&self, offset: usize) -> u16;
    /// Reads 32 bits.
    fn read_u32(&self, offset: usize) -> u32;
    /// Writes 16 bits.
    fn write_u16(&self, offset: usize, value: u16);
    /// Writes 32 bits.
    fn write_u32(&self, offset: usize, value: u32);
    /// Writes 64 bits.
    fn write_u64(&self, offset: usize, value: u64);
    /// Where the device finds it.
    fn address(&self) -> PhysAddr;
}

impl RingMemory for Buffer {
    fn read_u16(&self, offset: usize) -> u16 {
        Self::read_u16(self, offset)
    }

    fn read_u32(&self, offset: usize) -> u32 {
        Self::read_u32(self, offset)
    }

    fn write_u16(&self, offset: usize, value: u16) {
        Self::write_u16(self, offset, value);
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

/// A piece of a buffer: a run of memory that the device reads or writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Where it starts.
    pub address: PhysAddr,
    /// How long it is.
    pub bytes: u32,
    /// The device writes it; else it reads it. Pieces that it reads come first.
    pub written: bool,
}

impl Piece {
    /// A piece that the device reads.
    pub const fn read(address: PhysAddr, bytes: u32) -> Self {
        Self { address, bytes, written: false }
    }

    /// A piece that the device writes.
    pub const fn written(address: PhysAddr, bytes: u32) -> Self {
        Self { address, bytes, written: true }
    }
}

/// Tables of descriptors, one for each slot, so that a buffer of many pieces takes one descriptor of the ring.
pub struct Area<M> {
    /// Where they are.
    pub memory: M,
    /// Descriptors of each.
    pub entries: usize,
}

/// Bytes of a descriptor, in both layouts.
pub(super) const DESCRIPTOR_BYTES: usize = 16;
/// The next descriptor goes on with the buffer.
pub(super) const NEXT: u16 = 1;
/// The device writes the piece.
pub(super) const WRITE: u16 = 2;
/// The piece is a table of descriptors.
pub(super) const INDIRECT: u16 = 4;

impl<M: RingMemory> Area<M> {
    /// Where the table of a slot starts in the memory.
    pub(super) fn offset(&self, slot: u16) -> usize {
        usize::from(slot) * self.entries * DESCRIPTOR_BYTES
    }

    /// Where the device finds the table of a slot.
    pub(super) fn table(&self, slot: u16) -> u64 {
        self.memory.address().as_u64() + self.offset(slot) as u64
    }
}

/// Whether the device, who has been told of entries up to `old` and now up to `new`, wants to hear of it, being interested in the one after
/// `event`.
pub(super) const fn passes(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
