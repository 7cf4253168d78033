//! Kernel stacks of a hosted machine: plain memory, all of it usable from the start.
//!
//! The operating system provides the pages when they are touched, so the stacks are generous: unoptimised test code
//! has large frames. Admission always succeeds.

use core::alloc::Layout as MemoryLayout;
use core::fmt;
use core::ptr::NonNull;
use std::alloc::{alloc, dealloc};

use machine::address::VirtAddr;
use machine::cpu::CpuId;

use super::geometry::{Layout, MAX_PAGES, Window, slot_order};
use super::parameters::parameters;
use super::statistics::Totals;
use crate::{OutOfMemory, fallible};

/// Bytes of each stack.
const STACK_BYTES: usize = 512 << 10;

/// The stacks are whole in any case.
#[derive(Debug)]
#[must_use]
pub struct WholeWindow;

/// Calls `begin`, and says whether it was true.
pub fn begin_freeing(begin: impl FnOnce() -> bool) -> Option<WholeWindow> {
    begin().then_some(WholeWindow)
}

/// A kernel stack with one owner; freed when dropped, which must not happen while it is in use.
#[derive(Debug)]
pub struct KernelStack {
    memory: NonNull<u8>,
    pages: u32,
}

// SAFETY: the handle owns the memory, which has no ties to a thread.
unsafe impl Send for KernelStack {}
// SAFETY: shared handles only tell addresses.
unsafe impl Sync for KernelStack {}

fn layout() -> MemoryLayout {
    MemoryLayout::from_size_align(STACK_BYTES, 16).expect("a constant layout")
}

impl KernelStack {
    /// A stack that may grow to `pages` pages; 0 stands for the default.
    ///
    /// # Errors
    /// When there is no memory, or `pages` is more than 127.
    #[track_caller]
    pub fn allocate(pages: usize) -> Result<Self, OutOfMemory> {
        fallible::fail_point()?;
        let pages = if pages == 0 { parameters().pages as usize } else { pages };
        if pages > MAX_PAGES as usize {
            return Err(OutOfMemory);
        }
        // SAFETY: the layout has a size.
        let memory = NonNull::new(unsafe { alloc(layout()) }).ok_or(OutOfMemory)?;
        Ok(Self { memory, pages: pages as u32 })
    }

    /// A stack all of whose pages are there from the start and stay: for threads that must run when memory is short.
    ///
    /// # Errors
    /// When there is no memory, or `pages` is more than 127.
    #[track_caller]
    pub fn allocate_pinned(pages: usize) -> Result<Self, OutOfMemory> {
        Self::allocate(pages)
    }

    /// Has all pages mapped and kept, or lets them go again.
    pub fn set_pinned(&self, _reason: super::PinReason, _pinned: bool) {}

    /// Whether all pages are kept for this reason.
    pub fn is_pinned_for(&self, _reason: super::PinReason) -> bool {
        false
    }

    /// Where the stack would lie on the bare machine, and how much of it would be there.
    pub fn window(&self) -> Window {
        Window {
            slot: 0,
            order: slot_order(self.pages),
            pages: self.pages,
            mapped: self.pages,
            layout: Layout::B,
        }
    }

    /// The address above the stack's first byte, 16-byte aligned.
    pub fn top(&self) -> VirtAddr {
        VirtAddr::new((self.memory.expose_provenance().get() + STACK_BYTES) as u64)
    }

    /// Room for a thread's control block at the top of the stack, and the address beneath it where the stack begins.
    ///
    /// # Panics
    /// When the layout takes more than [`CONTROL_BLOCK_BYTES_MAX`](super::CONTROL_BLOCK_BYTES_MAX).
    pub fn control_block(&self, layout: MemoryLayout) -> (NonNull<u8>, VirtAddr) {
        assert!(
            layout.size() <= super::CONTROL_BLOCK_BYTES_MAX && layout.align() <= 64,
            "a control block is small"
        );
        let start = (self.top().as_usize() - layout.size()) & !(layout.align().max(16) - 1);
        let pointer = core::ptr::with_exposed_provenance_mut(start);
        (NonNull::new(pointer).expect("memory is not at 0"), VirtAddr::new(start as u64))
    }

    /// Whether an address lies in the stack.
    pub fn contains(&self, address: VirtAddr) -> bool {
        let start = self.memory.addr().get();
        (start..start + STACK_BYTES).contains(&address.as_usize())
    }

    /// Notes whose stack this is, for reports.
    pub fn set_owner(&self, _thread: u64, _control: u64) {}

    /// Growth faults that the thread had.
    pub fn faults(&self) -> u32 {
        0
    }

    /// The most pages that were ever mapped for the thread.
    pub fn high_water(&self) -> u32 {
        self.pages
    }

    /// Whether the header of a layout A stack is whole.
    pub fn header_is_whole(&self) -> bool {
        true
    }
}

impl Drop for KernelStack {
    fn drop(&mut self) {
        // SAFETY: allocated in `allocate` with the same layout; the owner no longer uses it.
        unsafe { dealloc(self.memory.as_ptr(), layout()) };
    }
}

/// Whether the CPU can run the thread with this stack now: always.
pub fn admit(_next: &KernelStack, _cpu: CpuId, _frees_memory: bool) -> bool {
    true
}

/// The CPU is about to switch to a thread that runs on no slot.
pub fn admit_start_up_stack() {}

/// The former thread's stack has been left.
///
/// # Safety
/// None: on a hosted machine there is nothing to do.
pub unsafe fn left(_former: &KernelStack, _context: &mut machine::context::KernelContext) {}

/// The former thread ran on no slot: nothing is being left.
pub fn left_start_up_stack() {}

/// Backs the stacks of running threads that were pinned meanwhile.
pub fn settle_pins() {}

/// Makes an overflow of the calling thread's stack a test's, or no longer.
pub fn expect_overflow(_expected: bool) {}

/// Calls `read` with the report of the last overflow.
pub fn last_report<R>(read: impl FnOnce(&str) -> R) -> R {
    read("")
}

/// Makes the calling thread's stack look unused below the caller.
pub fn forget_own_depth() {}

/// The window of the stack that this code runs on.
pub fn own_window() -> Option<Window> {
    None
}

/// How deep the calling thread's stack was.
pub fn own_depth() -> Option<u64> {
    None
}

/// Does [`refill`] if a growth fault has asked for it.
pub fn refill_if_wanted() {}

/// Sets what makes [`refill_if_wanted`] be called soon.
pub fn set_refill_request(_request: fn()) {}

/// Writes the page-table trace of the running thread's window.
///
/// # Errors
/// Those of the writer.
pub fn write_own_trace(_out: &mut dyn fmt::Write) -> fmt::Result {
    Ok(())
}

/// Keeps this CPU's reserve at its target.
pub fn refill() {}

/// Does what waits to be done in a thread.
pub fn service() -> usize {
    0
}

/// Takes from sleeping threads' stacks what lies below their stack pointers.
pub fn trim() -> usize {
    0
}

/// No stack has pages to give.
pub fn untrimmed_on(_cpu: CpuId) -> Option<u32> {
    None
}

/// Trims nothing.
pub fn trim_one(_stack: u32) -> usize {
    0
}

/// Frees all pages of stacks that no thread has.
pub fn free_unused() -> usize {
    0
}

/// Sets what ends a thread whose stack overflowed.
pub fn set_kill_hook(_kill: fn() -> !) {}

/// Sets what names a thread in the report.
pub fn set_name_hook(_name: super::NameHook) {}

pub(crate) fn totals() -> Totals {
    Totals::default()
}

pub(crate) const fn mapped_pages() -> u64 {
    0
}

pub(crate) fn write_windows(_out: &mut dyn fmt::Write) -> fmt::Result {
    Ok(())
}

pub(crate) fn initialize() {}

pub(crate) fn prepare(_stacks: &super::per_cpu::CpuStacks) -> bool {
    true
}

/// Hosted stacks are not listed.
pub(crate) fn for_each_stack(_visit: &mut dyn FnMut(&super::StackView)) {}
