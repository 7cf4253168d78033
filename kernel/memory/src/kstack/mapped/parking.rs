//! Threads whose stack must grow when there is no frame (specs/kernel-stacks.md §M7, the backstop).
//!
//! Admission sees to it that this does not happen; it is exercised by injected failures (`kstack.fail_growth`). A thread
//! that may sleep is *parked*: its registers go from the page-fault stack to a [`Place`], not to its own stack, which has
//! no room, and the CPU switches to another thread and never comes back to the fault. The thread stays runnable. The
//! dispatcher admits it, here or elsewhere, when the reserve holds what its window may need; then [`prepare`] backs
//! its stack as far as it wanted, and writes the registers there together with what a switch pops
//! (`machine::context::resume_parked_at`), so that the switch to it is like any other.
//!
//! ```text
//! RUNNING → (growth fault, no frame) → PARKED, runnable → (admitted: frames) → RUNNING, restarts the instruction
//! ```
//!
//! A thread that may not sleep (a lock held, interrupts off) cannot be parked: the kernel panics and says so.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::VirtAddr;
use machine::context::{self, KernelContext};
use machine::{TrapFrame, fault};

use super::super::geometry::Place as Spot;
use super::super::parameters;
use super::super::per_cpu::{CpuStacks, NO_SLOT};
use super::super::wake_service;
use super::descriptor::{self, PARKED};
use super::{grow, overflow};
use crate::frame::per_cpu::bump;
use crate::local;

/// Threads that can be parked at a time. The reserve is filled before a thread runs, so there is at most one for each CPU
/// whose reserve was robbed; more only when failures are injected.
const PLACES_MAX: usize = 64;

/// Bytes of its stack that a parked thread needs beneath its registers, for completing the switch back to it.
const ROOM_BYTES: u64 = if cfg!(debug_assertions) { 4096 } else { 1024 };

/// Where a parked thread's registers are.
struct Place {
    taken: AtomicBool,
    /// The address that the thread's stack is to be backed down to, at least.
    wanted: AtomicU64,
    frame: UnsafeCell<MaybeUninit<TrapFrame>>,
}

// SAFETY: a place that is taken belongs to the thread parked there: it is written by the CPU that parks the thread and read
// by the one that admits it, and the run queue's lock orders the two.
unsafe impl Sync for Place {}

static PLACES: [Place; PLACES_MAX] = [const {
    Place {
        taken: AtomicBool::new(false),
        wanted: AtomicU64::new(0),
        frame: UnsafeCell::new(MaybeUninit::uninit()),
    }
}; PLACES_MAX];

/// A `fn() -> !`, or null.
static LEAVE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// An `extern "C" fn()`, or null.
static COMPLETE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Growth faults, counted for the injected failures.
static GROWTHS: AtomicU32 = AtomicU32::new(0);

/// Sets what switches away from a thread that has been parked (on the page-fault stack, with interrupts off), and what such
/// a thread calls first when it has been switched to (on its own stack, with interrupts off).
pub fn set_park_hooks(leave: fn() -> !, complete: extern "C" fn()) {
    // Release: pairs with the Acquire in `starved` and `prepare`.
    LEAVE.store(leave as *mut (), Release);
    COMPLETE.store(complete as *mut (), Release);
}

/// Whether this growth fault is one of those that shall find no frame.
pub(crate) fn is_injected() -> bool {
    let every = parameters::fail_growth();
    every != 0 && GROWTHS.fetch_add(1, Relaxed).is_multiple_of(every)
}

/// The hook for faults without a frame: see the theory of this file.
pub(crate) fn starved(frame: &TrapFrame, address: VirtAddr, may_sleep: bool) -> ! {
    let leave = LEAVE.load(Acquire);
    let stacks = local::of(machine::cpu::current()).map(|memory| &memory.stacks);
    let running = stacks.map(|stacks| (stacks, stacks.running.load(Relaxed)));
    let Some((stacks, slot)) = running.filter(|(_, slot)| *slot != NO_SLOT && may_sleep && !leave.is_null())
    else {
        fault::report_kernel_bug("no frame for a kernel stack in an atomic section", frame, address);
    };
    let known = descriptor::at(slot);
    let lowest = context::resumption_address(frame) - ROOM_BYTES;
    if lowest < known.window(slot).bottom() {
        overflow::overflow(frame, address);
    }
    let free = |place: &Place| place.taken.compare_exchange(false, true, Acquire, Relaxed).is_ok();
    let Some(index) = PLACES.iter().position(free) else {
        fault::report_kernel_bug("no place to park a thread whose stack must grow", frame, address);
    };
    PLACES[index].wanted.store(lowest.min(address.as_u64()), Relaxed);
    // SAFETY: the place was free and is ours now.
    unsafe { (*PLACES[index].frame.get()).write(*frame) };
    known.parked.store(index as u32, Relaxed);
    known.set_flag(PARKED, true);
    bump(&stacks.counters.parked, 1);
    wake_service();
    // SAFETY: a non-null pointer was made from a `fn() -> !` in `set_park_hooks`, the only writer.
    let leave = unsafe { core::mem::transmute::<*mut (), fn() -> !>(leave) };
    // SAFETY: the thread does not continue from this fault but from the place; `leave` does not return.
    unsafe { fault::abandon_page_fault() };
    leave()
}

/// Registers of the thread that is parked on the stack of this slot.
fn registers(slot: u32) -> &'static TrapFrame {
    let place = &PLACES[descriptor::at(slot).parked.load(Relaxed) as usize];
    debug_assert!(place.taken.load(Relaxed));
    // SAFETY: the place was filled when the stack became PARKED, and stays as it is until `prepare` frees it.
    unsafe { (*place.frame.get()).assume_init_ref() }
}

/// The thread on the stack of this slot, if it is parked, was switched away from: makes it continue from the place.
///
/// # Safety
/// `context` is that thread's, which runs nowhere.
#[inline]
pub(crate) unsafe fn settle(slot: u32, context: &mut KernelContext) {
    if descriptor::at(slot).has_flag(PARKED) {
        // SAFETY: `prepare` writes what the thread continues from before it is switched to.
        unsafe { context.park(registers(slot)) };
    }
}

/// The thread parked on the stack of this slot has been admitted on this CPU: gives it what it waits for. Interrupts are off.
#[inline(never)]
pub(crate) fn prepare(stacks: &CpuStacks, slot: u32) {
    let known = descriptor::at(slot);
    let window = known.window(slot);
    let place = &PLACES[known.parked.load(Relaxed) as usize];
    if let Spot::Unbacked(page) = window.place(place.wanted.load(Relaxed)) {
        let backed = grow::back_to(stacks, slot, page);
        debug_assert!(backed, "the thread was admitted");
    }
    // SAFETY: the only writer of `COMPLETE` stored an `extern "C" fn()`, before any thread could be parked.
    let complete = unsafe { core::mem::transmute::<*mut (), extern "C" fn()>(COMPLETE.load(Acquire)) };
    // SAFETY: the thread runs nowhere, its stack belongs to this CPU and was backed far enough above.
    unsafe { context::resume_parked_at(registers(slot), complete) };
    known.set_flag(PARKED, false);
    place.taken.store(false, Release);
}
