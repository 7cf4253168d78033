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

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed},
};

use super::number::FrameNumber;
use super::purpose::Purpose;

/// What is known about one frame.
#[repr(C, align(32))]
#[derive(Default)]
pub(crate) struct Metadata {
    /// Holders of the frame, and [`FOUND_BY_LOOKUP`] where it applies. Changed atomically by holders of [`super::Frame`].
    pub(crate) references: AtomicU32,
    /// [`State`], packed: kind, order and purpose in the lower half, and in the upper one who pays ([`crate::charge`]).
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

/// Of `references`: somebody may gain a reference without holding one ([`Purpose::found_by_lookup`]). In the same word as the count, so that a
/// look-up that was held up after it had found the frame gains nothing if the frame is somebody else's meanwhile, who may let go of it by a
/// plain store.
pub(crate) const FOUND_BY_LOOKUP: u32 = 1 << 31;

/// Each page-table entry takes 8 bytes, so so many references would take 8 GiB of page tables to the same frame.
pub(crate) const REFERENCES_MAX: u32 = 1 << 30;

const KIND_FREE: u32 = 1;
const KIND_CACHED: u32 = 2;
const KIND_ALLOCATED: u32 = 3;
const KIND_INSIDE: u32 = 4;

/// Orders and purposes have half a byte each.
const HALF_BYTE: u8 = 0xf;
const ORDER_SHIFT: u32 = 8;
const PURPOSE_SHIFT: u32 = 12;
const ACCOUNT_SHIFT: u32 = 16;

const _: () = assert!(Purpose::COUNT <= HALF_BYTE as usize + 1);
const _: () = assert!(super::buddy::ORDERS <= HALF_BYTE as usize + 1);

#[inline]
fn purpose_in(packed: u32) -> Purpose {
    Purpose::from_number((packed >> PURPOSE_SHIFT) as u8 & HALF_BYTE)
}

impl Metadata {
    pub(crate) fn state(&self) -> State {
        let packed = self.state.load(Relaxed);
        let order = (packed >> ORDER_SHIFT) as u8 & HALF_BYTE;
        match packed & 0xff {
            KIND_FREE => State::Free { order },
            KIND_CACHED => State::Cached,
            KIND_ALLOCATED => State::Allocated { purpose: purpose_in(packed), order },
            KIND_INSIDE => State::Inside,
            _ => State::Reserved,
        }
    }

    pub(crate) fn set_state(&self, state: State) {
        let packed = match state {
            State::Reserved => 0,
            State::Inside => KIND_INSIDE,
            State::Free { order } => KIND_FREE | u32::from(order) << ORDER_SHIFT,
            State::Cached => KIND_CACHED,
            State::Allocated { purpose, order } => {
                KIND_ALLOCATED | u32::from(order) << ORDER_SHIFT | u32::from(purpose as u8) << PURPOSE_SHIFT
            }
        };
        self.state.store(packed, Relaxed);
    }

    /// Whether the frame is the first of a free block of exactly this order.
    pub(crate) fn is_free_block(&self, order: u8) -> bool {
        self.state.load(Relaxed) == KIND_FREE | u32::from(order) << ORDER_SHIFT
    }

    /// The frame is allocated: it has one holder.
    #[inline]
    pub(crate) fn begin_references(&self, purpose: Purpose) {
        self.references.store(1 | if purpose.found_by_lookup() { FOUND_BY_LOOKUP } else { 0 }, Relaxed);
    }

    /// Counts one more holder who had no reference. False, and nothing is counted, if the frame has none or is not found by look-ups.
    pub(crate) fn gain_reference(&self) -> bool {
        let more = |word: u32| (word & FOUND_BY_LOOKUP != 0 && word != FOUND_BY_LOOKUP).then_some(word + 1);
        // Acquire: who gains a reference sees what the holders did before.
        self.references.fetch_update(Acquire, Relaxed, more).is_ok()
    }

    /// Whether it is a page of a file, or of shared memory, that has more than one holder.
    pub(crate) fn is_shared_file(&self) -> bool {
        let State::Allocated { purpose: Purpose::FileCache | Purpose::Shmem, .. } = self.state() else {
            return false;
        };
        self.references.load(Relaxed) & !FOUND_BY_LOOKUP > 1
    }

    /// The purpose of an allocated frame.
    pub(crate) fn purpose(&self) -> Purpose {
        purpose_in(self.state.load(Relaxed))
    }

    /// The number of who pays for an allocated frame; 0 for nobody.
    #[inline]
    pub(crate) fn account(&self) -> u16 {
        (self.state.load(Relaxed) >> ACCOUNT_SHIFT) as u16
    }

    /// Notes who pays. Nobody else has the frame yet.
    pub(crate) fn set_account(&self, account: u16) {
        let rest = self.state.load(Relaxed) & ((1 << ACCOUNT_SHIFT) - 1);
        self.state.store(rest | u32::from(account) << ACCOUNT_SHIFT, Relaxed);
    }
}

/// Where metadata is found: the kernel's table, or a test's.
pub(crate) trait Table {
    /// The metadata of a frame whose chunk has been brought up.
    fn at(&self, frame: FrameNumber) -> &Metadata;
}

#[cfg(test)]
mod tests {
    use super::{FOUND_BY_LOOKUP, Metadata, Purpose, Relaxed, State};

    #[test]
    fn fresh_metadata_reads_as_reserved() {
        assert_eq!(Metadata::default().state(), State::Reserved);
    }

    #[test]
    fn only_frames_that_are_found_by_look_ups_gain_references() {
        let metadata = Metadata::default();
        assert!(!metadata.gain_reference(), "nobody holds it");
        for purpose in Purpose::ALL {
            metadata.begin_references(purpose);
            assert_eq!(metadata.gain_reference(), purpose.found_by_lookup());
            let held = if purpose.found_by_lookup() { 2 | FOUND_BY_LOOKUP } else { 1 };
            assert_eq!(metadata.references.load(Relaxed), held, "{purpose:?}");
        }
        metadata.references.store(FOUND_BY_LOOKUP, Relaxed);
        assert!(!metadata.gain_reference(), "its last holder has just let go");
    }

    #[test]
    fn who_pays_is_forgotten_with_the_state() {
        let metadata = Metadata::default();
        metadata.set_state(State::Allocated { purpose: Purpose::PerCpu, order: 0 });
        metadata.set_account(u16::MAX);
        assert_eq!((metadata.account(), metadata.purpose()), (u16::MAX, Purpose::PerCpu));
        assert_eq!(metadata.state(), State::Allocated { purpose: Purpose::PerCpu, order: 0 });
        metadata.set_state(State::Cached);
        assert_eq!(metadata.account(), 0);
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
