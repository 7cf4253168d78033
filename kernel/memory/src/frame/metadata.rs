//! What the kernel knows about each frame: 32 bytes.
//!
//! States of a frame, and who may write its metadata in each:
//!
//! - *Reserved* (all zero): not managed (kernel image, firmware, metadata itself), or the inside of a block that has
//!   never been split.
//! - *Inside*: not the first frame of its free block, but has been.
//! - *Free*: the first frame of a free block of the buddy allocator; `next`/`previous` link the free list. Written
//!   under the pool's lock.
//! - *Cached*: on a CPU's list or in its pool of zeroed frames. Written by that CPU with interrupts off.
//! - *Allocated*: has `references` holders (a block: one). `next`, `previous`, `private` and `marks` belong to the
//!   holder: slabs keep their free list there, the page cache its tags.
//!
//! A chunk's metadata is zero when it is brought up, so bringing up a chunk of free memory writes one frame's
//! metadata only. Frame number 0 is never managed and serves as the end of lists.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::number::FrameNumber;
use super::purpose::Purpose;

/// What is known about one frame.
#[repr(C, align(32))]
#[derive(Default)]
pub(crate) struct Metadata {
    /// Holders of the frame. Changed atomically by holders of [`super::Frame`].
    pub(crate) references: AtomicU32,
    /// [`State`], packed.
    state: AtomicU32,
    /// The next frame of the list that the frame is on.
    pub(crate) next: AtomicU32,
    /// The previous frame of the list that the frame is on.
    pub(crate) previous: AtomicU32,
    /// For the holder.
    pub(crate) private: AtomicU64,
    /// For the holder.
    pub(crate) marks: AtomicU64,
}

const _: () = assert!(size_of::<Metadata>() == 32, "metadata is mapped in fixed portions a section");

/// See the theory of this file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Reserved,
    Inside,
    Free { order: u8 },
    Cached,
    Allocated { purpose: Purpose, order: u8 },
}

const KIND_FREE: u32 = 1;
const KIND_CACHED: u32 = 2;
const KIND_ALLOCATED: u32 = 3;
const KIND_INSIDE: u32 = 4;

impl Metadata {
    pub(crate) fn state(&self) -> State {
        let packed = self.state.load(Relaxed);
        let order = (packed >> 8) as u8;
        match packed & 0xff {
            KIND_FREE => State::Free { order },
            KIND_CACHED => State::Cached,
            KIND_ALLOCATED => State::Allocated { purpose: Purpose::from_number((packed >> 16) as u8), order },
            KIND_INSIDE => State::Inside,
            _ => State::Reserved,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        let packed = match state {
            State::Reserved => 0,
            State::Inside => KIND_INSIDE,
            State::Free { order } => KIND_FREE | u32::from(order) << 8,
            State::Cached => KIND_CACHED,
            State::Allocated { purpose, order } => {
                KIND_ALLOCATED | u32::from(order) << 8 | u32::from(purpose as u8) << 16
            }
        };
        self.state.store(packed, Relaxed);
    }

    /// Whether the frame is the first of a free block of exactly this order.
    pub(crate) fn is_free_block(&self, order: u8) -> bool {
        self.state.load(Relaxed) == KIND_FREE | u32::from(order) << 8
    }

    /// The purpose of an allocated frame.
    pub(crate) fn purpose(&self) -> Purpose {
        Purpose::from_number((self.state.load(Relaxed) >> 16) as u8)
    }
}

/// Where metadata is found: the kernel's table, or a test's.
pub(crate) trait Table {
    /// The metadata of a frame whose chunk has been brought up.
    fn at(&self, frame: FrameNumber) -> &Metadata;
}

#[cfg(test)]
mod tests {
    use super::{Metadata, Purpose, State};

    #[test]
    fn fresh_metadata_reads_as_reserved() {
        assert_eq!(Metadata::default().state(), State::Reserved);
    }

    #[test]
    fn states_survive_packing() {
        let metadata = Metadata::default();
        let mut states = vec![State::Reserved, State::Inside, State::Cached];
        for order in 0..=10 {
            states.push(State::Free { order });
            states.extend(Purpose::ALL.map(|purpose| State::Allocated { purpose, order }));
        }
        for state in states {
            metadata.set_state(state);
            assert_eq!(metadata.state(), state);
            assert_eq!(metadata.is_free_block(3), state == State::Free { order: 3 });
        }
    }
}
