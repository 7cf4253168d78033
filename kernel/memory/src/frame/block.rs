//! Runs of frames that lie one behind the other: for slabs, devices, and whoever needs contiguous memory.

use core::sync::atomic::Ordering::Relaxed;

use machine::address::{PAGE_SIZE, PhysAddr};

use super::buddy::{MAX_ORDER, blocks_of};
use super::metadata::State;
use super::number::FrameNumber;
use super::pool;
use super::purpose::Purpose;
use super::table::metadata;
use super::watermark::Urgency;
use super::{Zeroed, allocate, contents, poison};
use crate::local::local;
use crate::{OutOfMemory, fallible};

/// A run of contiguous frames with one owner; freed when dropped.
#[derive(Debug)]
pub struct Block {
    first: FrameNumber,
    frames: u32,
    purpose: Purpose,
}

impl Block {
    /// The most frames that a block can have.
    pub const MAX_FRAMES: usize = 1 << MAX_ORDER;

    /// Allocates `frames` contiguous frames, aligned to the next power of two of their number. What rounding up would
    /// waste goes back at once.
    ///
    /// # Errors
    /// When there is no run of that length, or it is longer than [`Block::MAX_FRAMES`].
    #[track_caller]
    pub fn allocate(frames: usize, purpose: Purpose, zeroed: Zeroed) -> Result<Self, OutOfMemory> {
        Self::allocate_urgent(frames, purpose, zeroed, Urgency::Normal)
    }

    /// Like [`Block::allocate`], with the given urgency.
    ///
    /// # Errors
    /// As for [`Block::allocate`].
    #[track_caller]
    pub fn allocate_urgent(
        frames: usize,
        purpose: Purpose,
        zeroed: Zeroed,
        urgency: Urgency,
    ) -> Result<Self, OutOfMemory> {
        fallible::fail_point()?;
        if frames == 0 || frames > Self::MAX_FRAMES {
            return Err(OutOfMemory);
        }
        let order = frames.next_power_of_two().ilog2() as u8;
        let first = allocate::with_reclaim(urgency, |urgency| take(order, frames as u32, urgency))?;
        metadata(first).set_state(State::Allocated { purpose, order });
        metadata(first).references.store(1, Relaxed);
        local(|cpu| cpu.frames.count(purpose, frames as i64));
        let block = Self { first, frames: frames as u32, purpose };
        for frame in block.numbers() {
            match zeroed {
                Zeroed::Yes => contents::zero(frame),
                Zeroed::No => poison::check(frame),
            }
        }
        Ok(block)
    }

    #[cfg(test)]
    pub(crate) const fn first(&self) -> FrameNumber {
        self.first
    }

    /// Turns a block of a power of two of frames into its first frame's number; [`Block::from_first`] turns it back.
    pub(crate) fn into_first(self) -> FrameNumber {
        let block = core::mem::ManuallyDrop::new(self);
        debug_assert!(block.frames.is_power_of_two());
        block.first
    }

    /// Takes back a block of 2^`order` frames.
    pub(crate) fn from_first(first: FrameNumber, order: u8) -> Self {
        block_of_frames(first, 1 << order)
    }

    /// Gives the block away as a pointer to its bytes; [`block_of_frames`] takes it back.
    #[cfg(target_os = "none")]
    pub(crate) fn into_pointer(self) -> core::ptr::NonNull<u8> {
        let pointer = core::mem::ManuallyDrop::new(self).as_ptr();
        core::ptr::NonNull::new(pointer).expect("the direct map is not at 0")
    }

    /// The physical address of the first byte.
    pub fn physical(&self) -> PhysAddr {
        self.first.physical()
    }

    /// Where the bytes are.
    pub fn as_ptr(&self) -> *mut u8 {
        contents::pointer(self.first)
    }

    /// The length.
    pub const fn bytes(&self) -> usize {
        self.frames as usize * PAGE_SIZE
    }

    /// Copies bytes out of the block.
    ///
    /// # Panics
    /// When they reach beyond the block.
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        contents::read(self.first, self.bytes(), offset, into);
    }

    /// Copies bytes into the block.
    ///
    /// # Panics
    /// When they reach beyond the block.
    pub fn write(&mut self, offset: usize, from: &[u8]) {
        contents::write(self.first, self.bytes(), offset, from);
    }

    /// Fills the block with zeros.
    pub fn zero(&self) {
        self.numbers().for_each(contents::zero);
    }

    /// What a holder left of the pattern of an earlier owner must not be taken for a frame that was written after it was freed.
    pub(super) fn mark_freed(&self) {
        self.numbers().for_each(|frame| poison::fill(frame, self.purpose));
    }

    /// Its frames.
    fn numbers(&self) -> impl Iterator<Item = FrameNumber> + use<> {
        let first = self.first;
        (0..self.frames).map(move |index| first.add(index))
    }
}

/// The block of `frames` frames that was given away as a pointer or a number.
pub(crate) fn block_of_frames(first: FrameNumber, frames: u32) -> Block {
    let order = frames.next_power_of_two().ilog2() as u8;
    let State::Allocated { purpose, order: known } = metadata(first).state() else {
        panic!("{first:?} is no block: {:?}", metadata(first).state());
    };
    assert_eq!(known, order, "the block of {first:?} has another size");
    Block { first, frames, purpose }
}

/// Takes a block of the pool and gives back what exceeds `frames`.
fn take(order: u8, frames: u32, urgency: Urgency) -> Option<FrameNumber> {
    let mut pool = pool::lock();
    let first = pool.take(order, urgency)?;
    let excess = (1 << order) - frames;
    if excess > 0 {
        pool.give_range(first.add(frames), excess);
    }
    Some(first)
}

impl Drop for Block {
    fn drop(&mut self) {
        let known = metadata(self.first);
        assert!(matches!(known.state(), State::Allocated { .. }), "{self:?} is freed twice");
        known.references.store(0, Relaxed);
        self.mark_freed();
        {
            let mut pool = pool::lock();
            for (block, order) in blocks_of(self.first, self.frames) {
                pool.give(block, order);
            }
        }
        local(|cpu| cpu.frames.count(self.purpose, -i64::from(self.frames)));
    }
}
