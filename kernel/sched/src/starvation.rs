//! Notices processors whose threads get nothing (specs/scalability.md §M4).
//!
//! The quota bounds what softirqs take at the ends of interrupts. It doesn't bound what interrupts themselves take, and an administrator may
//! have turned it off. So each processor's time is cut into slices of `SLICE_NS`, and in each is added up what interrupts took, with the softirqs
//! at their ends, and softirqs at the ends of atomic sections and in `ksoftirqd`. A slice in which that is `TAKEN_PERCENT` or more, although
//! there is another thread that wants to run, is *starved*. `SLICES` of them in a row (half a second) are a starvation: it is counted and told, and the quota lowered to
//! `QUOTA_PERCENT`, for good, until somebody writes another one.
//!
//! Slices end where the clock is read anyway, with softirqs and with the interrupts of the clock, and with each `LOOK_EVERY`th interrupt: a storm may keep
//! a softirq from its end, and the clock's interrupt away. A processor that has none of them ends no slice, and
//! however long a slice becomes by that it is one: a virtual machine that stood still for a second starves nobody.
//!
//! A processor's slices are touched by that processor only, with interrupts off.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use machine::cpu::{self, CpuId};
use machine::{interrupt, time};
use sync::{PerCpu, per_cpu};

use crate::cpu::Cpu;
use crate::statistics::cycles_to_ns;
use crate::{softirq, softirq_budget};

/// Length of a slice.
const SLICE_NS: u64 = 50_000_000;
/// Starved slices in a row that are a starvation.
const SLICES: u32 = 10;
/// Interrupts between two looks at the clock.
const LOOK_EVERY: u32 = 64;
/// What is taken of a starved slice, at least: entering and leaving interrupts is not measured.
const TAKEN_PERCENT: u64 = 95;
/// The quota that is left to softirqs after a starvation.
const QUOTA_PERCENT: u64 = 50;
/// Starvations are told at most so often.
const REPORT_NS: u64 = 10_000_000_000;

/// A processor's slices.
struct Watch {
    /// When the slice began, and what had been taken by then.
    start_ns: AtomicU64,
    start_taken_ns: AtomicU64,
    /// Starved slices in a row.
    starved: AtomicU32,
    /// Interrupts.
    interrupts: AtomicU32,
    /// What softirqs took outside of interrupts, and the part of it that were interrupts meanwhile.
    deferred_ns: AtomicU64,
    interrupts_meanwhile_cycles: AtomicU64,
    /// Starvations.
    count: AtomicU64,
}

impl Watch {
    const fn new() -> Self {
        Self {
            start_ns: AtomicU64::new(0),
            start_taken_ns: AtomicU64::new(0),
            starved: AtomicU32::new(0),
            interrupts: AtomicU32::new(0),
            deferred_ns: AtomicU64::new(0),
            interrupts_meanwhile_cycles: AtomicU64::new(0),
            count: AtomicU64::new(0),
        }
    }

    /// Ends a slice; returns whether it is the last one of a starvation. `taken_ns` is what was taken since the processor started.
    fn end_slice(&self, now_ns: u64, taken_ns: u64, is_wanted: bool) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.start_ns.swap(now_ns, Relaxed));
        let taken_ns = taken_ns.saturating_sub(self.start_taken_ns.swap(taken_ns, Relaxed));
        let is_starved = is_wanted && taken_ns >= elapsed_ns / 100 * TAKEN_PERCENT;
        let starved = if is_starved { self.starved.load(Relaxed) + 1 } else { 0 };
        self.starved.store(if starved == SLICES { 0 } else { starved }, Relaxed);
        starved == SLICES
    }
}

static WATCHES: PerCpu<Watch> = per_cpu!(Watch::new());
/// When a starvation was last told.
static REPORTED_NS: AtomicU64 = AtomicU64::new(0);

/// Ends this processor's slice if it is over. With interrupts off, where the time is known.
#[inline]
pub(crate) fn look(now_ns: u64) {
    let watch = WATCHES.of(cpu::current());
    if now_ns.saturating_sub(watch.start_ns.load(Relaxed)) >= SLICE_NS {
        end_slice(watch, now_ns);
    }
}

/// An interrupt has come; with interrupts off.
#[inline]
pub(crate) fn note_interrupt() {
    let watch = WATCHES.of(cpu::current());
    let interrupts = watch.interrupts.load(Relaxed).wrapping_add(1);
    watch.interrupts.store(interrupts, Relaxed);
    if interrupts.is_multiple_of(LOOK_EVERY) {
        look(time::now_ns());
    }
}

#[cold]
fn end_slice(watch: &Watch, now_ns: u64) {
    let interrupts = interrupt::cycles_taken() - watch.interrupts_meanwhile_cycles.load(Relaxed);
    let taken_ns = cycles_to_ns(interrupts) + watch.deferred_ns.load(Relaxed);
    let is_wanted = Cpu::this().running.load(Relaxed) > u32::from(softirq::is_handed_over());
    if !watch.end_slice(now_ns, taken_ns, is_wanted) {
        return;
    }
    watch.count.store(watch.count.load(Relaxed) + 1, Relaxed);
    let is_lowered = softirq_budget::lower_quota_percent(QUOTA_PERCENT);
    let reported_ns = REPORTED_NS.load(Relaxed);
    let is_due = reported_ns == 0 || now_ns.saturating_sub(reported_ns) >= REPORT_NS;
    if is_due && REPORTED_NS.compare_exchange(reported_ns, now_ns, Relaxed, Relaxed).is_ok() {
        log::warn!(
            "CPU {}: interrupts and softirqs left threads nothing for {} ms; softirqs may take {} % of the time{}",
            cpu::current(),
            SLICE_NS * u64::from(SLICES) / 1_000_000,
            softirq_budget::quota_percent(),
            if is_lowered { " from now on" } else { "" },
        );
    }
}

/// Softirqs that run at the end of an atomic section, or in their thread: what they take is added up here.
pub(crate) struct Deferred {
    start_ns: u64,
    interrupts_cycles: u64,
}

impl Deferred {
    /// They begin; with interrupts off. None at the end of an interrupt, whose time they are.
    pub(crate) fn begin(now_ns: u64) -> Option<Self> {
        (!interrupt::in_interrupt())
            .then(|| Self { start_ns: now_ns, interrupts_cycles: interrupt::cycles_taken() })
    }

    /// They have ended; with interrupts off, on the same processor.
    pub(crate) fn end(self, now_ns: u64) {
        let watch = WATCHES.of(cpu::current());
        let add = |sum: &AtomicU64, more| sum.store(sum.load(Relaxed) + more, Relaxed);
        add(&watch.deferred_ns, now_ns - self.start_ns);
        add(&watch.interrupts_meanwhile_cycles, interrupt::cycles_taken() - self.interrupts_cycles);
    }
}

/// How often interrupts and softirqs have starved the threads of a processor.
pub fn count(of: CpuId) -> u64 {
    WATCHES.of(of).count.load(Relaxed)
}

/// How long interrupts have kept a processor, with the softirqs at their ends.
pub fn interrupts_ns(of: CpuId) -> u64 {
    cycles_to_ns(interrupt::cycles_taken_of(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A slice of which so many percent are taken; returns whether it ends a starvation.
    fn slice(watch: &Watch, percent: u64, is_wanted: bool) -> bool {
        let taken_ns = watch.start_taken_ns.load(Relaxed) + SLICE_NS / 100 * percent;
        watch.end_slice(watch.start_ns.load(Relaxed) + SLICE_NS, taken_ns, is_wanted)
    }

    #[test]
    fn only_starved_slices_in_a_row_are_a_starvation_and_the_next_one_takes_as_many() {
        let watch = Watch::new();
        for _ in 0..2 {
            assert!((1..SLICES).all(|_| !slice(&watch, TAKEN_PERCENT, true)));
            assert!(slice(&watch, 100, true));
        }
        assert!((1..SLICES).all(|_| !slice(&watch, 100, true)));
        assert!(!slice(&watch, TAKEN_PERCENT - 1, true));
        assert!((1..SLICES).all(|_| !slice(&watch, 100, true)));
        assert!(slice(&watch, 100, true));
    }

    #[test]
    fn nobody_starves_who_does_not_want_to_run() {
        let watch = Watch::new();
        assert!((0..2 * SLICES).all(|_| !slice(&watch, 100, false)));
    }

    #[test]
    fn a_machine_that_stood_still_starves_nobody() {
        let watch = Watch::new();
        assert!(!watch.end_slice(60_000_000_000, 60_000_000_000, true));
        assert_eq!(watch.starved.load(Relaxed), 1);
    }
}
