//! What RCU counts: the material of the paper's Figures 7 and 8.
//!
//! Grace periods are counted by who ends them, on shared words, which is as rare as they are. All the rest is
//! counted per CPU. Softirqs are counted in windows of 4 ms by each CPU; a window is closed by the first softirq after it, so
//! windows without softirqs cost nothing and are not counted.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use machine::cpu::CpuId;

use super::flavour::{FLAVOURS, Kind};
use super::histogram::{Histogram, Summary};
use super::trace::{self, Event};
use crate::{PerCpu, per_cpu};

/// Length of the windows in which softirqs are counted.
pub const WINDOW_NS: u64 = 4_000_000;
/// Windows for which the longest grace period is remembered.
const WINDOWS: usize = 64;

/// Grace periods of each flavour, in microseconds.
static GRACE_PERIODS: [Histogram; FLAVOURS] = [const { Histogram::new() }; FLAVOURS];
/// The longest grace period that ended in a window, in microseconds, below the window's number shifted by 32.
static LONGEST: [AtomicU64; WINDOWS] = [const { AtomicU64::new(0) }; WINDOWS];

struct Local {
    /// Callbacks run in one go.
    batches: Histogram,
    /// Softirqs in a window.
    softirqs: Histogram,
    /// Longest grace periods of the same windows, in microseconds.
    longest: Histogram,
    /// The window that is open, and what was counted in it. Written by the CPU in its softirqs.
    window: AtomicU64,
    in_window: AtomicU64,
}

static LOCAL: PerCpu<Local> = per_cpu!(Local {
    batches: Histogram::new(),
    softirqs: Histogram::new(),
    longest: Histogram::new(),
    window: AtomicU64::new(0),
    in_window: AtomicU64::new(0),
});

/// A grace period has ended. The caller cannot migrate.
pub(super) fn grace_period_ended(kind: Kind, now_ns: u64, length_ns: u64) {
    let length_us = length_ns / 1_000;
    GRACE_PERIODS[kind as usize].add(length_us);
    trace::record(Event::GracePeriodEnd, kind, length_ns);
    let window = now_ns / WINDOW_NS;
    let place = &LONGEST[window as usize % WINDOWS];
    let value = window << 32 | length_us.min(u64::from(u32::MAX));
    // A later window wins, within a window the longer one.
    place.fetch_max(value, Relaxed);
}

fn longest_in(window: u64) -> u64 {
    let value = LONGEST[window as usize % WINDOWS].load(Relaxed);
    if value >> 32 == window & u64::from(u32::MAX) { value & u64::from(u32::MAX) } else { 0 }
}

/// Callbacks were run in one go. The caller cannot migrate.
pub(super) fn batch_ran(kind: Kind, callbacks: u64) {
    LOCAL.this().batches.add(callbacks);
    trace::record(Event::Batch, kind, callbacks);
}

/// So many softirqs ran on this CPU. The caller cannot migrate.
#[inline]
pub fn softirqs_ran(count: u64, now_ns: u64) {
    let local = LOCAL.this();
    let window = now_ns / WINDOW_NS;
    let open = local.window.load(Relaxed);
    if window != open {
        close_window(local, open);
        local.window.store(window, Relaxed);
        local.in_window.store(count, Relaxed);
    } else {
        local.in_window.store(local.in_window.load(Relaxed) + count, Relaxed);
    }
}

#[cold]
fn close_window(local: &Local, window: u64) {
    let count = local.in_window.load(Relaxed);
    if count > 0 {
        local.softirqs.add(count);
        local.longest.add(longest_in(window));
        trace::record(Event::SoftirqWindow, Kind::Classic, count);
    }
}

/// Lengths of the grace periods of a flavour, in microseconds.
pub fn grace_periods(kind: Kind) -> Summary {
    let mut summary = Summary::default();
    GRACE_PERIODS[kind as usize].collect(&mut summary);
    summary
}

/// Callbacks that a CPU has run in one go.
pub fn batches(cpu: CpuId) -> Summary {
    let mut summary = Summary::default();
    LOCAL.of(cpu).batches.collect(&mut summary);
    summary
}

/// Softirqs in windows of 4 ms on a CPU, and the longest grace periods of the same windows in microseconds.
pub fn windows(cpu: CpuId) -> (Summary, Summary) {
    let (mut softirqs, mut longest) = (Summary::default(), Summary::default());
    let local = LOCAL.of(cpu);
    local.softirqs.collect(&mut softirqs);
    local.longest.collect(&mut longest);
    (softirqs, longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_counted_when_the_next_one_begins() {
        let section = machine::preempt::disable();
        let cpu = machine::cpu::current();
        let before = windows(cpu).0.count();
        let start = (1 << 40) * WINDOW_NS;
        softirqs_ran(3, start);
        softirqs_ran(4, start + WINDOW_NS - 1);
        grace_period_ended(Kind::Classic, start + 5, 77_000);
        softirqs_ran(1, start + 10 * WINDOW_NS);
        let (softirqs, longest) = windows(cpu);
        assert!(softirqs.count() > before);
        assert!(softirqs.classes[3] >= 1, "7 softirqs in the window");
        assert!(longest.largest >= 77);
        drop(section);
    }
}
