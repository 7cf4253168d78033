//! What each CPU has at hand of each size class.
//!
//! A magazine is an array of free objects in the CPU's own memory ([`FreeList`]). Allocating takes the last, freeing puts
//! one behind it: no lock, no atomic operation, no line of another CPU, interrupts off for a few instructions. The object
//! itself is not touched. An empty magazine fetches a batch from the slabs, one at its limit gives a batch back. An object
//! may be freed on another CPU than it was allocated on.
//!
//! The way that is taken almost always touches the magazine's head and one pointer; everything else about a class is in
//! `slab`, under its lock.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::cpu::CpuId;
use machine::interrupt;

use super::class::{CLASSES, TABLE};
use super::poison;
use super::slab::{self, Chain, Refusal};
use crate::frame::per_cpu::bump;
use crate::local::local;
use crate::per_cpu::{FreeList, PerCpuError};

/// Batches that a CPU gives back between two requests to look at what the heap keeps: 128 KiB.
const DRAINS_TO_TIDY: u64 = 16;

/// By class. Before they are created nothing is at hand.
static MAGAZINES: [FreeList; CLASSES] = [const { FreeList::new() }; CLASSES];

/// Traffic between magazines and slabs, of one CPU.
pub(crate) struct CpuHeap {
    /// Batches fetched.
    refills: AtomicU64,
    /// Batches given back.
    drains: AtomicU64,
}

impl CpuHeap {
    pub(crate) const fn new() -> Self {
        Self { refills: AtomicU64::new(0), drains: AtomicU64::new(0) }
    }

    /// Batches fetched and given back.
    pub(crate) fn traffic(&self) -> (u64, u64) {
        (self.refills.load(Relaxed), self.drains.load(Relaxed))
    }
}

/// Start-up: room for the magazines of all CPUs.
pub(crate) fn initialize() -> Result<(), PerCpuError> {
    TABLE.iter().zip(&MAGAZINES).try_for_each(|(class, magazine)| magazine.create(class.magazine_limit()))
}

/// Objects in a CPU's magazine of a class.
pub(crate) fn length_on(index: usize, cpu: CpuId) -> u32 {
    MAGAZINES[index].length_on(cpu)
}

/// Allocates an object of a class.
#[inline]
pub(crate) fn allocate(index: usize, refusal: Refusal) -> Option<NonNull<u8>> {
    let at_hand = {
        let _interrupts = interrupt::disable();
        MAGAZINES[index].pop()
    };
    let object = match at_hand {
        Some(object) => object,
        None => allocate_from_slabs(index, refusal)?,
    };
    poison::check(object, &TABLE[index]);
    Some(object)
}

#[cold]
#[inline(never)]
fn allocate_from_slabs(index: usize, refusal: Refusal) -> Option<NonNull<u8>> {
    let mut fetched = slab::take(index, u32::from(TABLE[index].batch), refusal);
    let object = fetched.pop()?;
    // The thread may have moved to another CPU meanwhile; one magazine is as good as the other.
    local(|cpu| {
        bump(&cpu.heap.refills, 1);
        while let Some(object) = fetched.pop() {
            if !MAGAZINES[index].push(object) {
                // SAFETY: the object was fetched free from its slab.
                unsafe { fetched.push(object) };
                break;
            }
        }
    });
    if fetched.length > 0 {
        slab::put(index, fetched);
    }
    Some(object)
}

/// Frees an object of a class.
///
/// # Safety
/// The object was allocated from this class and is not used any more.
#[inline]
pub(crate) unsafe fn free(index: usize, object: NonNull<u8>) {
    poison::fill(object, &TABLE[index]);
    let put = {
        let _interrupts = interrupt::disable();
        MAGAZINES[index].push(object)
    };
    if !put {
        // SAFETY: the caller hands over the object.
        unsafe { free_to_full(index, object) };
    }
}

/// Frees an object while the magazine is full: together with a batch of it.
///
/// # Safety
/// As for [`free`].
#[cold]
#[inline(never)]
unsafe fn free_to_full(index: usize, object: NonNull<u8>) {
    let mut excess = Chain::EMPTY;
    // SAFETY: the caller hands over the object, which is as long as its class says: a word at least.
    unsafe { excess.push(object) };
    let drains = local(|cpu| {
        take_from_magazine(index, u32::from(TABLE[index].batch), &mut excess);
        bump(&cpu.heap.drains, 1);
        cpu.heap.drains.load(Relaxed)
    });
    slab::put(index, excess);
    if drains.is_multiple_of(DRAINS_TO_TIDY) {
        crate::reclaim::ask_to_tidy();
    }
}

/// Moves up to `count` objects from this CPU's magazine to a chain. Interrupts are off.
fn take_from_magazine(index: usize, count: u32, chain: &mut Chain) {
    for _ in 0..count {
        let Some(object) = MAGAZINES[index].pop() else { break };
        // SAFETY: objects of a magazine are free, and ours now.
        unsafe { chain.push(object) };
    }
}

/// Whether this CPU has an object of the class at hand.
#[inline(always)]
pub(crate) fn is_at_hand(index: usize) -> bool {
    let _interrupts = interrupt::disable();
    MAGAZINES[index].length() > 0
}

/// Gives everything that this CPU has at hand back to the slabs.
pub(crate) fn drain_this_cpu() {
    for index in 0..CLASSES {
        let mut chain = Chain::EMPTY;
        {
            let _interrupts = interrupt::disable();
            take_from_magazine(index, u32::MAX, &mut chain);
        }
        if chain.length > 0 {
            slab::put(index, chain);
        }
    }
}
