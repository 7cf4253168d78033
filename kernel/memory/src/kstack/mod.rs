//! Kernel stacks of which only the used pages exist (specs/kernel-stacks.md, part M).
//!
//! A [`KernelStack`] has a window of virtual pages; the top one is mapped from the start, the others when they are
//! touched, by a page fault that takes a frame from a reserve of the CPU. The parts:
//!
//! - `geometry`: where stacks lie, and what a fault address means (pure).
//! - `vacancy`: which slots no stack has (pure).
//! - `admission`: why growing never fails (pure); `trim`: what a stack can do without (pure).
//! - `parameters`: the boot parameters and sysctls; `statistics`: what can be seen.
//! - `mapped`: the real stacks; `hosted`: plain memory in their place.
//! - `exercise`: deep recursion on purpose, for tests and the test device.
//!
//! The dispatcher's part is in the theory of `mapped::switch`: [`admit`], switch, [`left`]. A thread, `kstackd`, calls
//! [`service`] when woken ([`set_service_wakeup`]) and [`trim()`] every [`trim_secs`] seconds; the idle loop calls
//! [`refill`].

#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "stacks of a hosted machine do not grow; tests call the decisions")
)]
mod admission;
mod exercise;
pub mod geometry;
#[cfg(not(target_os = "none"))]
mod hosted;
#[cfg(target_os = "none")]
mod mapped;
mod parameters;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "stacks of a hosted machine do not grow; tests call the decisions")
)]
mod per_cpu;
mod statistics;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "stacks of a hosted machine do not grow; tests call the decisions")
)]
mod trim;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "stacks of a hosted machine are plain memory; tests call the decisions")
)]
mod vacancy;

use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Release},
};

#[cfg(not(target_os = "none"))]
use hosted as backend;
#[cfg(target_os = "none")]
use mapped as backend;

pub use backend::{
    KernelStack, WholeWindow, admit, admit_start_up_stack, begin_freeing, expect_overflow, forget_own_depth,
    free_unused, last_report, left, left_start_up_stack, own_depth, own_window, refill, refill_if_wanted,
    service, set_kill_hook, set_name_hook, set_refill_request, settle_pins, trim, trim_one, untrimmed_on,
    write_own_trace,
};
pub(crate) use backend::{mapped_pages, prepare, totals, write_windows};
#[cfg(target_os = "none")]
pub use backend::{set_measured_share, set_park_hooks};
pub use exercise::{End, Exercise, bytes_in_use, exercise, exercise_poked, touch_guard};
#[cfg(target_os = "none")]
pub use exercise::{interrupt_at_edge, touch_beneath};
pub use parameters::{
    Mode, OverflowPolicy, Parameters, mode, overflow_policy, parameters, pin_realtime, set_fail_growth,
    set_fail_reserve, set_overflow_policy, set_pin_realtime, set_trim_secs, trim_secs,
};
pub(crate) use per_cpu::CpuStacks;
pub use statistics::{DEPTH_NAMES, Totals, mapped_kib, write_report};

/// A control block at the top of a stack takes at most this: the rest of the page is the stack of a sleeping thread.
pub const CONTROL_BLOCK_BYTES_MAX: usize = 3072;

/// Why a stack has all its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinReason {
    /// Its thread is a real-time thread.
    Realtime,
    /// Its process has locked its memory.
    Locked,
}

/// What writes the name of the thread with a given number, without locks.
pub type NameHook = fn(u64, &mut dyn core::fmt::Write) -> core::fmt::Result;

/// A `fn()`, or null.
static SERVICE_WAKEUP: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what wakes the thread that calls [`service`]. Called in any context.
pub fn set_service_wakeup(wakeup: fn()) {
    // Release: pairs with the Acquire in `wake_service`.
    SERVICE_WAKEUP.store(wakeup as *mut (), Release);
}

/// Asks for [`service`].
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "stacks of a hosted machine need no service"))]
pub(crate) fn wake_service() {
    let pointer = SERVICE_WAKEUP.load(Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn()` in `set_service_wakeup`, the only writer.
        let wakeup = unsafe { core::mem::transmute::<*mut (), fn()>(pointer) };
        wakeup();
    }
}

/// A stack that a thread has, as the debugger sees it.
#[derive(Clone, Copy, Debug)]
pub struct StackView {
    /// The number of its slot.
    pub slot: u32,
    /// The thread, as the scheduler numbers it.
    pub owner: u64,
    /// Where the scheduler keeps the thread; 0 for none yet.
    pub control: u64,
    /// The CPU that runs it.
    pub running_on: Option<usize>,
    /// Stack pointer when it was last switched away from.
    pub saved_pointer: u64,
    /// Pages that it has, and that it may have.
    pub pages: (u32, u32),
    /// From the lowest address of its window up to the first above.
    pub range: (u64, u64),
}

/// Calls `visit` for each stack that a thread has, without locks: for the debugger, while everything stands still.
pub fn for_each_stack(visit: &mut dyn FnMut(&StackView)) {
    backend::for_each_stack(visit);
}

/// Sums over all CPUs.
pub fn statistics() -> Totals {
    totals()
}

/// Start-up on the boot processor, once there are frames.
pub(crate) fn initialize() {
    parameters::set(Parameters::parse(|key| machine::boot::info().option(key)));
    backend::initialize();
}
