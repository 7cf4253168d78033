//! Non-contiguous kernel memory: single frames mapped one behind the other, for objects that are too large to be found
//! in one piece.
//!
//! The region is one entry of the top-level page table (512 GiB), the one above device registers. An area takes a
//! power of two of pages of it, at least one more than its object has: the page behind it stays unmapped. Addresses
//! are plentiful and never given back to a common pool: a freed area waits for the next object of its size, in the
//! order in which areas were freed.
//!
//! A freed area's translations may linger in any CPU. Its frames are freed, and its addresses reused, only after a
//! flush: freed areas are unmapped at once, and their frames collected in a list until [`purge`] flushes all CPUs,
//! which happens when [`PURGE_FRAMES`] have come together and the caller may wait, and when memory is reclaimed.
//!
//! Areas that are not in use are linked through the page-table entries of their first pages: those are not present, so
//! their other bits are ours. Lists are of *links*: the first page + 1, and the order above it; 0 ends a list.
//!
//! The per-CPU allocator takes addresses here, too, and maps frames to some of their pages.
//!
//! Locking: one lock, with interrupts off, for the lists and the page tables of the region.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::address::{PAGE_SIZE, VirtAddr};
use sync::IrqSpinLock;

use crate::frame::number::FrameNumber;
use crate::frame::table::metadata;
use crate::frame::{Purpose, Urgency, Zeroed, allocate as frames};
use crate::kernel_map;

/// Where areas begin: entry 385 of the top-level table.
const REGION_BASE: u64 = 0xffff_c080_0000_0000;
const REGION_PAGES: u64 = 1 << 27;

/// Sizes of areas: 2^0 to 2^27 pages.
const ORDERS: usize = 28;

/// Frames of freed areas that make a flush worth while.
const PURGE_FRAMES: u32 = 1024;

struct Areas {
    /// The first page never used.
    next_page: u64,
    /// By order: link to the first area that can be reused.
    free: [u64; ORDERS],
    /// Link to the first area that was unmapped but not flushed.
    unflushed: u64,
    /// First of the frames not flushed, linked by their metadata.
    frames: u32,
    frames_length: u32,
}

static AREAS: IrqSpinLock<Areas> =
    IrqSpinLock::new(Areas { next_page: 0, free: [0; ORDERS], unflushed: 0, frames: 0, frames_length: 0 });

/// Bits of a link for the first page + 1.
const LINK_PAGE_BITS: u32 = 32;

fn link_of(page: u64, order: u8) -> u64 {
    (page + 1) | u64::from(order) << LINK_PAGE_BITS
}

/// First page and order of the area that a link leads to.
fn area_of(link: u64) -> Option<(u64, u8)> {
    let page = (link & ((1 << LINK_PAGE_BITS) - 1)).checked_sub(1)?;
    Some((page, (link >> LINK_PAGE_BITS) as u8))
}

static MAPPED_FRAMES: AtomicU64 = AtomicU64::new(0);

/// Frames in areas.
pub(crate) fn mapped_frames() -> u64 {
    MAPPED_FRAMES.load(Relaxed)
}

/// Whether the address is in the region of areas.
pub(crate) fn contains(address: VirtAddr) -> bool {
    (REGION_BASE..REGION_BASE + REGION_PAGES * PAGE_SIZE as u64).contains(&address.as_u64())
}

/// Start-up: makes the top-level entry that all address spaces share.
pub(crate) fn initialize() {
    let made = kernel_map::reserve_top_level(VirtAddr::new(REGION_BASE), &mut table_frame);
    assert!(made, "there is memory for the first page tables");
}

fn table_frame() -> Option<FrameNumber> {
    frames::allocate(Purpose::PageTable, Zeroed::Yes, Urgency::Atomic).ok()
}

/// The address of a page of the region.
pub(crate) const fn address_of(page: u64) -> u64 {
    REGION_BASE + page * PAGE_SIZE as u64
}

/// log2 of the pages of the area for an object of `pages` pages.
fn order_for(pages: usize) -> u8 {
    (pages + 1).next_power_of_two().ilog2() as u8
}

impl Areas {
    /// Takes the addresses of an area.
    fn take(&mut self, order: u8) -> Option<u64> {
        if let Some((page, _)) = area_of(self.free[usize::from(order)]) {
            let entry = kernel_map::find(address_of(page)).expect("a linked area has its first page table");
            self.free[usize::from(order)] = entry.swap(0, Relaxed) >> 1;
            return Some(page);
        }
        let page = self.next_page.next_multiple_of(1 << order);
        if page + (1 << order) > REGION_PAGES {
            return None;
        }
        self.next_page = page + (1 << order);
        Some(page)
    }

    /// Remembers an area for reuse after the flush. One that did not even get its first page table is forgotten.
    fn retire(&mut self, page: u64, order: u8) {
        if let Some(entry) = kernel_map::find(address_of(page)) {
            entry.store(self.unflushed << 1, Relaxed);
            self.unflushed = link_of(page, order);
        }
    }

    /// Makes the areas of a list, which have been flushed, available.
    fn put_all(&mut self, mut list: u64) {
        while let Some((page, order)) = area_of(list) {
            let entry = kernel_map::find(address_of(page)).expect("a linked area has its first page table");
            let head = &mut self.free[usize::from(order)];
            let next = entry.swap(*head << 1, Relaxed) >> 1;
            *head = list;
            list = next;
        }
    }
}

/// Allocates an object of `pages` pages.
pub(crate) fn allocate(pages: usize, align: usize, zeroed: Zeroed, urgency: Urgency) -> Option<NonNull<u8>> {
    if urgency == Urgency::Normal && AREAS.lock().frames_length >= PURGE_FRAMES {
        purge();
    }
    let order = order_for(pages);
    if usize::from(order) >= ORDERS || align > PAGE_SIZE << order {
        return None;
    }
    // A request that can't be met must not take everything first: what it took would be missing until the next flush.
    let free_frames = || crate::statistics::memory().free_frames;
    if pages as u64 > free_frames() {
        if urgency == Urgency::Normal {
            crate::reclaim::reclaim_now(pages);
        }
        if pages as u64 > free_frames() {
            return None;
        }
    }
    let page = AREAS.lock().take(order)?;
    for index in 0..pages as u64 {
        if !map(page + index, Purpose::Area, zeroed, urgency) {
            unmap(page, index);
            AREAS.lock().retire(page, order);
            return None;
        }
    }
    MAPPED_FRAMES.fetch_add(pages as u64, Relaxed);
    NonNull::new(core::ptr::with_exposed_provenance_mut(address_of(page) as usize))
}

/// The page of the region at an address.
pub(crate) const fn page_at(address: u64) -> u64 {
    (address - REGION_BASE) / PAGE_SIZE as u64
}

/// Takes addresses of 2^order pages, aligned to that; nothing is mapped there.
pub(crate) fn take_addresses(order: u8) -> Option<u64> {
    AREAS.lock().take(order)
}

/// Gives addresses back, from which everything has been unmapped; they are reused after the next flush.
pub(crate) fn retire_addresses(page: u64, order: u8) {
    AREAS.lock().retire(page, order);
}

/// The frame that is mapped at a page.
pub(crate) fn frame_at(page: u64) -> Option<FrameNumber> {
    kernel_map::frame_of(kernel_map::find(address_of(page))?.load(Relaxed))
}

/// Maps a fresh frame at a page of addresses that the caller took; says whether there was memory.
pub(crate) fn map(page: u64, purpose: Purpose, zeroed: Zeroed, urgency: Urgency) -> bool {
    let Ok(frame) = frames::allocate(purpose, zeroed, urgency) else { return false };
    let _areas = AREAS.lock();
    match kernel_map::entry(address_of(page), &mut table_frame) {
        Some(entry) => {
            kernel_map::set(entry, frame, kernel_map::DATA);
            true
        }
        None => {
            drop(_areas);
            frames::free(frame, purpose);
            false
        }
    }
}

/// Addresses for `pages` pages, for good. Their owner maps what he wants of them with [`map_reserved`].
pub(crate) fn reserve_addresses(pages: usize) -> Option<usize> {
    let page = AREAS.lock().take(order_for(pages))?;
    Some(address_of(page) as usize)
}

/// Maps a frame into reserved addresses, for good.
pub(crate) fn map_reserved(address: usize, frame: crate::frame::Frame) -> Result<(), crate::OutOfMemory> {
    let _areas = AREAS.lock();
    let entry = kernel_map::entry(address as u64, &mut table_frame).ok_or(crate::OutOfMemory)?;
    let frame = FrameNumber::containing(frame.into_physical()).ok_or(crate::OutOfMemory)?;
    kernel_map::set(entry, frame, kernel_map::DATA);
    Ok(())
}

/// Takes the frames from an area; they wait for the flush.
pub(crate) fn unmap(page: u64, pages: u64) {
    let mut areas = AREAS.lock();
    for index in 0..pages {
        let entry = kernel_map::find(address_of(page + index)).expect("the area is mapped");
        let frame = kernel_map::frame_of(kernel_map::clear(entry)).expect("the area is mapped");
        metadata(frame).next.store(areas.frames, Relaxed);
        areas.frames = frame.index();
        areas.frames_length += 1;
    }
}

/// Frees an object of `pages` pages.
///
/// # Safety
/// The object was allocated here with this length, and is not used any more.
pub(crate) unsafe fn free(address: VirtAddr, pages: usize) {
    let page = page_at(address.as_u64());
    unmap(page, pages as u64);
    MAPPED_FRAMES.fetch_sub(pages as u64, Relaxed);
    AREAS.lock().retire(page, order_for(pages));
    ask_to_purge();
}

/// Sees to it that what waits for a flush does not wait for ever.
pub(crate) fn ask_to_purge() {
    if frames::may_wait() && AREAS.lock().frames_length >= PURGE_FRAMES {
        purge();
    } else {
        crate::reclaim::ask_to_tidy();
    }
}

/// Frames of freed areas that wait for a flush.
pub(crate) fn waiting_frames() -> u64 {
    u64::from(AREAS.lock().frames_length)
}

/// Flushes all CPUs and frees what waited for that; returns the number of frames. The caller may wait.
pub(crate) fn purge() -> usize {
    let (mut next, length, unflushed) = {
        let mut areas = AREAS.lock();
        let taken = (areas.frames, areas.frames_length, areas.unflushed);
        (areas.frames, areas.frames_length, areas.unflushed) = (0, 0, 0);
        taken
    };
    // Frames may be listed whose area is not retired yet: they have been unmapped, and only this list knows them.
    if next == 0 && unflushed == 0 {
        return 0;
    }
    sync::remote::flush_tlb(machine::cpu::online(), |_| machine::mmu::flush_all(), 0);
    while next != 0 {
        let frame = FrameNumber::new(next);
        next = metadata(frame).next.load(Relaxed);
        frames::free(frame, metadata(frame).purpose());
    }
    AREAS.lock().put_all(unflushed);
    length as usize
}
