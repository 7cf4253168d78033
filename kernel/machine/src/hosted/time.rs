//! Clocks of a hosted machine: virtual time of the group; see the back end's front page.

use std::sync::LazyLock;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::interrupt;
use super::processor::{self, NEVER};
use crate::time::VdsoParameters;

static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

/// Lets virtual time pass for the calling thread's group, and delivers what that makes due.
pub fn advance(nanoseconds: u64) {
    processor::group().advance(nanoseconds);
    interrupt::poll();
}

pub(crate) fn now_ns() -> u64 {
    processor::group().now_ns()
}

/// The cycle counter is real: it measures what code costs on the host.
pub(crate) fn cycles() -> u64 {
    START.0.elapsed().as_nanos() as u64
}

pub(crate) fn cycles_per_second() -> u64 {
    1_000_000_000
}

pub(crate) fn cycles_to_ns_since_boot(cycles: u64) -> u64 {
    cycles
}

pub(crate) fn set_deadline_ns(deadline_ns: u64) {
    processor::this().deadline_ns.store(deadline_ns, Ordering::SeqCst);
}

pub(crate) fn clear_deadline() {
    processor::this().deadline_ns.store(NEVER, Ordering::SeqCst);
}

pub(crate) fn wall_clock_boot_ns() -> u64 {
    START.1.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

pub(crate) fn vdso_parameters() -> Option<VdsoParameters> {
    None
}
