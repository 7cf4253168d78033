//! Frame numbers: physical addresses in units of 4 KiB.

use machine::address::{PAGE_SHIFT, PhysAddr};

use super::buddy::MAX_ORDER;

/// Frames in a chunk, the unit in which memory is brought up: a block of the highest order.
pub(crate) const CHUNK_FRAMES: u32 = 1 << MAX_ORDER;

/// Chunks in a section of 128 MiB.
pub(crate) const SECTION_CHUNKS: u32 = 32;

/// Physical memory beyond this many sections (1 TiB) is ignored: the table of sections is static.
pub(crate) const MAX_SECTIONS: u32 = 8192;

/// The number of a frame that can exist is below this.
pub(crate) const MAX_FRAMES: u32 = MAX_SECTIONS * SECTION_CHUNKS * CHUNK_FRAMES;

/// The number of a frame of physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FrameNumber(u32);

impl FrameNumber {
    pub(crate) const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The frame that contains an address; `None` beyond what the kernel manages.
    pub(crate) fn containing(address: PhysAddr) -> Option<Self> {
        let number = address.as_u64() >> PAGE_SHIFT;
        (number < u64::from(MAX_FRAMES)).then_some(Self(number as u32))
    }

    /// The frame at an address that was an allocated frame's: known to be managed.
    #[inline(always)]
    pub(crate) fn of_allocated(address: PhysAddr) -> Self {
        let number = address.as_u64() >> PAGE_SHIFT;
        debug_assert!((1..u64::from(MAX_FRAMES)).contains(&number), "the address was a frame's");
        Self(number as u32)
    }

    #[inline(always)]
    pub(crate) const fn index(self) -> u32 {
        self.0
    }

    pub(crate) fn physical(self) -> PhysAddr {
        PhysAddr::new(u64::from(self.0) << PAGE_SHIFT)
    }

    pub(crate) const fn add(self, frames: u32) -> Self {
        Self(self.0 + frames)
    }

    pub(crate) const fn is_aligned(self, order: u8) -> bool {
        self.0 & ((1 << order) - 1) == 0
    }

    pub(crate) const fn aligned_down(self, order: u8) -> Self {
        Self(self.0 & !((1 << order) - 1))
    }

    /// The other half of the block of the next order.
    pub(crate) const fn buddy(self, order: u8) -> Self {
        Self(self.0 ^ (1 << order))
    }

    /// The chunk that the frame lies in.
    pub(crate) const fn chunk(self) -> u32 {
        self.0 / CHUNK_FRAMES
    }
}

impl From<u32> for FrameNumber {
    fn from(number: u32) -> Self {
        Self(number)
    }
}

impl From<FrameNumber> for u32 {
    fn from(frame: FrameNumber) -> Self {
        frame.0
    }
}
