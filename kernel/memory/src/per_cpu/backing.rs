//! A block's memory on the bare machine: addresses from the region of areas, frames for the CPUs that exist.
//!
//! Addresses are reserved for all possible CPUs; those that do not exist have no frames and no mapping. Frames come from
//! the node that is nearest to their CPU (there is one node). Any failure undoes everything.
//!
//! A destroyed block is unmapped at once. Translations may linger, so its frames and addresses wait for the flush that
//! freed areas wait for, too.

use core::ptr::NonNull;

use machine::address::PAGE_SIZE;
use machine::cpu::MAX_CPUS;

use super::allocator::base_of;
use super::descriptor::{Descriptor, SECTION_PAGES};
use super::geometry::{BLOCK_SHIFT, MANAGEMENT_OFFSET, existing_cpus, offset_of};
use crate::OutOfMemory;
use crate::frame::number::FrameNumber;
use crate::frame::{Purpose, Urgency, Zeroed, allocate as frames};
use crate::heap::area;

/// log2 of the pages of a block.
const ORDER: u8 = (BLOCK_SHIFT - 12) as u8;

/// The pages that have memory, relative to the block's first one, and the place of each frame in the descriptor.
fn pages() -> impl Iterator<Item = (u64, usize)> {
    let chunks = existing_cpus().iter().map(|cpu| (offset_of(cpu), cpu.index() * SECTION_PAGES));
    chunks.chain([(MANAGEMENT_OFFSET, MAX_CPUS * SECTION_PAGES)]).flat_map(|(offset, place)| {
        let first = (offset / PAGE_SIZE) as u64;
        (0..SECTION_PAGES).map(move |page| (first + page as u64, place + page))
    })
}

/// Makes a block without objects, which is the caller's alone.
pub(super) fn make() -> Result<NonNull<Descriptor>, OutOfMemory> {
    let urgency = if frames::may_wait() { Urgency::Normal } else { Urgency::Atomic };
    let first = area::take_addresses(ORDER).ok_or(OutOfMemory)?;
    for (number, (page, _)) in pages().enumerate() {
        if !area::map(first + page, Purpose::PerCpu, Zeroed::Yes, urgency) {
            unmap(first, number);
            return Err(OutOfMemory);
        }
    }
    let base = core::ptr::with_exposed_provenance_mut::<u8>(area::address_of(first) as usize);
    let descriptor = base.wrapping_byte_add(MANAGEMENT_OFFSET).cast::<Descriptor>();
    // SAFETY: the management section was mapped just now; it is large enough and zeroed, which is a descriptor's first
    // state, and nobody else knows it.
    let known = unsafe { &mut *descriptor };
    known.prepare();
    for (page, place) in pages() {
        known.frames[place] = area::frame_at(first + page).map_or(0, FrameNumber::index);
    }
    NonNull::new(descriptor).ok_or(OutOfMemory)
}

/// Takes the memory of the first `count` pages away.
fn unmap(first: u64, count: usize) {
    for (page, _) in pages().take(count) {
        area::unmap(first + page, 1);
    }
    area::retire_addresses(first, ORDER);
}

/// Gives a block's memory back.
///
/// # Safety
/// Nobody uses the block's memory any more.
pub(super) unsafe fn destroy(block: NonNull<Descriptor>) {
    let base = base_of(block).as_ptr().expose_provenance() as u64;
    unmap(area::page_at(base), usize::MAX);
    area::ask_to_purge();
}
