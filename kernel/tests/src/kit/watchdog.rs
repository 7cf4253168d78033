//! Tells a deadlock from a slow host.
//!
//! The threads of a test note their progress; who waits asks whether there was any. A CPU that waits with interrupts off asks
//! from inside its own loop (a time window's hook can): there is nobody else to ask when all CPUs wait for each other.

use core::sync::atomic::{AtomicU64, Ordering};

use ::machine::time;

/// The last time that something went on.
#[derive(Debug)]
pub(crate) struct Watchdog {
    fed_ns: AtomicU64,
}

impl Watchdog {
    /// One that has not been fed.
    pub(crate) const fn new() -> Watchdog {
        Watchdog { fed_ns: AtomicU64::new(0) }
    }

    /// Something went on.
    pub(crate) fn feed(&self) {
        self.fed_ns.store(time::now_ns(), Ordering::Relaxed);
    }

    /// Whether nothing has gone on for so long.
    pub(crate) fn barks(&self, patience_ns: u64) -> bool {
        // Another CPU may have fed it since this one looked at the clock.
        time::now_ns().saturating_sub(self.fed_ns.load(Ordering::Relaxed)) > patience_ns
    }
}
