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
//! which an allocation does when [`PURGE_FRAMES`] have come together and it may wait.
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

/// Areas freed since the last purge that are remembered for reuse; others lose their addresses until then.
const FREED_MAX: usize = 64;

struct Areas {
    /// The first page never used.
    next_page: u64,
    /// By order: areas that can be reused, linked by their first words' worth of page-table entry (bit 0 clear).
    free: [u64; ORDERS],
    /// Areas unmapped but not flushed: first page and order.
    unflushed: [(u64, u8); FREED_MAX],
    unflushed_length: usize,
    /// First of the frames not flushed, linked by their metadata.
    frames: u32,
    frames_length: u32,
}

static AREAS: IrqSpinLock<Areas> = IrqSpinLock::new(Areas {
    next_page: 0,
    free: [0; ORDERS],
    unflushed: [(0, 0); FREED_MAX],
    unflushed_length: 0,
    frames: 0,
    frames_length: 0,
});

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

const fn address_of(page: u64) -> u64 {
    REGION_BASE + page * PAGE_SIZE as u64
}

/// log2 of the pages of the area for an object of `pages` pages.
fn order_for(pages: usize) -> u8 {
    (pages + 1).next_power_of_two().ilog2() as u8
}

impl Areas {
    /// Takes the addresses of an area. The free ones of an order are linked through the page-table entries of their
    /// first pages, which are not present: their other bits are ours.
    fn take(&mut self, order: u8) -> Option<u64> {
        let head = self.free[usize::from(order)];
        if head != 0 {
            let page = head - 1;
            let entry = kernel_map::find(address_of(page)).expect("a used area has its page tables");
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

    fn put(&mut self, page: u64, order: u8) {
        let entry = kernel_map::find(address_of(page)).expect("a used area has its page tables");
        entry.store(self.free[usize::from(order)] << 1, Relaxed);
        self.free[usize::from(order)] = page + 1;
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
    let page = AREAS.lock().take(order)?;
    for index in 0..pages as u64 {
        if !map(page + index, zeroed, urgency) {
            unmap(page, index);
            AREAS.lock().retire(page, order);
            return None;
        }
    }
    MAPPED_FRAMES.fetch_add(pages as u64, Relaxed);
    NonNull::new(core::ptr::with_exposed_provenance_mut(address_of(page) as usize))
}

fn map(page: u64, zeroed: Zeroed, urgency: Urgency) -> bool {
    let Ok(frame) = frames::allocate(Purpose::Area, zeroed, urgency) else { return false };
    let _areas = AREAS.lock();
    match kernel_map::entry(address_of(page), &mut table_frame) {
        Some(entry) => {
            kernel_map::set(entry, frame, kernel_map::DATA);
            true
        }
        None => {
            drop(_areas);
            frames::free(frame, Purpose::Area);
            false
        }
    }
}

/// Takes the frames from an area; they wait for the flush.
fn unmap(page: u64, pages: u64) {
    let mut areas = AREAS.lock();
    for index in 0..pages {
        let entry = kernel_map::find(address_of(page + index)).expect("the area is mapped");
        let frame = kernel_map::frame_of(kernel_map::clear(entry)).expect("the area is mapped");
        metadata(frame).next.store(areas.frames, Relaxed);
        areas.frames = frame.index();
        areas.frames_length += 1;
    }
}

impl Areas {
    /// Remembers a freed area for reuse after the flush. One too many loses its addresses: there are 2^27 pages.
    fn retire(&mut self, page: u64, order: u8) {
        if self.unflushed_length < FREED_MAX {
            self.unflushed[self.unflushed_length] = (page, order);
            self.unflushed_length += 1;
        }
    }
}

/// Frees an object of `pages` pages.
///
/// # Safety
/// The object was allocated here with this length, and is not used any more.
pub(crate) unsafe fn free(address: VirtAddr, pages: usize) {
    let page = (address.as_u64() - REGION_BASE) / PAGE_SIZE as u64;
    unmap(page, pages as u64);
    MAPPED_FRAMES.fetch_sub(pages as u64, Relaxed);
    AREAS.lock().retire(page, order_for(pages));
    if frames::may_wait() && AREAS.lock().frames_length >= PURGE_FRAMES {
        purge();
    }
}

/// Flushes all CPUs and frees what waited for that; returns the number of frames. The caller may wait.
pub(crate) fn purge() -> usize {
    let (mut next, length, unflushed, unflushed_length) = {
        let mut areas = AREAS.lock();
        let taken = (areas.frames, areas.frames_length, areas.unflushed, areas.unflushed_length);
        (areas.frames, areas.frames_length, areas.unflushed_length) = (0, 0, 0);
        taken
    };
    if length == 0 {
        return 0;
    }
    sync::remote::call(machine::cpu::online(), |_| machine::mmu::flush_all(), 0);
    while next != 0 {
        let frame = FrameNumber::new(next);
        next = metadata(frame).next.load(Relaxed);
        frames::free(frame, Purpose::Area);
    }
    let mut areas = AREAS.lock();
    for (page, order) in &unflushed[..unflushed_length] {
        areas.put(*page, *order);
    }
    length as usize
}
