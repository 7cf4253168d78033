//! Slabs: blocks of frames cut into objects of one size class.
//!
//! What is known of a slab lies in its first frame's metadata: `private` is the first free object (each free object's
//! first word leads to the next), `marks` the number of objects in use and of those cut so far. A new slab is not cut
//! up at once: objects that were never given out are taken from its untouched end.
//!
//! States of a slab: *partial* (on its class's list: some object is free), *full* (on no list), *empty* (partial, with
//! no object in use). A class keeps one empty slab; more go back to the frame allocator.
//!
//! Locking: a class's lock, with interrupts off, covers its list, its slabs' metadata and their free objects. Objects
//! in magazines count as in use. No frame is allocated under it.

use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use machine::address::{PhysAddr, VirtAddr};
use sync::IrqSpinLock;

use super::class::{CLASSES, Class, TABLE};
use super::poison;
use crate::frame::metadata::Metadata;
use crate::frame::number::FrameNumber;
use crate::frame::table::metadata;
use crate::frame::{Block, Purpose, Urgency, Zeroed, contents};

/// What it means if an allocation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// An error that the caller passes on.
    Error,
    /// The end of the kernel, perhaps: the language's own allocations do not say whether they may fail. Small ones
    /// therefore get at the reserve, after reclaim and the out-of-memory policy have done what they could.
    Fatal,
}

/// Objects larger than this are never taken from the reserve: what is large, its user allocates fallibly.
const RESERVED_OBJECT_MAX: u32 = 1024;

/// Empty slabs that a class keeps.
const EMPTY_MAX: u32 = 1;

/// A chain of free objects: each one's first word is the address of the next.
#[derive(Clone, Copy)]
pub(crate) struct Chain {
    pub(crate) first: *mut u8,
    pub(crate) length: u32,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self { first: core::ptr::null_mut(), length: 0 };

    /// Puts an object in front.
    ///
    /// # Safety
    /// The object is free and nobody else's, at least a word long and aligned to it.
    #[inline]
    pub(crate) unsafe fn push(&mut self, object: NonNull<u8>) {
        // SAFETY: the caller hands over the object's memory.
        unsafe { object.cast::<*mut u8>().write(self.first) };
        self.first = object.as_ptr();
        self.length += 1;
    }

    /// Takes the first object.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<NonNull<u8>> {
        let object = NonNull::new(self.first)?;
        // SAFETY: objects of a chain are free and ours, and their first word is the link that `push` wrote.
        self.first = unsafe { object.cast::<*mut u8>().read() };
        self.length -= 1;
        Some(object)
    }
}

/// What a class keeps under its lock.
struct Slabs {
    /// First frame of the first partial slab, 0 if none.
    partial: u32,
    /// All slabs.
    slabs: u32,
    /// Those with no object in use.
    empty: u32,
    /// Objects in use, those in magazines included.
    in_use: u64,
}

static SLABS: [IrqSpinLock<Slabs>; CLASSES] =
    [const { IrqSpinLock::new(Slabs { partial: 0, slabs: 0, empty: 0, in_use: 0 }) }; CLASSES];

/// The numbers of one class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassCounts {
    pub(crate) slabs: u64,
    pub(crate) in_use: u64,
}

/// The numbers of a class: slabs, and objects in use with those in magazines.
pub(crate) fn counts(index: usize) -> ClassCounts {
    let slabs = SLABS[index].lock();
    ClassCounts { slabs: u64::from(slabs.slabs), in_use: slabs.in_use }
}

/// Objects in use and cut so far, as `marks` packs them.
fn unpack(marks: u64) -> (u32, u32) {
    (marks as u32, (marks >> 32) as u32)
}

fn pack(in_use: u32, cut: u32) -> u64 {
    u64::from(in_use) | u64::from(cut) << 32
}

impl Slabs {
    fn link(&mut self, slab: FrameNumber, known: &Metadata) {
        known.previous.store(0, Relaxed);
        known.next.store(self.partial, Relaxed);
        if self.partial != 0 {
            metadata(FrameNumber::new(self.partial)).previous.store(slab.index(), Relaxed);
        }
        self.partial = slab.index();
    }

    fn unlink(&mut self, known: &Metadata) {
        let (next, previous) = (known.next.load(Relaxed), known.previous.load(Relaxed));
        if next != 0 {
            metadata(FrameNumber::new(next)).previous.store(previous, Relaxed);
        }
        if previous != 0 {
            metadata(FrameNumber::new(previous)).next.store(next, Relaxed);
        } else {
            self.partial = next;
        }
    }

    /// Takes up to `wanted` objects from the first partial slab.
    fn take_from_first(&mut self, class: &Class, wanted: u32, chain: &mut Chain) {
        let slab = FrameNumber::new(self.partial);
        let known = metadata(slab);
        let (mut in_use, mut cut) = unpack(known.marks.load(Relaxed));
        let mut free = Chain { first: free_list(known), length: u32::MAX };
        if in_use == 0 {
            self.empty -= 1;
        }
        let base = contents::pointer(slab);
        while chain.length < wanted {
            let object = match free.pop() {
                Some(object) => object,
                None if cut < u32::from(class.objects) => {
                    let fresh = base.wrapping_add(cut as usize * class.size as usize);
                    cut += 1;
                    let fresh = NonNull::new(fresh).expect("the direct map is not at 0");
                    poison::fill(fresh, class);
                    fresh
                }
                None => break,
            };
            // SAFETY: the object was free in this slab, whose lock is held; objects are 8 bytes at least and aligned.
            unsafe { chain.push(object) };
            in_use += 1;
            self.in_use += 1;
        }
        set_free_list(known, free.first);
        known.marks.store(pack(in_use, cut), Relaxed);
        if free.first.is_null() && cut == u32::from(class.objects) {
            self.unlink(known);
        }
    }

    /// Puts one object back into its slab; a slab that became empty and is one too many is returned.
    fn put(&mut self, class: &Class, object: NonNull<u8>) -> Option<FrameNumber> {
        let slab = slab_of(object, class);
        let known = metadata(slab);
        let (in_use, cut) = unpack(known.marks.load(Relaxed));
        assert!(in_use > 0, "heap object {object:?} is freed twice");
        let was_full = free_list(known).is_null() && cut == u32::from(class.objects);
        let mut free = Chain { first: free_list(known), length: 0 };
        // SAFETY: the caller hands over the object.
        unsafe { free.push(object) };
        set_free_list(known, free.first);
        known.marks.store(pack(in_use - 1, cut), Relaxed);
        self.in_use -= 1;
        if was_full {
            self.link(slab, known);
        }
        if in_use > 1 {
            return None;
        }
        if self.empty < EMPTY_MAX {
            self.empty += 1;
            return None;
        }
        self.unlink(known);
        self.slabs -= 1;
        Some(slab)
    }

    /// The first empty slab of the list, taken off it.
    fn take_empty(&mut self) -> Option<FrameNumber> {
        if self.empty == 0 {
            return None;
        }
        let mut next = self.partial;
        while next != 0 {
            let known = metadata(FrameNumber::new(next));
            if unpack(known.marks.load(Relaxed)).0 == 0 {
                self.unlink(known);
                self.slabs -= 1;
                self.empty -= 1;
                return Some(FrameNumber::new(next));
            }
            next = known.next.load(Relaxed);
        }
        None
    }
}

fn free_list(known: &Metadata) -> *mut u8 {
    core::ptr::with_exposed_provenance_mut(known.private.load(Relaxed) as usize)
}

fn set_free_list(known: &Metadata, first: *mut u8) {
    known.private.store(first.expose_provenance() as u64, Relaxed);
}

/// The slab of an object: blocks are aligned to their size.
fn slab_of(object: NonNull<u8>, class: &Class) -> FrameNumber {
    let address = VirtAddr::new(object.as_ptr().expose_provenance() as u64);
    let physical = machine::mmu::virt_to_phys(address).expect("heap objects lie in the direct map");
    let slab = FrameNumber::containing(PhysAddr::new(physical.as_u64())).expect("heap objects lie in frames");
    slab.aligned_down(class.order)
}

/// Fetches up to `wanted` objects of a class for a magazine; makes a new slab if there is none. Empty when there is no
/// memory.
pub(crate) fn take(index: usize, wanted: u32, refusal: Refusal) -> Chain {
    let class = &TABLE[index];
    let mut chain = Chain::EMPTY;
    {
        let mut slabs = SLABS[index].lock();
        while chain.length < wanted && slabs.partial != 0 {
            slabs.take_from_first(class, wanted, &mut chain);
        }
    }
    if chain.length > 0 {
        return chain;
    }
    let Some(slab) = new_slab(class, refusal) else { return chain };
    let known = metadata(slab);
    known.private.store(0, Relaxed);
    known.marks.store(pack(0, 0), Relaxed);
    let mut slabs = SLABS[index].lock();
    slabs.slabs += 1;
    slabs.empty += 1;
    slabs.link(slab, known);
    slabs.take_from_first(class, wanted, &mut chain);
    chain
}

/// The memory of a new slab.
fn new_slab(class: &Class, refusal: Refusal) -> Option<FrameNumber> {
    let urgency = if crate::frame::allocate::may_wait() { Urgency::Normal } else { Urgency::Atomic };
    let allocate = |urgency| Block::allocate_urgent(1 << class.order, Purpose::Slab, Zeroed::No, urgency);
    let mut block = allocate(urgency);
    if block.is_err() && refusal == Refusal::Fatal && class.size <= RESERVED_OBJECT_MAX {
        block = allocate(Urgency::Emergency);
    }
    block.ok().map(Block::into_first)
}

/// Puts a chain of objects back into their slabs.
pub(crate) fn put(index: usize, mut chain: Chain) {
    let class = &TABLE[index];
    let mut surplus = 0;
    {
        let mut slabs = SLABS[index].lock();
        while let Some(object) = chain.pop() {
            if let Some(slab) = slabs.put(class, object) {
                // The metadata is nobody's now; it links the surplus slabs until the lock is free.
                metadata(slab).next.store(surplus, Relaxed);
                surplus = slab.index();
            }
        }
    }
    while surplus != 0 {
        let slab = FrameNumber::new(surplus);
        surplus = metadata(slab).next.load(Relaxed);
        drop(Block::from_first(slab, class.order));
    }
}

/// Frees all empty slabs; returns how many frames that makes.
pub(crate) fn free_empty() -> usize {
    let mut frames = 0;
    for (index, class) in TABLE.iter().enumerate() {
        loop {
            let slab = SLABS[index].lock().take_empty();
            let Some(slab) = slab else { break };
            drop(Block::from_first(slab, class.order));
            frames += 1 << class.order;
        }
    }
    frames
}
