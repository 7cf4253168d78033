//! Kernel stacks of the bare machine, in the region of thread slots.

mod chunks;
mod depth;
mod descriptor;
mod grow;
mod overflow;
mod parking;
mod release;
mod reserve;
mod slots;
mod stack;
mod statistics;
mod switch;

use machine::address::VirtAddr;
use machine::cpu::{self, CpuId};
use machine::fault::StackHooks;
use sync::remote;

use super::geometry::{PAGE_BYTES, REGION_BASE, TABLE_BASE};
use super::parameters::{Mode, mode};
use super::per_cpu::CpuStacks;
use crate::frame::{Purpose, Urgency, Zeroed, allocate};
use crate::{kernel_map, reclaim};

pub use depth::{forget_own as forget_own_depth, own as own_depth, set_measured_share};
pub(crate) use grow::lowest_mapped;
pub use grow::{own_window, set_refill_request};
pub use overflow::{expect_overflow, last_report, set_kill_hook, set_name_hook};
pub use parking::set_park_hooks;
pub use stack::KernelStack;
pub(crate) use stack::initial_pages;
pub(crate) use statistics::{for_each_stack, mapped_pages, totals, write_windows};
pub use switch::{admit, admit_start_up_stack, left, left_start_up_stack};

/// Backs the running thread's stack down to an address; for the trap code, from another stack. False if less than `room`
/// bytes of the stack lie beneath.
fn ensure(address: VirtAddr, room: u64) -> bool {
    grow::ensure(address.as_u64(), room)
}

/// Backs the stacks of running threads that were pinned meanwhile; the caller may wait.
pub fn settle_pins() {
    {
        let _on_this_cpu = machine::preempt::disable();
        // A remote call to this CPU runs on this stack, which its own growth faults back.
        if let Some(window) = grow::own_window()
            && descriptor::at(window.slot).has_flag(descriptor::ANY_PIN)
        {
            grow::touch_down_to(window.bottom() + u64::from(window.layout.bottom_pages()) * PAGE_BYTES);
        }
    }
    remote::call(cpu::online(), |_| pin_if_on_another_stack(), 0);
}

/// On the CPU whose running thread is to be pinned, unless that is the caller.
fn pin_if_on_another_stack() {
    if grow::own_window().is_none() {
        grow::pin_running();
    }
}

/// The whole window of the running thread's stack is backed and stays so, until this is dropped by the same thread.
#[derive(Debug)]
#[must_use]
pub struct WholeWindow {
    /// The stack whose flag was set for this.
    slot: Option<u32>,
}

/// Calls `begin`, which says whether the thread has become one that others wait for while it makes memory free. If so, its whole
/// window is backed before anybody else can be run in its place, so that it can be run again whatever happens to memory. The
/// reserve of a CPU suffices for the thread that it runs.
pub fn begin_freeing(begin: impl FnOnce() -> bool) -> Option<WholeWindow> {
    let _not_switched = machine::preempt::disable();
    if !begin() {
        return None;
    }
    let Some(window) = grow::own_window() else { return Some(WholeWindow { slot: None }) };
    for page in window.mapped..window.mapped + window.growable() {
        grow::touch_down_to(window.page_address(page));
    }
    let known = descriptor::at(window.slot);
    let is_first = !known.has_flag(descriptor::PINNED_FREEING);
    known.set_flag(descriptor::PINNED_FREEING, true);
    Some(WholeWindow { slot: is_first.then_some(window.slot) })
}

impl Drop for WholeWindow {
    fn drop(&mut self) {
        if let Some(slot) = self.slot {
            descriptor::at(slot).set_flag(descriptor::PINNED_FREEING, false);
        }
    }
}

/// Writes what the last growth fault of the running thread did, and the page-table trace of its window (the printout of
/// the thesis' figure 7).
///
/// # Errors
/// Those of the writer.
pub fn write_own_trace(out: &mut dyn core::fmt::Write) -> core::fmt::Result {
    let Some(window) = grow::own_window() else { return Ok(()) };
    statistics::write_last_growth(out, &window)?;
    statistics::write_window(out, &window)
}

/// Keeps this CPU's reserve at its target; for idle moments and after growth.
pub fn refill() {
    reserve::balance();
}

/// Does [`refill`] if a growth fault has asked for it: see [`set_refill_request`].
pub fn refill_if_wanted() {
    if reserve::take_request() {
        reserve::balance();
    }
}

/// Does what waits to be done in a thread: frees the pages of ended threads, fills the emergency stash.
pub fn service() -> usize {
    reserve::fill_stash();
    reserve::balance();
    release::free_retired()
}

/// Takes from sleeping threads' stacks what lies below their stack pointers; returns the number of pages.
pub fn trim() -> usize {
    release::trim_sleepers()
}

/// The stack that the CPU runs on just now, if it has pages to give: for [`trim_one`] once its thread is preempted.
pub fn untrimmed_on(cpu: CpuId) -> Option<u32> {
    release::untrimmed_on(cpu)
}

/// Like [`trim()`], for one stack.
pub fn trim_one(stack: u32) -> usize {
    release::trim_one(stack)
}

/// Frees all pages of stacks that no thread has, those kept for new threads too.
pub fn free_unused() -> usize {
    release::free_cached()
}

struct StackReclaimer;

impl reclaim::Reclaimer for StackReclaimer {
    fn name(&self) -> &'static str {
        "kernel stacks"
    }

    fn reclaim(&self, frames: usize) -> usize {
        let freed = release::free_cached();
        if freed < frames { freed + release::trim_sleepers() } else { freed }
    }
}

/// Start-up on the boot processor, once there are frames.
pub(crate) fn initialize() {
    let mut supply = || allocate::allocate(Purpose::PageTable, Zeroed::Yes, Urgency::Atomic).ok();
    for address in [REGION_BASE, TABLE_BASE] {
        let made = kernel_map::reserve_top_level(VirtAddr::new(address), &mut supply);
        assert!(made, "there is memory for the first page tables");
    }
    reserve::fill_stash();
    reserve::balance();
    reclaim::register(&StackReclaimer);
    if mode() == Mode::DoubleFault {
        // SAFETY: this is the boot processor's start-up, before others start.
        unsafe { machine::fault::fault_on_own_stack() };
    }
    machine::fault::set_stack_hooks(StackHooks {
        grow: grow::grow,
        ensure,
        starved: parking::starved,
        overflow: overflow::overflow,
    });
}

/// Fills the reserve of a processor that is about to start.
pub(crate) fn prepare(stacks: &CpuStacks) -> bool {
    reserve::fill_for(stacks)
}
