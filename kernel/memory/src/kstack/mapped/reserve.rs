//! The frames that growth faults take, and keeping enough of them (specs/kernel-stacks.md §M7).
//!
//! A growth fault pops the reserve of its CPU at any instruction of the running thread. So every other change is made
//! by [`change`]: with interrupts off, and after backing the caller's own stack deep enough that the change itself
//! cannot fault.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use sync::IrqSpinLock;

use super::super::admission;
use super::super::parameters::{Mode, mode, parameters};
use super::super::per_cpu::{CpuStacks, NO_SLOT, RESERVE_CAPACITY};
use super::{descriptor, grow};
use crate::frame::number::FrameNumber;
use crate::frame::per_cpu::bump;
use crate::frame::{Purpose, Urgency, Zeroed, allocate};
use crate::local::local;
use crate::number_stack::NumberStack;

/// Bytes beneath the stack pointer that must be backed while a reserve is changed, or threads are switched.
/// Unoptimised code has larger frames.
const OWN_MARGIN_BYTES: u64 = if cfg!(debug_assertions) { 3072 } else { 1024 };

/// The largest window of any stack made so far.
static PAGES_SEEN: AtomicU32 = AtomicU32::new(0);

/// Fetches for reserves, counted for the injected failures.
static FETCHES: AtomicU32 = AtomicU32::new(0);

/// Frames for a dispatcher that finds no others: 8 and 2 for each CPU (64 at most).
static STASH: IrqSpinLock<NumberStack<FrameNumber, { 8 + 2 * machine::cpu::MAX_CPUS }>> =
    IrqSpinLock::new(NumberStack::new());

/// Notes that there are windows of this size, for the targets.
pub(crate) fn note_window(pages: u32) {
    PAGES_SEEN.fetch_max(pages, Relaxed);
}

/// The number of frames that CPUs aim at.
pub(crate) fn target() -> u32 {
    match mode() {
        Mode::Fixed => 0,
        Mode::Fault | Mode::DoubleFault | Mode::Lend => admission::target(PAGES_SEEN.load(Relaxed)),
    }
}

/// Backs the caller's stack far enough for what must not fault.
#[inline]
pub(crate) fn back_own_stack() {
    let marker = 0u8;
    grow::touch_down_to((&raw const marker).addr() as u64 - OWN_MARGIN_BYTES);
}

/// Changes this CPU's reserve; see the theory of this file.
#[inline]
pub(crate) fn change<R>(action: impl FnOnce(&CpuStacks) -> R) -> R {
    local(|cpu| {
        back_own_stack();
        action(&cpu.stacks)
    })
}

/// One zeroed frame for a reserve, without waiting.
fn fetch(urgency: Urgency) -> Option<FrameNumber> {
    let every = parameters().fail_reserve;
    if every != 0 && FETCHES.fetch_add(1, Relaxed).is_multiple_of(every) {
        return None;
    }
    allocate::allocate(Purpose::KernelStack, Zeroed::Yes, urgency).ok()
}

/// Brings this CPU's reserve to at least `goal` frames; returns how many are missing. Preemption is off. For a thread that
/// frees memory this may use all there is, and the stash; others leave it to those.
#[inline]
pub(crate) fn fill_to(goal: u32, urgency: Urgency) -> u32 {
    let goal = goal.min(RESERVE_CAPACITY as u32);
    if local(|cpu| cpu.stacks.reserve.len()) as u32 >= goal { 0 } else { fetch_up_to(goal, urgency) }
}

#[inline(never)]
fn fetch_up_to(goal: u32, urgency: Urgency) -> u32 {
    loop {
        let present = local(|cpu| cpu.stacks.reserve.len()) as u32;
        if present >= goal {
            return 0;
        }
        let (frame, from_stash) = match fetch(urgency) {
            Some(frame) => (frame, false),
            None if urgency < Urgency::Emergency => return goal - present,
            None => match take_stash() {
                Some(frame) => (frame, true),
                None => return goal - present,
            },
        };
        change(|stacks| {
            bump(if from_stash { &stacks.counters.stashed } else { &stacks.counters.fetched }, 1);
            stacks.reserve.push(frame);
        });
    }
}

fn take_stash() -> Option<FrameNumber> {
    STASH.lock().pop()
}

/// Fills the emergency stash, which may take a while when memory is short.
pub(crate) fn fill_stash() {
    let wanted = 8 + 2 * machine::cpu::count();
    while STASH.lock().len() < wanted {
        let Ok(frame) = allocate::allocate(Purpose::KernelStack, Zeroed::Yes, Urgency::Atomic) else {
            return;
        };
        let stash = STASH.lock();
        if stash.is_full() {
            drop(stash);
            allocate::free(frame, Purpose::KernelStack);
            return;
        }
        stash.push(frame);
    }
}

/// Brings this CPU's reserve to its target, and gives back what is too much: for idle moments and after faults.
pub(crate) fn balance() {
    let _on_this_cpu = machine::preempt::disable();
    fill_to(target(), Urgency::Atomic);
    while let Some(frame) = change(take_surplus) {
        allocate::free(frame, Purpose::KernelStack);
    }
}

/// Whether a growth fault on this CPU has asked for a refill since the last time.
pub(crate) fn take_request() -> bool {
    local(|cpu| cpu.stacks.refill_wanted.swap(false, Relaxed))
}

fn take_surplus(stacks: &CpuStacks) -> Option<FrameNumber> {
    let slot = stacks.running.load(Relaxed);
    let running = (slot != NO_SLOT).then(|| descriptor::at(slot).window(slot));
    let surplus = admission::surplus(stacks.reserve.len() as u32, target(), running.as_ref());
    if surplus > 0 { stacks.reserve.pop() } else { None }
}

/// Fills the reserve of a CPU that has not started yet; false when there is not enough memory for it.
pub(crate) fn fill_for(stacks: &CpuStacks) -> bool {
    while (stacks.reserve.len() as u32) < target().max(admission::RESERVE_MIN) {
        let Ok(frame) = allocate::allocate(Purpose::KernelStack, Zeroed::Yes, Urgency::Atomic) else {
            return false;
        };
        stacks.reserve.push(frame);
    }
    true
}
