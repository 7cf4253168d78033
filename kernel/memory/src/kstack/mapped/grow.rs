//! Growing the running thread's stack (specs/kernel-stacks.md §M5 step 3).
//!
//! [`grow`] runs on the page-fault stack, with interrupts off, at any instruction of the running thread: also while it
//! holds spin locks or is inside the allocator. It takes no lock, allocates nothing and logs nothing: it pops frames
//! from the CPU's reserve, writes page-table entries and counts. All that it touches is mapped for good. The reserve is
//! filled again at the end of the next interrupt, and before the next switch in any case.

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::VirtAddr;
use machine::fault::StackFault;

use super::super::geometry::{FaultClass, PAGE_BYTES, Place, Window, classify, slot_of};
use super::super::parameters::{Mode, mode};
use super::super::per_cpu::{CpuStacks, NO_SLOT};
use super::descriptor::ANY_PIN;
use super::{descriptor, parking, slots};
use crate::frame::per_cpu::bump;
use crate::kernel_map;
use crate::local;

/// The fault hook: see the theory of this file.
pub(crate) fn grow(fault: VirtAddr, stack_pointer: VirtAddr, may_sleep: bool) -> StackFault {
    let address = fault.as_u64();
    if slot_of(address).is_none() {
        return StackFault::NotStack;
    }
    let Some(memory) = local::of(machine::cpu::current()) else {
        return StackFault::Foreign;
    };
    let stacks = &memory.stacks;
    let slot = owner_slot(stacks, address);
    let window = (slot != NO_SLOT).then(|| descriptor::at(slot).window(slot));
    match classify(0, address, stack_pointer.as_u64(), window.as_ref()) {
        FaultClass::NotAStack => StackFault::NotStack,
        FaultClass::Overflow => StackFault::Overflow,
        // A double fault has backed the page meanwhile.
        FaultClass::ForeignStack if mode() == Mode::DoubleFault && is_backed(window.as_ref(), address) => {
            StackFault::Present
        }
        FaultClass::ForeignStack => StackFault::Foreign,
        FaultClass::Grow { last, .. } => {
            if may_sleep && parking::is_injected() {
                return StackFault::Starved;
            }
            if !back_to(stacks, slot, last) {
                bump(&stacks.counters.without_frame, 1);
                return StackFault::Starved;
            }
            let known = descriptor::at(slot);
            known.faults.store(known.faults.load(Relaxed).wrapping_add(1), Relaxed);
            bump(&stacks.counters.faults, 1);
            stacks.remember(address, slots::entry_value(address & !(PAGE_BYTES - 1)));
            request_refill(stacks);
            StackFault::Grown
        }
    }
}

/// The stack of this CPU that an address belongs to: the one that runs, or, for the moment of a switch, the one that
/// is being left.
fn owner_slot(stacks: &CpuStacks, address: u64) -> u32 {
    let leaving = stacks.leaving.load(Relaxed);
    if leaving != NO_SLOT && descriptor::at(leaving).window(leaving).contains(address) {
        return leaving;
    }
    stacks.running.load(Relaxed)
}

/// Backs the pages of a stack of this CPU down to page `last`; false when the reserve is too small. Interrupts are off.
pub(crate) fn back_to(stacks: &CpuStacks, slot: u32, last: u32) -> bool {
    let known = descriptor::at(slot);
    let window = known.window(slot);
    for page in window.mapped..=last {
        let Some(frame) = stacks.reserve.pop() else { return false };
        slots::map_page(window.page_address(page), frame, kernel_map::DATA);
        known.set_mapped(page + 1);
    }
    let pages = u64::from(last + 1 - window.mapped);
    bump(&stacks.counters.pages_grown, pages);
    let mapped = &stacks.counters.mapped;
    mapped.store(mapped.load(Relaxed) + pages as i64, Relaxed);
    true
}

fn is_backed(window: Option<&Window>, address: u64) -> bool {
    window.is_some_and(|window| {
        window.contains(address)
            && matches!(window.place(address), Place::Backed(page) if page < window.mapped)
    })
}

/// Asks for a refill of the reserve at the end of the next interrupt.
fn request_refill(stacks: &CpuStacks) {
    let request = REFILL_REQUEST.load(Acquire);
    if !request.is_null() && !stacks.refill_wanted.swap(true, Relaxed) {
        // SAFETY: a non-null pointer was made from a `fn()` in `set_refill_request`, the only writer.
        let request = unsafe { core::mem::transmute::<*mut (), fn()>(request) };
        request();
    }
}

/// A `fn()`, or null.
static REFILL_REQUEST: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what makes [`super::refill_if_wanted`] be called on this CPU soon. It is called in a page fault, at any instruction.
pub fn set_refill_request(request: fn()) {
    // Release: pairs with the Acquire in `request_refill`.
    REFILL_REQUEST.store(request as *mut (), Release);
}

/// Backs the running thread's stack down to an address, from the reserve; false if fewer than `room` bytes of its window
/// lie beneath the address. Start-up code runs on other stacks, which are not judged.
///
/// For callers on another stack, with interrupts off: the page-fault code, before it moves a frame to the thread's
/// stack. Code on the stack itself uses [`touch_down_to`].
pub(crate) fn ensure(address: u64, room: u64) -> bool {
    let Some(memory) = local::of(machine::cpu::current()) else { return true };
    let slot = memory.stacks.running.load(Relaxed);
    if slot_of(address).is_none() || slot == NO_SLOT {
        return true;
    }
    let window = descriptor::at(slot).window(slot);
    if address < window.bottom() + room || !window.contains(address) {
        return false;
    }
    if let Place::Unbacked(page) = window.place(address)
        && !back_to(&memory.stacks, slot, page)
    {
        // The copy will fault, in a context that cannot be parked: the report comes from there.
        bump(&memory.stacks.counters.without_frame, 1);
    }
    true
}

/// Backs all of the stack that runs on this CPU if it is to be pinned. On another stack than that, interrupts off.
pub(crate) fn pin_running() {
    let Some(memory) = local::of(machine::cpu::current()) else { return };
    let slot = memory.stacks.running.load(Relaxed);
    if slot != NO_SLOT && descriptor::at(slot).has_flag(ANY_PIN) {
        pin(&memory.stacks, slot);
    }
}

/// Backs all of a stack that belongs to this CPU and that this code does not run on. The reserve suffices, since the
/// stack was admitted. In mode `lend` what is lent already stays lent until the next switch.
pub(crate) fn pin(stacks: &CpuStacks, slot: u32) {
    let window = descriptor::at(slot).window(slot);
    if window.growable() > 0 && !back_to(stacks, slot, window.mapped + window.growable() - 1) {
        bump(&stacks.counters.without_frame, 1);
    }
}

fn running_window(stacks: &CpuStacks, address: u64) -> Option<(u32, Window)> {
    slot_of(address)?;
    let slot = stacks.running.load(Relaxed);
    if slot == NO_SLOT {
        return None;
    }
    let window = descriptor::at(slot).window(slot);
    window.contains(address).then_some((slot, window))
}

/// Backs the caller's own stack down to an address, by touching it. Touching rather than taking frames from the
/// reserve, because the code that does the latter may itself grow the stack at any instruction.
#[inline]
pub(crate) fn touch_down_to(address: u64) {
    let Some(memory) = local::of(machine::cpu::current()) else { return };
    let Some((_, window)) = running_window(&memory.stacks, address) else { return };
    if let Place::Unbacked(_) = window.place(address) {
        let pointer: *const u8 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the address lies in the window of the stack that this code runs on, below what is in use. The fault
        // that the access raises backs it; what is read there does not matter.
        let _ = unsafe { pointer.read_volatile() };
    }
}

/// The window of the stack that this code runs on, if it is a thread's.
pub fn own_window() -> Option<Window> {
    let marker = 0u8;
    let _preemption_off = machine::preempt::disable();
    let memory = local::of(machine::cpu::current())?;
    Some(running_window(&memory.stacks, (&raw const marker).addr() as u64)?.1)
}

/// The lowest mapped address of the stack that this code runs on, leaving out the bottom page of layout A.
pub(crate) fn lowest_mapped() -> Option<u64> {
    own_window().map(|window| window.top() - u64::from(window.mapped) * PAGE_BYTES)
}
