//! Clocks: monotonic nanoseconds since boot, the per-processor deadline timer, and the wall clock at boot.
//!
//! All processors agree on [`now_ns`]. The deadline timer is one-shot: it fires once at or shortly after the time
//! set and calls the handler on the same processor in interrupt context. A deadline in the past fires at once.

use crate::backend;
use crate::hook::Hook;

static EXPIRED: Hook = Hook::new();

/// What a user-space clock needs to compute [`now_ns`] from the time-stamp counter:
/// `base_ns + ((tsc - base_cycles) * multiplier >> shift)`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VdsoParameters {
    /// Counter value at which the clock read `base_ns`.
    pub base_cycles: u64,
    /// Nanoseconds since boot at `base_cycles`.
    pub base_ns: u64,
    /// Nanoseconds per cycle, scaled by `1 << shift`.
    pub multiplier: u64,
    /// Scale of the multiplier, below 64.
    pub shift: u32,
}

/// Nanoseconds since the kernel was entered. Never goes backwards, on any processor.
#[inline]
pub fn now_ns() -> u64 {
    backend::time::now_ns()
}

/// Steps of the coarse clock, in nanoseconds: those of a Linux with 250 ticks a second.
pub const COARSE_NS: u64 = 4_000_000;

/// The same in steps of [`COARSE_NS`]: what does not ask for more, such as the times of files, changes that seldom.
#[inline]
pub fn coarse_now_ns() -> u64 {
    now_ns() / COARSE_NS * COARSE_NS
}

/// The processor's cycle counter, for measuring short intervals.
#[inline(always)]
pub fn cycles() -> u64 {
    backend::time::cycles()
}

/// Cycles of [`cycles`] per second.
pub fn cycles_per_second() -> u64 {
    backend::time::cycles_per_second()
}

/// Sets this processor's deadline, replacing the former one. Call with preemption disabled.
#[inline]
pub fn set_deadline_ns(deadline_ns: u64) {
    backend::time::set_deadline_ns(deadline_ns);
}

/// Cancels this processor's deadline.
#[inline]
pub fn clear_deadline() {
    backend::time::clear_deadline();
}

/// Sets what runs when a deadline has passed, in interrupt context on the processor that set it.
pub fn set_handler(handler: fn()) {
    EXPIRED.set(handler);
}

/// Real time (nanoseconds since 1970, UTC) at which [`now_ns`] was 0.
pub fn wall_clock_boot_ns() -> u64 {
    backend::time::wall_clock_boot_ns()
}

/// The parameters for user-space clock reading; None where the counter can't be read from user space. They can
/// change when the calibration gets finer; see [`set_vdso_hook`].
pub fn vdso_parameters() -> Option<VdsoParameters> {
    backend::time::vdso_parameters()
}

static VDSO_CHANGED: Hook = Hook::new();

/// Sets what is called after [`vdso_parameters`] has changed.
pub fn set_vdso_hook(hook: fn()) {
    VDSO_CHANGED.set(hook);
}

/// The parameters have changed; called by the back end.
#[cfg_attr(not(target_os = "none"), allow(dead_code, reason = "the hosted clock needs no calibration"))]
pub(crate) fn vdso_changed() {
    VDSO_CHANGED.call();
}

/// The deadline has passed; called by the back end.
pub(crate) fn expired() {
    EXPIRED.call();
}
