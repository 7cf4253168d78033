//! What slots need before stacks can be in them: a page of descriptors and page tables, for 64 slots at a time.
//!
//! A chunk is *equipped* with descriptors when the first of its slots is given out; the page tables of 32 slots, one frame, are
//! made with the first of those. Both are made in process context, so a growth fault only ever writes one entry. When all slots
//! of a chunk are vacant again, some chunks are kept, of the others all this is given back ([`give_back`]): what a crowd of threads
//! needed is not kept for good.
//!
//! Who has a stack, or holds the lock of [`super::release`] and asked [`is_equipped`], may look at a descriptor as it likes.
//! All others do it by [`look`].

use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::{cpu, interrupt, mmu};
use sync::remote;

use super::super::geometry::{REGION_BASE, SLOT_BYTES, SLOTS, TABLE_BASE, TABLE_BYTES};
use super::super::vacancy::{ALL_VACANT, CHUNK_SLOTS, Chunks};
use super::descriptor::{self, Descriptor};
use crate::frame::number::FrameNumber;
use crate::frame::{Purpose, Urgency, Zeroed, allocate};
use crate::kernel_map;

/// Slots whose page tables take one frame.
const TABLE_SLOTS: u32 = 32;

/// Chunks that there can be.
const CHUNKS: u32 = SLOTS / CHUNK_SLOTS;

/// What is known of a chunk, whether it is equipped or not: in a table behind the descriptors, which grows and is never given back.
#[repr(C, align(16))]
pub(super) struct Chunk {
    /// A bit for each slot that no stack has; changed under the lock of vacant slots.
    pub(super) vacant: AtomicU64,
    /// Whether the descriptors can be looked at.
    equipped: AtomicBool,
}

const fn record_address(chunk: u32) -> u64 {
    descriptor::address(SLOTS) + chunk as u64 * size_of::<Chunk>() as u64
}

const _: () = {
    assert!(CHUNKS <= Chunks::LIMIT && SLOTS.is_multiple_of(CHUNK_SLOTS));
    assert!(descriptor::DESCRIPTORS_IN_PAGE == CHUNK_SLOTS);
    assert!(
        descriptor::address(SLOTS).is_multiple_of(4096) && record_address(CHUNKS) <= TABLE_BASE + TABLE_BYTES
    );
};

/// Chunks below this have a record.
static MADE: AtomicU32 = AtomicU32::new(0);

/// How many chunks there are: all slots that ever were given out lie in them.
pub(super) fn made() -> u32 {
    // Acquire: pairs with the Release in `make`; the records exist.
    MADE.load(Acquire)
}

/// The record of a chunk below [`made`].
pub(super) fn record(chunk: u32) -> &'static Chunk {
    debug_assert!(chunk < made());
    let pointer: *const Chunk = core::ptr::with_exposed_provenance(record_address(chunk) as usize);
    // SAFETY: the page was mapped and zeroed before the chunk's number was given out, is never unmapped, and consists of atomics.
    unsafe { &*pointer }
}

/// A frame for tables; under a lock, so without waiting.
fn frame(purpose: Purpose) -> Option<FrameNumber> {
    allocate::allocate(purpose, Zeroed::Yes, Urgency::Atomic).ok()
}

/// Maps a zeroed page for kernel data unless there is one.
fn map_data(address: u64) -> Option<()> {
    let entry = kernel_map::entry(address, &mut || frame(Purpose::PageTable))?;
    if kernel_map::frame_of(entry.load(Relaxed)).is_none() {
        kernel_map::set(entry, frame(Purpose::Kernel)?, kernel_map::DATA);
    }
    Some(())
}

/// One more chunk, with all slots vacant. Under the lock of vacant slots. `None` without memory, or when all slots are in use.
pub(super) fn make() -> Option<u32> {
    let chunk = MADE.load(Relaxed);
    if chunk == CHUNKS {
        return None;
    }
    map_data(record_address(chunk))?;
    // Release: pairs with the Acquire in `made`.
    MADE.store(chunk + 1, Release);
    record(chunk).vacant.store(ALL_VACANT, Relaxed);
    Some(chunk)
}

/// Makes what a run of slots needs that lies within one frame's page tables. Harmless when called again. Under the lock of vacant slots.
pub(super) fn equip(slot: u32) -> Option<()> {
    let chunk = record(slot / CHUNK_SLOTS);
    if !chunk.equipped.load(Relaxed) {
        map_data(descriptor::address(slot))?;
        // Release: pairs with the Acquire in `is_equipped`.
        chunk.equipped.store(true, Release);
    }
    kernel_map::entry(slot_address(slot), &mut || frame(Purpose::PageTable)).map(drop)
}

const fn slot_address(slot: u32) -> u64 {
    REGION_BASE + slot as u64 * SLOT_BYTES
}

/// Whether the slots of a chunk have descriptors.
pub(super) fn is_equipped(chunk: u32) -> bool {
    // Acquire: pairs with the Release in `equip`; the page is mapped.
    record(chunk).equipped.load(Acquire)
}

/// Looks at the descriptor of a slot below `made() * CHUNK_SLOTS` that may belong to anybody, or nobody; `None` if there is none.
pub(super) fn look<R>(slot: u32, look: impl FnOnce(&Descriptor) -> R) -> Option<R> {
    // `give_back` waits for an answer of each CPU before it takes the page away.
    let _no_answer_meanwhile = interrupt::disable();
    is_equipped(slot / CHUNK_SLOTS).then(|| look(descriptor::seen(slot)))
}

/// Chunks that are given back in a round of interrupts.
pub(super) const ROUND: usize = 16;

/// Frames of a chunk.
const FRAMES: usize = 1 + (CHUNK_SLOTS / TABLE_SLOTS) as usize;

/// Frees what chunks were equipped with. All their slots are vacant, and nobody else gives them out or equips them: the caller
/// has taken the chunks from those that are given out, and holds the lock of [`super::release`].
pub(super) fn give_back(chunks: &[u32]) {
    for &chunk in chunks {
        record(chunk).equipped.store(false, Relaxed);
    }
    // Who looks at a descriptor does so with interrupts off: after an answer each CPU finds that there is none.
    remote::call(cpu::online(), |_| (), 0);
    let mut frames = [(None, Purpose::Kernel); ROUND * FRAMES];
    for (&chunk, frames) in chunks.iter().zip(frames.chunks_exact_mut(FRAMES)) {
        let first = chunk * CHUNK_SLOTS;
        let page = kernel_map::find(descriptor::address(first)).map(kernel_map::clear);
        frames[0] = (page.and_then(kernel_map::frame_of), Purpose::Kernel);
        for (table, taken) in frames[1..].iter_mut().enumerate() {
            let address = slot_address(first + table as u32 * TABLE_SLOTS);
            *taken = (kernel_map::take_table(address), Purpose::PageTable);
        }
    }
    // Processors keep parts of the way to a page as well as its translation: those go only with all others.
    remote::flush_tlb(cpu::online(), |_| mmu::flush_all(), 0);
    for (frame, purpose) in frames {
        if let Some(frame) = frame {
            allocate::free(frame, purpose);
        }
    }
}
