//! Counted handles of single frames.

use core::mem::ManuallyDrop;
use core::num::NonZeroU32;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::{PAGE_SIZE, PhysAddr, UserAddr};
use machine::fault::Fault;
use machine::user_memory;
use sync::rcu::Deferred;

use super::metadata::{FOUND_BY_LOOKUP, REFERENCES_MAX, State};
use super::number::FrameNumber;
use super::purpose::Purpose;
use super::table::{self, metadata};
use super::watermark::Urgency;
use super::{Zeroed, allocate, contents};
use crate::OutOfMemory;

/// A counted handle of one 4 KiB frame: a clone is one more reference, the last one to go frees the frame.
///
/// Its bytes may be mapped into programs and change at any time; they are copied in and out, never borrowed. Four
/// bytes, and so is an `Option` of it.
#[derive(PartialEq, Eq)]
pub struct Frame(NonZeroU32);

impl Frame {
    /// Allocates a frame; reclaims memory if there is none and the caller may wait.
    ///
    /// # Errors
    /// When there is no memory even so.
    #[inline]
    #[track_caller]
    pub fn allocate(purpose: Purpose, zeroed: Zeroed) -> Result<Self, OutOfMemory> {
        Self::allocate_urgent(purpose, zeroed, Urgency::Normal)
    }

    /// Allocates a frame without waiting, from the reserve if need be: for interrupt handlers and under spin locks.
    ///
    /// # Errors
    /// When half of the reserve is used up.
    #[inline]
    #[track_caller]
    pub fn allocate_atomic(purpose: Purpose, zeroed: Zeroed) -> Result<Self, OutOfMemory> {
        Self::allocate_urgent(purpose, zeroed, Urgency::Atomic)
    }

    /// Allocates a frame with the given urgency.
    ///
    /// # Errors
    /// When free memory is below what the urgency may use.
    #[inline]
    #[track_caller]
    pub fn allocate_urgent(purpose: Purpose, zeroed: Zeroed, urgency: Urgency) -> Result<Self, OutOfMemory> {
        allocate::allocate(purpose, zeroed, urgency).map(Self::of_allocated)
    }

    fn of_allocated(frame: FrameNumber) -> Self {
        Self(NonZeroU32::new(frame.index()).expect("frame 0 is not managed"))
    }

    pub(crate) const fn number(&self) -> FrameNumber {
        FrameNumber::new(self.0.get())
    }

    /// The physical address of the frame's first byte.
    #[inline]
    pub fn physical(&self) -> PhysAddr {
        self.number().physical()
    }

    /// How many handles (page-table entries that hold one included) there are. True only while nobody else can clone
    /// or drop one.
    #[inline]
    pub fn references(&self) -> u32 {
        // Acquire: who sees 1 sees what former holders wrote.
        metadata(self.number()).references.load(Acquire) & !FOUND_BY_LOOKUP
    }

    /// What the frame is used for.
    pub fn purpose(&self) -> Purpose {
        metadata(self.number()).purpose()
    }

    /// The number of who pays for it; 0 for nobody.
    #[inline]
    pub(crate) fn account(&self) -> u16 {
        metadata(self.number()).account()
    }

    /// Changes what the frame, for which nobody pays, is counted as. The caller is the only one that does so at this time.
    pub fn set_purpose(&self, purpose: Purpose) {
        let known = metadata(self.number());
        let former = known.purpose();
        known.set_state(State::Allocated { purpose, order: 0 });
        match purpose.found_by_lookup() {
            true => known.references.fetch_or(FOUND_BY_LOOKUP, Relaxed),
            false => known.references.fetch_and(!FOUND_BY_LOOKUP, Relaxed),
        };
        crate::local::local(|cpu| {
            cpu.frames.count(former, -1);
            cpu.frames.count(purpose, 1);
        });
    }

    /// A word for the frame's owner (the page cache keeps its tags there). Undefined after allocation.
    #[inline]
    pub fn private(&self) -> &AtomicU64 {
        &metadata(self.number()).private
    }

    /// Another word for the frame's owner. Undefined after allocation.
    #[inline]
    pub fn marks(&self) -> &AtomicU64 {
        &metadata(self.number()).marks
    }

    /// Copies bytes out of the frame.
    ///
    /// # Panics
    /// When they reach beyond the frame.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        contents::read(self.number(), PAGE_SIZE, offset, into);
    }

    /// Copies bytes into the frame.
    ///
    /// # Panics
    /// When they reach beyond the frame.
    #[inline]
    pub fn write(&self, offset: usize, from: &[u8]) {
        contents::write(self.number(), PAGE_SIZE, offset, from);
    }

    /// An aligned word of the frame that a program to which it is mapped may read and write at any time.
    ///
    /// # Panics
    /// When it is not aligned, or reaches beyond the frame.
    #[inline]
    pub fn word(&self, offset: usize) -> &AtomicU32 {
        assert!(offset.is_multiple_of(size_of::<u32>()), "words are aligned");
        let word = contents::range(self.number(), PAGE_SIZE, offset, size_of::<u32>());
        // SAFETY: the word was checked to lie within the frame, which lives as long as the handle that is borrowed, and frames are
        // aligned; a program's accesses are those of another thread, and an atomic word may change under everybody's hands.
        unsafe { AtomicU32::from_ptr(word.cast()) }
    }

    /// Fills the frame with zeros.
    pub fn zero(&self) {
        contents::zero(self.number());
    }

    /// Fills a part of the frame with zeros.
    ///
    /// # Panics
    /// When it reaches beyond the frame.
    pub fn zero_range(&self, offset: usize, bytes: usize) {
        let start = contents::range(self.number(), PAGE_SIZE, offset, bytes);
        // SAFETY: the range was checked to lie within the frame, whose bytes nobody borrows.
        unsafe { start.write_bytes(0, bytes) };
    }

    /// Copies another frame's bytes into this one.
    pub fn copy_from(&self, other: &Self) {
        if self != other {
            contents::copy(self.number(), other.number());
        }
    }

    /// Copies bytes of the frame to the running program, without a buffer between.
    ///
    /// # Errors
    /// When a byte of the program's range cannot be written.
    ///
    /// # Panics
    /// When the range reaches beyond the frame.
    pub fn to_user(&self, offset: usize, to: UserAddr, bytes: usize) -> Result<(), Fault> {
        let from = contents::range(self.number(), PAGE_SIZE, offset, bytes);
        // SAFETY: the range lies within the frame, which lives as long as the handle. The bytes may change meanwhile
        // (another mapping); the slice goes straight into the assembly of the copy, which takes them as they come.
        user_memory::write(to, unsafe { core::slice::from_raw_parts(from, bytes) })
    }

    /// Copies bytes of the running program into the frame, without a buffer between.
    ///
    /// # Errors
    /// When a byte of the program's range cannot be read; the part of the frame then holds a mixture.
    ///
    /// # Panics
    /// When the range reaches beyond the frame.
    pub fn from_user(&self, offset: usize, from: UserAddr, bytes: usize) -> Result<(), Fault> {
        let to = contents::range(self.number(), PAGE_SIZE, offset, bytes);
        // SAFETY: as in `to_user`; the copy writes through the slice's pointer only.
        user_memory::read(unsafe { core::slice::from_raw_parts_mut(to, bytes) }, from)
    }

    /// As [`Frame::to_user`], as far as it goes.
    ///
    /// # Errors
    /// The number of bytes that could be copied.
    ///
    /// # Panics
    /// When the range reaches beyond the frame.
    pub fn to_user_partial(
        &self,
        offset: usize,
        to: UserAddr,
        bytes: usize,
    ) -> Result<(), user_memory::Partial> {
        let from = contents::range(self.number(), PAGE_SIZE, offset, bytes);
        // SAFETY: as in `to_user`.
        user_memory::write_partial(to, unsafe { core::slice::from_raw_parts(from, bytes) })
    }

    /// As [`Frame::from_user`], as far as it goes.
    ///
    /// # Errors
    /// The number of bytes that could be copied.
    ///
    /// # Panics
    /// When the range reaches beyond the frame.
    pub fn from_user_partial(
        &self,
        offset: usize,
        from: UserAddr,
        bytes: usize,
    ) -> Result<(), user_memory::Partial> {
        let to = contents::range(self.number(), PAGE_SIZE, offset, bytes);
        // SAFETY: as in `from_user`.
        user_memory::read_partial(unsafe { core::slice::from_raw_parts_mut(to, bytes) }, from)
    }

    /// Turns the handle into an address, for a page-table entry; [`Frame::from_physical`] turns it back.
    #[inline]
    pub fn into_physical(self) -> PhysAddr {
        ManuallyDrop::new(self).physical()
    }

    /// Gives the handle up; returns it if it was the last one. For frames that no lookup finds.
    pub fn give_up(self) -> Option<Self> {
        debug_assert!(!self.purpose().found_by_lookup(), "another handle may appear at any time");
        if self.references() == 1 {
            return Some(self);
        }
        let this = ManuallyDrop::new(self);
        let references = &metadata(this.number()).references;
        if references.fetch_sub(1, Release) != 1 {
            return None;
        }
        // Acquire: pairs with the Release of the other holders, who have gone meanwhile.
        references.load(Acquire);
        references.store(1, Relaxed);
        Some(Self(this.0))
    }

    /// Takes back what [`Frame::into_physical`] gave away.
    ///
    /// # Safety
    /// The address came from `into_physical` (or a clone's), and is turned back only once.
    #[inline]
    pub unsafe fn from_physical(address: PhysAddr) -> Self {
        // SAFETY: the address came from a frame, and frame 0 is not managed.
        Self(unsafe { NonZeroU32::new_unchecked(FrameNumber::of_allocated(address).index()) })
    }

    /// One more reference to the frame at this address, which [`Frame::from_physical`] turns into a handle later: for entries that
    /// are copied by the thousand. One atomic operation.
    ///
    /// # Safety
    /// The address came from `into_physical` (or a clone's), and that reference stays meanwhile.
    #[inline(always)]
    pub unsafe fn share_physical(address: PhysAddr) {
        count_reference(FrameNumber::of_allocated(address));
    }

    /// One more handle of the frame at this address, if it is allocated and has holders: for lookups that hold no
    /// reference themselves (page cache under RCU). The caller checks afterwards that it is the frame it wanted.
    pub fn try_from_physical(address: PhysAddr) -> Option<Self> {
        let frame =
            FrameNumber::containing(address).filter(|frame| table::chunk_is_present(frame.chunk()))?;
        let known = metadata(frame);
        if !matches!(known.state(), State::Allocated { purpose, order: 0 } if purpose.found_by_lookup()) {
            return None;
        }
        // The frame may have been freed since, and allocated for something that no look-up finds.
        known.gain_reference().then(|| Self::of_allocated(frame))
    }
}

/// Counts one more reference to a frame of which the caller has one.
#[inline(always)]
fn count_reference(frame: FrameNumber) {
    let former = metadata(frame).references.fetch_add(1, Relaxed) & !FOUND_BY_LOOKUP;
    debug_assert!(former > 0, "a reference keeps its frame alive");
    assert!(former < REFERENCES_MAX, "too many references to one frame");
}

impl Clone for Frame {
    #[inline]
    fn clone(&self) -> Self {
        count_reference(self.number());
        Self(self.0)
    }
}

impl Drop for Frame {
    #[inline]
    fn drop(&mut self) {
        allocate::release(self.number());
    }
}

/// A handle that readers under RCU may have seen where it was.
impl Deferred for Frame {
    const WEIGHT: usize = PAGE_SIZE;

    #[inline]
    fn into_raw(self) -> *mut () {
        core::ptr::without_provenance_mut(self.into_physical().as_u64() as usize)
    }

    // SAFETY: what the trait demands is handed on to the block below.
    unsafe fn drop_raw(raw: *mut ()) -> usize {
        // SAFETY: the caller's promise: the address is that of a handle that was given up, and is turned back once.
        drop(unsafe { Self::from_physical(PhysAddr::new(raw.addr() as u64)) });
        PAGE_SIZE
    }
}

impl core::fmt::Debug for Frame {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "Frame({:?})", self.physical())
    }
}

/// Adopts a frame that the boot loader filled (the initramfs): it becomes an ordinary frame, freed when dropped.
/// `None` when the address is not that of memory outside the pool, as on the second call for it.
pub fn from_boot(address: PhysAddr, purpose: Purpose) -> Option<Frame> {
    let frame = FrameNumber::containing(address).filter(|frame| frame.index() != 0)?;
    {
        let mut pool = super::pool::lock();
        // A frame that was adopted never reads as reserved again, whatever becomes of it.
        if !is_boot_memory(address)
            || !pool.ensure_metadata(frame)
            || metadata(frame).state() != State::Reserved
        {
            return None;
        }
        pool.adopt();
        metadata(frame).set_state(State::Allocated { purpose, order: 0 });
    }
    metadata(frame).begin_references(purpose);
    crate::local::local(|cpu| cpu.frames.count(purpose, 1));
    Some(Frame::of_allocated(frame))
}

/// Whether the address lies in whole pages of the initramfs. Its last page may be shared with something else only if
/// the boot loader put that there, so a partial page at either end stays where it is.
fn is_boot_memory(address: PhysAddr) -> bool {
    machine::boot::info().initramfs.is_some_and(|range| {
        let page = address.page_floor().as_u64();
        page >= range.start.as_u64() && page + PAGE_SIZE as u64 <= range.end.as_u64()
    })
}
