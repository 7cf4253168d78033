//! What each CPU has at hand of each size class.
//!
//! A magazine is a chain of free objects. Allocating takes the first, freeing puts one in front: no lock, no atomic
//! operation, interrupts off for a few instructions. An empty magazine fetches a batch from the slabs, one that grew
//! over its limit gives a batch back. An object may be freed on another CPU than it was allocated on.
//!
//! Locking: written by the owning CPU with interrupts off ([`crate::local`]); other CPUs read the counts.

use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use super::class::{CLASSES, TABLE};
use super::poison;
use super::slab::{self, Chain, Refusal};
use crate::frame::per_cpu::bump;
use crate::local::local;

/// Batches that a CPU gives back between two requests to look at what the heap keeps: 128 KiB.
const DRAINS_TO_TIDY: u64 = 16;

/// One magazine.
struct Magazine {
    first: AtomicPtr<u8>,
    length: AtomicU32,
    /// Objects given out, modulo 2^32.
    allocated: AtomicU32,
}

impl Magazine {
    #[inline]
    fn chain(&self) -> Chain {
        Chain { first: self.first.load(Relaxed), length: self.length.load(Relaxed) }
    }

    #[inline]
    fn set_chain(&self, chain: Chain) {
        self.first.store(chain.first, Relaxed);
        // Release: pairs with the Acquire in `lengths`, for a CPU that looks at another's numbers.
        self.length.store(chain.length, Release);
    }
}

/// The magazines of one CPU.
pub(crate) struct CpuHeap {
    magazines: [Magazine; CLASSES],
    /// Batches fetched.
    refills: AtomicU64,
    /// Batches given back.
    drains: AtomicU64,
}

impl CpuHeap {
    pub(crate) const fn new() -> Self {
        Self {
            magazines: [const {
                Magazine {
                    first: AtomicPtr::new(core::ptr::null_mut()),
                    length: AtomicU32::new(0),
                    allocated: AtomicU32::new(0),
                }
            }; CLASSES],
            refills: AtomicU64::new(0),
            drains: AtomicU64::new(0),
        }
    }

    /// Objects in this CPU's magazine of a class.
    pub(crate) fn length(&self, index: usize) -> u32 {
        self.magazines[index].length.load(Acquire)
    }

    /// Batches fetched and given back.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.refills.load(Relaxed), self.drains.load(Relaxed))
    }

    /// Objects of a class that this CPU gave out, modulo 2^32.
    pub(crate) fn allocated(&self, index: usize) -> u32 {
        self.magazines[index].allocated.load(Relaxed)
    }
}

/// Allocates an object of a class.
#[inline]
pub(crate) fn allocate(index: usize, refusal: Refusal) -> Option<NonNull<u8>> {
    let object = match local(|cpu| pop(&cpu.heap, index)) {
        Some(object) => object,
        None => allocate_from_slabs(index, refusal)?,
    };
    poison::check(object, &TABLE[index]);
    Some(object)
}

#[inline]
fn pop(heap: &CpuHeap, index: usize) -> Option<NonNull<u8>> {
    let magazine = &heap.magazines[index];
    let mut chain = magazine.chain();
    let object = chain.pop()?;
    magazine.set_chain(chain);
    magazine.allocated.store(magazine.allocated.load(Relaxed).wrapping_add(1), Relaxed);
    Some(object)
}

#[cold]
#[inline(never)]
fn allocate_from_slabs(index: usize, refusal: Refusal) -> Option<NonNull<u8>> {
    let mut fetched = slab::take(index, u32::from(TABLE[index].batch), refusal);
    let object = fetched.pop()?;
    // The thread may have moved to another CPU meanwhile; one magazine is as good as the other.
    local(|cpu| {
        let magazine = &cpu.heap.magazines[index];
        let mut chain = magazine.chain();
        while let Some(object) = fetched.pop() {
            // SAFETY: the object was fetched free from its slab.
            unsafe { chain.push(object) };
        }
        magazine.set_chain(chain);
        magazine.allocated.store(magazine.allocated.load(Relaxed).wrapping_add(1), Relaxed);
        bump(&cpu.heap.refills, 1);
    });
    Some(object)
}

/// Frees an object of a class.
///
/// # Safety
/// The object was allocated from this class and is not used any more.
#[inline]
pub(crate) unsafe fn free(index: usize, object: NonNull<u8>) {
    poison::fill(object, &TABLE[index]);
    let excess = local(|cpu| {
        let magazine = &cpu.heap.magazines[index];
        let mut chain = magazine.chain();
        debug_assert_ne!(chain.first, object.as_ptr(), "heap object {object:?} is freed twice");
        let excess = if chain.length >= TABLE[index].magazine_limit() {
            bump(&cpu.heap.drains, 1);
            split(&mut chain, u32::from(TABLE[index].batch))
        } else {
            Chain::EMPTY
        };
        // SAFETY: the caller hands over the object, which is as long as its class says: a word at least.
        unsafe { chain.push(object) };
        magazine.set_chain(chain);
        excess
    });
    if excess.length > 0 {
        slab::put(index, excess);
        if local(|cpu| cpu.heap.drains.load(Relaxed)).is_multiple_of(DRAINS_TO_TIDY) {
            crate::reclaim::ask_to_tidy();
        }
    }
}

/// Takes `count` objects off a chain.
#[cold]
#[inline(never)]
fn split(chain: &mut Chain, count: u32) -> Chain {
    let mut taken = Chain::EMPTY;
    for _ in 0..count {
        let Some(object) = chain.pop() else { break };
        // SAFETY: the object came from a chain of free objects.
        unsafe { taken.push(object) };
    }
    taken
}

/// Whether this CPU has an object of the class at hand.
pub(crate) fn is_at_hand(index: usize) -> bool {
    local(|cpu| cpu.heap.length(index) > 0)
}

/// Gives everything that this CPU has at hand back to the slabs.
pub(crate) fn drain_this_cpu() {
    for index in 0..CLASSES {
        let chain = local(|cpu| {
            let magazine = &cpu.heap.magazines[index];
            let chain = magazine.chain();
            magazine.set_chain(Chain::EMPTY);
            chain
        });
        if chain.length > 0 {
            slab::put(index, chain);
        }
    }
}
