//! Clocks of a hosted machine, from the process's monotonic clock. There is no deadline interrupt yet.

use crate::time::VdsoParameters;
use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

static START: LazyLock<(Instant, SystemTime)> = LazyLock::new(|| (Instant::now(), SystemTime::now()));

pub(crate) fn now_ns() -> u64 {
    START.0.elapsed().as_nanos() as u64
}

pub(crate) fn cycles() -> u64 {
    now_ns()
}

pub(crate) fn cycles_per_second() -> u64 {
    1_000_000_000
}

pub(crate) fn cycles_to_ns_since_boot(cycles: u64) -> u64 {
    cycles
}

pub(crate) fn set_deadline_ns(deadline_ns: u64) {
    if deadline_ns <= now_ns() {
        crate::time::expired();
    }
}

pub(crate) fn clear_deadline() {}

pub(crate) fn wall_clock_boot_ns() -> u64 {
    START.1.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

pub(crate) fn vdso_parameters() -> Option<VdsoParameters> {
    None
}
