//! The handle of a kernel stack.

use core::alloc::Layout as MemoryLayout;
use core::ptr::NonNull;
use core::sync::atomic::Ordering::Relaxed;

use machine::address::VirtAddr;

use super::super::CONTROL_BLOCK_BYTES_MAX;
use super::super::PinReason;
use super::super::geometry::{MAX_PAGES, Window, slot_order};
use super::super::parameters::{Mode, mode, parameters};
use super::descriptor::{self, Descriptor, MEASURED, PINNED, PINNED_LOCKED, PINNED_REALTIME};
use super::{depth, release, reserve, slots};
use crate::OutOfMemory;
use crate::frame::allocate::may_wait;
use crate::frame::per_cpu::bump;
use crate::kernel_map;
use crate::local::local;

/// Marks the header at the start of a layout A stack; found damaged, the stack had overflowed into its last page.
const HEADER_MARK: u64 = 0x5354_4152_4c49_4e47;

/// A kernel stack with one owner; freed when dropped, which must not happen while it is in use.
#[derive(Debug)]
pub struct KernelStack {
    slot: u32,
}

/// Pages, counted from the top, that a stack has from the start.
pub(crate) fn initial_pages(pages: u32, pinned: bool) -> u32 {
    if pinned || mode() == Mode::Fixed {
        pages - parameters().layout.bottom_pages().min(pages - 1)
    } else {
        1
    }
}

impl KernelStack {
    /// A stack that may grow to `pages` pages; 0 stands for the default.
    ///
    /// # Errors
    /// When there is no memory, or `pages` is more than 127.
    pub fn allocate(pages: usize) -> Result<Self, OutOfMemory> {
        Self::make(pages, false)
    }

    /// A stack all of whose pages are there from the start and stay: for threads that must run when memory is short.
    ///
    /// # Errors
    /// When there is no memory, or `pages` is more than 127.
    pub fn allocate_pinned(pages: usize) -> Result<Self, OutOfMemory> {
        Self::make(pages, true)
    }

    fn make(pages: usize, pinned: bool) -> Result<Self, OutOfMemory> {
        let default = parameters().pages;
        let pages = if pages == 0 { default } else { pages.min(MAX_PAGES as usize + 1) as u32 };
        if pages > MAX_PAGES {
            return Err(OutOfMemory);
        }
        // Without a thread that does it, exits would pile up stacks.
        if slots::retired_pages() as usize >= 2 * release::BATCH_PAGES && may_wait() {
            release::free_retired();
        }
        let stack = match Self::reuse(pages, pages == default && !pinned) {
            Some(stack) => stack,
            None => Self::make_fresh(pages)?,
        };
        reserve::note_window(if pinned || mode() == Mode::Fixed { 1 } else { pages });
        let known = stack.descriptor();
        known.set_in_use();
        let measured = local(|memory| {
            let stacks = &memory.stacks.counters.stacks;
            stacks.store(stacks.load(Relaxed) + 1, Relaxed);
            depth::is_next_measured(&memory.stacks)
        });
        stack.back_down_to_initial(initial_pages(pages, pinned))?;
        if measured {
            depth::prepare(&stack.window());
            known.flags.fetch_or(MEASURED, Relaxed);
        }
        if pinned {
            known.flags.fetch_or(PINNED, Relaxed);
        }
        Ok(stack)
    }

    /// A free stack that still has pages.
    fn reuse(pages: u32, any_default: bool) -> Option<Self> {
        let cached = if any_default { local(|memory| memory.stacks.cache.pop()) } else { None };
        let slot = cached.or_else(|| slots::take_retired(pages))?;
        local(|memory| bump(&memory.stacks.counters.cache_hits, 1));
        Some(Self { slot })
    }

    /// A stack without pages.
    fn make_fresh(pages: u32) -> Result<Self, OutOfMemory> {
        let order = slot_order(pages);
        let slot = slots::take_bare(order).ok_or(OutOfMemory)?;
        let known = descriptor::at(slot);
        known.set_form(pages, order, if pages > 1 { parameters().layout } else { Default::default() });
        known.mapped.store(0, Relaxed);
        known.lent.store(0, Relaxed);
        local(|memory| bump(&memory.stacks.counters.cache_misses, 1));
        Ok(Self { slot })
    }

    /// Maps what a new stack has from the start. On failure the stack is dropped, with what it has got.
    fn back_down_to_initial(&self, pages: u32) -> Result<(), OutOfMemory> {
        let known = self.descriptor();
        let window = self.window();
        if window.mapped == 0 && window.layout.bottom_pages() > 0 {
            let address = window.bottom();
            slots::map_page(address, slots::stack_frame()?, kernel_map::DATA);
            let header: *mut u64 = core::ptr::with_exposed_provenance_mut(address as usize);
            // SAFETY: the page was mapped just now and belongs to this stack, which nobody else has yet.
            unsafe { header.write(HEADER_MARK) };
            count_mapped(1);
        }
        for page in window.mapped..pages {
            slots::map_page(window.page_address(page), slots::stack_frame()?, kernel_map::DATA);
            known.set_mapped(page + 1);
            count_mapped(1);
        }
        Ok(())
    }

    /// Has all pages mapped and kept as long as one of the reasons holds, or lets them go again when they are not needed.
    /// Pages come at the next switch to the thread; [`settle_pins`](super::settle_pins) does it for those that run.
    pub fn set_pinned(&self, reason: PinReason, pinned: bool) {
        self.descriptor().set_flag(reason.flag(), pinned);
    }

    /// Whether all pages are kept for this reason.
    pub fn is_pinned_for(&self, reason: PinReason) -> bool {
        self.descriptor().has_flag(reason.flag())
    }

    pub(crate) const fn slot(&self) -> u32 {
        self.slot
    }

    pub(crate) fn descriptor(&self) -> &'static Descriptor {
        descriptor::at(self.slot)
    }

    /// Where the stack lies and how much of it is there.
    pub fn window(&self) -> Window {
        self.descriptor().window(self.slot)
    }

    /// The address above the stack's first byte, 16-byte aligned.
    pub fn top(&self) -> VirtAddr {
        VirtAddr::new(self.window().top())
    }

    /// Room for a thread's control block at the top of the stack, and the address beneath it where the stack begins.
    ///
    /// # Panics
    /// When the layout takes more than [`CONTROL_BLOCK_BYTES_MAX`].
    pub fn control_block(&self, layout: MemoryLayout) -> (NonNull<u8>, VirtAddr) {
        assert!(layout.size() <= CONTROL_BLOCK_BYTES_MAX && layout.align() <= 64, "a control block is small");
        let start = (self.window().top() - layout.size() as u64) & !(layout.align().max(16) as u64 - 1);
        let pointer = core::ptr::with_exposed_provenance_mut(start as usize);
        (NonNull::new(pointer).expect("the region is not at 0"), VirtAddr::new(start))
    }

    /// Whether an address lies in the stack's slots, guard included.
    pub fn contains(&self, address: VirtAddr) -> bool {
        self.window().contains(address.as_u64())
    }

    /// Notes whose stack this is, for reports, and where the scheduler keeps that thread.
    pub fn set_owner(&self, thread: u64, control: u64) {
        self.descriptor().owner.store(thread, Relaxed);
        self.descriptor().control.store(control, Relaxed);
    }

    /// Growth faults that the thread had.
    pub fn faults(&self) -> u32 {
        self.descriptor().faults.load(Relaxed)
    }

    /// The most pages that were ever mapped for the thread.
    pub fn high_water(&self) -> u32 {
        self.descriptor().high_water.load(Relaxed)
    }

    /// Whether the header of a layout A stack is whole; true for other stacks.
    pub fn header_is_whole(&self) -> bool {
        let window = self.window();
        if window.layout.bottom_pages() == 0 {
            return true;
        }
        let header: *const u64 = core::ptr::with_exposed_provenance(window.bottom() as usize);
        // SAFETY: the page is mapped as long as the stack is allocated; the word may have been overwritten by the
        // stack, which is what is asked.
        unsafe { header.read_volatile() == HEADER_MARK }
    }
}

impl PinReason {
    const fn flag(self) -> u32 {
        match self {
            Self::Realtime => PINNED_REALTIME,
            Self::Locked => PINNED_LOCKED,
        }
    }
}

/// Counts pages mapped into stacks.
fn count_mapped(pages: i64) {
    local(|memory| {
        let mapped = &memory.stacks.counters.mapped;
        mapped.store(mapped.load(Relaxed) + pages, Relaxed);
    });
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        if !self.header_is_whole() {
            log::error!("kernel stack {} ran into the header of its last page", self.slot);
        }
        release::release(self.slot);
    }
}
