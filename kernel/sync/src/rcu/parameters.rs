//! What the command line decides about RCU. Values are set once at start-up; later loads are relaxed.
//!
//! | option | default | meaning |
//! |---|---|---|
//! | `rcu.blimit=` | 10 | callbacks in one go, while there is no flood |
//! | `rcu.qhimark=` | 10000 | callbacks on a CPU above which there is: no limit, and the grace period is forced |
//! | `rcu.qlowmark=` | 100 | callbacks on a CPU below which the flood is over |
//! | `rcu.cb=` | `throttle` | who runs callbacks: [`Policy`] |
//! | `rcu.merge_bh=1` | 0 | flavour `Bh` waits for grace periods of the classic one |
//! | `rcu.stall_timeout=` | 21000 | milliseconds after which a grace period that does not end is reported; 0: never |
//! | `rcu.unprotected=1` | 0 | no flood defence, no back pressure, no help for reclaim: to show what they are for |
//! | `rcu.trace=1` | 0 | record events from the start |

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Who runs callbacks (specs/scalability.md §J39).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Policy {
    /// Softirqs, a few at a time; in a flood the CPU's thread takes what takes longer than a softirq may.
    Throttle,
    /// The CPU's thread, all of them.
    Thread,
    /// Whoever hands them over, at once: only on a machine with one CPU, and only outside of atomic sections; the others are throttled.
    Direct,
}

/// Time that callbacks of one softirq may take in a flood before the thread takes over.
pub const SOFTIRQ_NS: u64 = 3_000_000;

static BATCH: AtomicU64 = AtomicU64::new(10);
static HIGH_MARK: AtomicU64 = AtomicU64::new(10_000);
static LOW_MARK: AtomicU64 = AtomicU64::new(100);
static POLICY: AtomicU32 = AtomicU32::new(Policy::Throttle as u32);
static MERGE_BH: AtomicU32 = AtomicU32::new(0);
static STALL_MS: AtomicU64 = AtomicU64::new(21_000);
static UNPROTECTED: AtomicU32 = AtomicU32::new(0);

/// The options.
pub const OPTIONS: [&str; 8] = [
    "rcu.blimit",
    "rcu.qhimark",
    "rcu.qlowmark",
    "rcu.cb",
    "rcu.merge_bh",
    "rcu.stall_timeout",
    "rcu.unprotected",
    "rcu.trace",
];

/// Sets an option of [`OPTIONS`]; returns whether the value makes sense.
pub fn set_option(name: &str, value: &str) -> bool {
    let number = value.parse::<u64>().ok();
    let switch = number.filter(|&number| number <= 1);
    let set = |target: &AtomicU64, number: Option<u64>| {
        number.is_some_and(|number| {
            target.store(number, Relaxed);
            true
        })
    };
    let turn = |target: &AtomicU32| {
        switch.is_some_and(|on| {
            target.store(on as u32, Relaxed);
            true
        })
    };
    match name {
        "rcu.blimit" => set(&BATCH, number.filter(|&number| number > 0)),
        "rcu.qhimark" => set(&HIGH_MARK, number.filter(|&number| number > 0)),
        "rcu.qlowmark" => set(&LOW_MARK, number.filter(|&number| number > 0)),
        "rcu.cb" => {
            let policy = match value {
                "throttle" => Policy::Throttle,
                "kthread" => Policy::Thread,
                "direct" if machine::cpu::count() == 1 => Policy::Direct,
                _ => return false,
            };
            set_policy(policy);
            true
        }
        "rcu.merge_bh" => turn(&MERGE_BH),
        "rcu.stall_timeout" => set(&STALL_MS, number),
        "rcu.unprotected" => turn(&UNPROTECTED),
        "rcu.trace" => switch.is_some_and(|on| on == 0 || super::trace::enable()),
        _ => false,
    }
}

/// Callbacks in one go, while there is no flood.
pub fn batch_limit() -> u64 {
    BATCH.load(Relaxed)
}

/// Callbacks on a CPU above which there is a flood.
pub fn high_mark() -> u64 {
    HIGH_MARK.load(Relaxed)
}

/// Callbacks on a CPU below which the flood is over.
pub fn low_mark() -> u64 {
    LOW_MARK.load(Relaxed)
}

/// Who runs callbacks.
pub fn policy() -> Policy {
    match POLICY.load(Relaxed) {
        1 => Policy::Thread,
        2 => Policy::Direct,
        _ => Policy::Throttle,
    }
}

/// Decides who runs callbacks; from now on. [`Policy::Direct`] counts as [`Policy::Throttle`] where there is more than one CPU.
pub fn set_policy(policy: Policy) {
    POLICY.store(policy as u32, Relaxed);
}

/// Whether flavour `Bh` waits for grace periods of the classic one.
pub fn merges_bh() -> bool {
    MERGE_BH.load(Relaxed) != 0
}

/// Age at which a grace period is reported; 0: never.
pub fn stall_ns() -> u64 {
    STALL_MS.load(Relaxed) * 1_000_000
}

/// Sets the age at which a grace period is reported.
pub fn set_stall_ms(milliseconds: u64) {
    STALL_MS.store(milliseconds, Relaxed);
}

/// Whether the defences are on.
pub fn is_protected() -> bool {
    UNPROTECTED.load(Relaxed) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_values_are_refused() {
        for (name, value) in [
            ("rcu.blimit", "0"),
            ("rcu.blimit", "many"),
            ("rcu.cb", "sometimes"),
            ("rcu.merge_bh", "2"),
            ("rcu.other", "1"),
        ] {
            assert!(!set_option(name, value), "{name}={value}");
        }
        assert!(set_option("rcu.blimit", "10"));
        assert_eq!(batch_limit(), 10);
    }
}
