//! What the dispatcher does with stacks: admit the next thread's, leave the former's.
//!
//! Protocol, on one CPU with interrupts off:
//!
//! 1. [`admit`] on the former thread's stack. If it says no, the next thread stays runnable and another is chosen; the
//!    idle thread, whose stack is fully mapped, is always admitted.
//! 2. The switch itself.
//! 3. [`left`] on the next thread's stack, before the former thread may run elsewhere.
//!
//! Between 1 and 3 both stacks belong to the CPU. The former thread's is backed far enough in step 1, so growing it in
//! between does not use up the frames that the next thread was promised.

use core::sync::atomic::Ordering::Relaxed;

use machine::address::VirtAddr;
use machine::context::KernelContext;
use machine::cpu::CpuId;
use machine::mmu;

use super::super::geometry::Window;
use super::super::parameters::{Mode, mode};
use super::super::per_cpu::{CpuStacks, NO_SLOT};
use super::super::{admission, wake_service};
use super::descriptor::{ANY_PIN, PARKED};
use super::{KernelStack, descriptor, slots};
use super::{grow, parking, reserve};
use crate::frame::Urgency;
use crate::frame::per_cpu::bump;
use crate::kernel_map;
use crate::local::local;

/// Whether the CPU (this one) can run the thread with this stack now. After a yes the switch must follow. For a thread that
/// `frees_memory`, because it ends or works for the kernel, the last frames may be used; others are rather made to wait, or
/// thousands of growing stacks would leave nothing to those.
pub fn admit(next: &KernelStack, cpu: CpuId, frees_memory: bool) -> bool {
    debug_assert_eq!(cpu, machine::cpu::current());
    debug_assert!(!machine::interrupt::are_enabled(), "the dispatcher runs with interrupts off");
    reserve::back_own_stack();
    let known = next.descriptor();
    if !known.start_running(cpu.index()) {
        local(|memory| bump(&memory.stacks.counters.busy, 1));
        return false;
    }
    let window = known.window(next.slot());
    let urgency = if frees_memory { Urgency::Emergency } else { Urgency::Atomic };
    let missing = if window.growable() == 0 { 0 } else { reserve::fill_to(window.growable(), urgency) };
    if missing > 0 {
        known.stop_running();
        local(|memory| bump(&memory.stacks.counters.refused, 1));
        wake_service();
        return false;
    }
    reserve::change(|stacks| {
        debug_assert_eq!(admission::shortage(stacks.reserve.len() as u32, &window), 0);
        stacks.leaving.store(stacks.running.load(Relaxed), Relaxed);
        stacks.running.store(next.slot(), Relaxed);
        if known.has_flag(PARKED | ANY_PIN) {
            prepare_special(stacks, next.slot());
        }
        if mode() == Mode::Lend {
            lend(stacks, next.slot(), &known.window(next.slot()));
        }
    });
    true
}

/// Backs what a thread that is pinned or parked needs, before it runs.
#[inline(never)]
fn prepare_special(stacks: &CpuStacks, slot: u32) {
    if descriptor::at(slot).has_flag(PARKED) {
        parking::prepare(stacks, slot);
    }
    if descriptor::at(slot).has_flag(ANY_PIN) {
        grow::pin(stacks, slot);
    }
}

/// The CPU is about to switch to a thread that runs on no slot: on the stack that it started with.
pub fn admit_start_up_stack() {
    reserve::change(|stacks| {
        stacks.leaving.store(stacks.running.load(Relaxed), Relaxed);
        stacks.running.store(NO_SLOT, Relaxed);
    });
}

/// The former thread's stack has been left, where `context` says: it may run on any CPU now.
///
/// # Safety
/// The context is that thread's, and this CPU has just switched away from it.
pub unsafe fn left(former: &KernelStack, context: &mut KernelContext) {
    // SAFETY: as the caller says.
    unsafe { parking::settle(former.slot(), context) };
    let saved_pointer = context.stack_pointer();
    reserve::change(|stacks| {
        debug_assert_eq!(stacks.leaving.load(Relaxed), former.slot());
        stacks.leaving.store(NO_SLOT, Relaxed);
        if mode() == Mode::Lend {
            take_back(stacks, former.slot());
        }
    });
    let known = former.descriptor();
    known.saved_pointer.store(saved_pointer.as_u64(), Relaxed);
    known.stop_running();
}

/// Mode `lend`: maps this CPU's reserve into the unbacked part of the window, clean. Other CPUs may hold translations
/// of these pages from the thread's last run there, this one too, hence the flush of each page.
fn lend(stacks: &CpuStacks, slot: u32, window: &Window) {
    let known = descriptor::at(slot);
    for page in window.mapped..window.mapped + window.growable() {
        let frame = stacks.reserve.pop().expect("the thread was admitted");
        let address = window.page_address(page);
        slots::map_page(address, frame, kernel_map::CLEAN_DATA);
        mmu::flush_page(VirtAddr::new(address));
    }
    known.lent.store(window.growable(), Relaxed);
    known.mapped.store(window.mapped + window.growable(), Relaxed);
}

/// Mode `lend`: takes the lent pages back that stayed clean; those above the deepest dirty one now belong to the
/// thread. The dirty bit counts, not the accessed bit, which speculation may set.
fn take_back(stacks: &CpuStacks, slot: u32) {
    let known = descriptor::at(slot);
    let window = known.window(slot);
    let own = window.mapped - known.lent.swap(0, Relaxed);
    let dirty = |page: u32| slots::entry_value(window.page_address(page)) & kernel_map::DIRTY != 0;
    let keep = (own..window.mapped).rev().find(|&page| dirty(page)).map_or(own, |page| page + 1);
    for page in keep..window.mapped {
        let address = window.page_address(page);
        let frame = slots::unmap_page(address).expect("the page was lent");
        mmu::flush_page(VirtAddr::new(address));
        stacks.reserve.push(frame);
    }
    known.mapped.store(own, Relaxed);
    known.set_mapped(keep);
    let grown = keep - own;
    bump(&stacks.counters.pages_grown, u64::from(grown));
    let mapped = &stacks.counters.mapped;
    mapped.store(mapped.load(Relaxed) + i64::from(grown), Relaxed);
}

/// The former thread ran on no slot: nothing is being left.
pub fn left_start_up_stack() {
    reserve::change(|stacks| stacks.leaving.store(NO_SLOT, Relaxed));
}
