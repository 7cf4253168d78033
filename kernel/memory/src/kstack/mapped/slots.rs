//! Which slots are free, and mapping pages into them.
//!
//! Slots are given out in ascending order; freed ones, sorted by size, first. Page tables and table pages of the
//! descriptors are made when a slot is given out for the first time, in process context, and stay: a growth fault
//! only ever writes one entry. The page tables of 32 slots take one frame.
//!
//! Two kinds of free stacks: *bare* ones, without pages, and *retired* ones that still have theirs and are reused as
//! they are; [`super::release`] makes bare ones of them, many at a time, because that takes a flush on all CPUs.
//!
//! Locking: one lock for the lists; a leaf but for the pool's lock.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use sync::IrqSpinLock;

use super::super::geometry::{MAX_SLOT_ORDER, PAGE_BYTES, REGION_BASE, SLOT_BYTES, SLOTS};
use super::super::per_cpu::NO_SLOT;
use super::descriptor;
use crate::frame::number::FrameNumber;
use crate::frame::{Frame, Purpose, Urgency, Zeroed, allocate};
use crate::kernel_map;

const ORDERS: usize = MAX_SLOT_ORDER as usize + 1;

/// Slots below this have been given out at some time; only then do their descriptors exist.
static SLOTS_MADE: AtomicU32 = AtomicU32::new(0);

/// See [`SLOTS_MADE`].
pub(crate) fn slots_made() -> u32 {
    // Acquire: pairs with the Release in `make`; the descriptors exist.
    SLOTS_MADE.load(Acquire)
}

struct Lists {
    /// First bare stack of each order.
    bare: [u32; ORDERS],
    /// First retired stack.
    retired: u32,
    /// Pages of all retired stacks.
    retired_pages: u32,
}

static LISTS: IrqSpinLock<Lists> =
    IrqSpinLock::new(Lists { bare: [NO_SLOT; ORDERS], retired: NO_SLOT, retired_pages: 0 });

/// Pages of stacks that wait to be unmapped.
static RETIRED_PAGES: AtomicU32 = AtomicU32::new(0);

/// Pages of retired stacks.
pub(crate) fn retired_pages() -> u32 {
    RETIRED_PAGES.load(Relaxed)
}

/// A frame for page tables of kernel stacks; under a lock, so without waiting.
fn table_frame() -> Option<FrameNumber> {
    allocate::allocate(Purpose::PageTable, Zeroed::Yes, Urgency::Atomic).ok()
}

/// A slot without pages whose page tables and descriptor exist; its run has 2^`order` slots.
pub(crate) fn take_bare(order: u8) -> Option<u32> {
    let mut lists = LISTS.lock();
    let head = lists.bare[usize::from(order)];
    if head != NO_SLOT {
        lists.bare[usize::from(order)] = descriptor::at(head).next.load(Relaxed);
        return Some(head);
    }
    make(&mut lists, order)
}

/// Gives a run of slots out for the first time. Slots skipped for the alignment go to the list of single ones.
fn make(lists: &mut Lists, order: u8) -> Option<u32> {
    let next = SLOTS_MADE.load(Relaxed);
    let first = next.next_multiple_of(1 << order);
    let end = first.checked_add(1 << order).filter(|&end| end <= SLOTS)?;
    for slot in next..end {
        make_tables(slot)?;
    }
    // Release: pairs with the Acquire in `slots_made`.
    SLOTS_MADE.store(end, Release);
    for slot in next..first {
        put_bare_locked(lists, slot, 0);
    }
    Some(first)
}

/// Makes the page tables and the descriptor of one slot. Harmless when called again.
fn make_tables(slot: u32) -> Option<()> {
    let base = REGION_BASE + u64::from(slot) * SLOT_BYTES;
    kernel_map::entry(base, &mut table_frame)?;
    if slot.is_multiple_of(descriptor::DESCRIPTORS_IN_PAGE) {
        let entry = kernel_map::entry(descriptor::address(slot), &mut table_frame)?;
        if kernel_map::frame_of(entry.load(Relaxed)).is_none() {
            let page = allocate::allocate(Purpose::Kernel, Zeroed::Yes, Urgency::Atomic).ok()?;
            kernel_map::set(entry, page, kernel_map::DATA);
        }
    }
    Some(())
}

fn put_bare_locked(lists: &mut Lists, slot: u32, order: u8) {
    let head = &mut lists.bare[usize::from(order)];
    descriptor::at(slot).next.store(*head, Relaxed);
    *head = slot;
}

/// Gives back a run of slots that has no pages any more.
pub(crate) fn put_bare(slot: u32, order: u8) {
    put_bare_locked(&mut LISTS.lock(), slot, order);
}

/// Puts a free stack with its pages aside.
pub(crate) fn retire(slot: u32) {
    let known = descriptor::at(slot);
    let mut lists = LISTS.lock();
    known.next.store(lists.retired, Relaxed);
    lists.retired = slot;
    lists.retired_pages += known.mapped.load(Relaxed);
    RETIRED_PAGES.store(lists.retired_pages, Relaxed);
}

/// The stack retired last, if it has the wanted form.
pub(crate) fn take_retired(pages: u32) -> Option<u32> {
    let mut lists = LISTS.lock();
    let slot = lists.retired;
    if slot == NO_SLOT {
        return None;
    }
    let known = descriptor::at(slot);
    if known.window(slot).pages != pages {
        return None;
    }
    lists.retired = known.next.load(Relaxed);
    lists.retired_pages -= known.mapped.load(Relaxed);
    RETIRED_PAGES.store(lists.retired_pages, Relaxed);
    Some(slot)
}

/// Takes all retired stacks: the first of the list.
pub(crate) fn take_all_retired() -> u32 {
    let mut lists = LISTS.lock();
    lists.retired_pages = 0;
    RETIRED_PAGES.store(0, Relaxed);
    core::mem::replace(&mut lists.retired, NO_SLOT)
}

/// Maps a zeroed frame at a page of a slot whose tables exist. The page had none.
#[inline]
pub(crate) fn map_page(address: u64, frame: FrameNumber, attributes: u64) -> u64 {
    let entry = kernel_map::find(address).expect("a slot that was given out has its page tables");
    debug_assert!(kernel_map::frame_of(entry.load(Relaxed)).is_none(), "{address:#x} is mapped already");
    kernel_map::set(entry, frame, attributes);
    entry.load(Relaxed)
}

/// Takes the frame from a page of a slot. It may be reused only when all CPUs have flushed the page.
pub(crate) fn unmap_page(address: u64) -> Option<FrameNumber> {
    debug_assert_eq!(address % PAGE_BYTES, 0);
    kernel_map::frame_of(kernel_map::clear(kernel_map::find(address)?))
}

/// The page-table entry of a page, 0 if there is none.
pub(crate) fn entry_value(address: u64) -> u64 {
    kernel_map::find(address).map_or(0, |entry| entry.load(Relaxed))
}

/// A frame for a stack. The caller may wait, or not: it is tried accordingly.
pub(crate) fn stack_frame() -> Result<FrameNumber, crate::OutOfMemory> {
    let frame = Frame::allocate(Purpose::KernelStack, Zeroed::Yes)?;
    Ok(FrameNumber::containing(frame.into_physical()).expect("a frame lies in managed memory"))
}
