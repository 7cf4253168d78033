//! How much of a CPU softirqs may take from programs (specs/scalability.md §M4).
//!
//! Time is cut into windows of `window` (10 ms). In each, softirqs that run where interrupts end may use `quota` percent of
//! it (70); then the CPU's `ksoftirqd` takes over, which competes as an ordinary thread, until it finds nothing pending. While it is
//! at it, only those softirqs still run where interrupts end that others wait for and that are bounded by themselves: timers, the scheduler's and
//! RCU's; for half of the quota at most. So under any flood a program has at least the rest of every window to share with `ksoftirqd`.
//!
//! A quota of 100 percent turns all this off; `softirq.quota=` on the command line and `/proc/sys/kernel/softirq_quota_pct` set it.
//!
//! A CPU's window is touched by that CPU only, with interrupts off.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

static WINDOW_NS: AtomicU64 = AtomicU64::new(10_000_000);
static QUOTA_PERCENT: AtomicU64 = AtomicU64::new(70);

/// Length of the windows, in microseconds.
pub fn window_us() -> u64 {
    WINDOW_NS.load(Relaxed) / 1_000
}

/// Sets the length of the windows.
pub fn set_window_us(microseconds: u64) {
    WINDOW_NS.store(microseconds.max(1) * 1_000, Relaxed);
}

/// What softirqs may use of a window, in percent; 100: all.
pub fn quota_percent() -> u64 {
    QUOTA_PERCENT.load(Relaxed)
}

/// Sets what softirqs may use of a window.
pub fn set_quota_percent(percent: u64) {
    QUOTA_PERCENT.store(percent.clamp(1, 100), Relaxed);
}

/// Lowers what softirqs may use of a window to so much; returns whether it was more.
pub(crate) fn lower_quota_percent(percent: u64) -> bool {
    QUOTA_PERCENT.fetch_min(percent, Relaxed) > percent
}

/// Which softirqs may run where an interrupt ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// All.
    All,
    /// Those that others wait for.
    Urgent,
    /// None.
    Nothing,
}

/// A CPU's window.
pub(crate) struct Window {
    start_ns: AtomicU64,
    used_ns: AtomicU64,
    /// How often something was left to the thread because the quota was used up.
    refusals: AtomicU64,
}

impl Window {
    pub(crate) const fn new() -> Self {
        Self { start_ns: AtomicU64::new(0), used_ns: AtomicU64::new(0), refusals: AtomicU64::new(0) }
    }

    /// What may run now, where the thread has taken over or has not.
    pub(crate) fn allowance(&self, now_ns: u64, is_handed_over: bool) -> Allowance {
        let (window_ns, percent) = (WINDOW_NS.load(Relaxed), quota_percent());
        if now_ns.saturating_sub(self.start_ns.load(Relaxed)) >= window_ns {
            self.start_ns.store(now_ns, Relaxed);
            self.used_ns.store(0, Relaxed);
        }
        let (used_ns, quota_ns) = (self.used_ns.load(Relaxed), window_ns / 100 * percent);
        let is_used_up = percent < 100 && used_ns >= if is_handed_over { quota_ns / 2 } else { quota_ns };
        if is_used_up {
            self.refusals.store(self.refusals.load(Relaxed) + 1, Relaxed);
        }
        match (is_used_up, is_handed_over) {
            (true, _) => Allowance::Nothing,
            (false, true) => Allowance::Urgent,
            (false, false) => Allowance::All,
        }
    }

    /// Softirqs have run for so long.
    pub(crate) fn charge(&self, nanoseconds: u64) {
        self.used_ns.store(self.used_ns.load(Relaxed) + nanoseconds, Relaxed);
    }

    /// How often something was left to the thread because the quota was used up.
    pub(crate) fn refusals(&self) -> u64 {
        self.refusals.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quota_is_for_all_or_half_of_it_for_urgent_ones_until_the_window_ends() {
        let window = Window::new();
        let start_ns = 1_000_000_000;
        assert_eq!(window.allowance(start_ns, false), Allowance::All);
        window.charge(3_499_999);
        assert_eq!(window.allowance(start_ns + 4_000_000, true), Allowance::Urgent);
        window.charge(1);
        assert_eq!(window.allowance(start_ns + 4_000_000, true), Allowance::Nothing);
        assert_eq!(window.allowance(start_ns + 4_000_000, false), Allowance::All);
        window.charge(3_500_000);
        assert_eq!(window.allowance(start_ns + 9_999_999, false), Allowance::Nothing);
        assert_eq!(window.refusals(), 2);
        assert_eq!(window.allowance(start_ns + 10_000_000, false), Allowance::All);
    }
}
