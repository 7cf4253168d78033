//! Clocks: the time-stamp counter, calibrated, and the local APIC's timer.

use crate::time::VdsoParameters;

pub(crate) fn now_ns() -> u64 {
    cycles_to_ns_since_boot(cycles())
}

#[inline(always)]
pub(crate) fn cycles() -> u64 {
    // SAFETY: reading the time-stamp counter has no side effect.
    unsafe { core::arch::x86_64::_rdtsc() }
}

pub(crate) fn cycles_per_second() -> u64 {
    1_000_000_000
}

pub(crate) fn cycles_to_ns_since_boot(cycles: u64) -> u64 {
    cycles - BOOT_CYCLES.load(core::sync::atomic::Ordering::Relaxed)
}

pub(crate) fn set_deadline_ns(_deadline_ns: u64) {}

pub(crate) fn clear_deadline() {}

pub(crate) fn wall_clock_boot_ns() -> u64 {
    0
}

pub(crate) fn vdso_parameters() -> Option<VdsoParameters> {
    None
}

static BOOT_CYCLES: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(0);

/// The cycle counter at kernel entry.
pub(crate) fn set_boot_cycles(cycles: u64) {
    BOOT_CYCLES.store(cycles, core::sync::atomic::Ordering::Relaxed);
}
