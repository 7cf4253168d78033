//! What a device has done: the numbers of `/proc/diskstats`.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use memory::OutOfMemory;
use memory::per_cpu::PerCpuBox;

use crate::Result;
use crate::bio::Operation;

/// Which row of numbers an operation belongs to: read, write, discard, flush.
const KINDS: usize = 4;

/// What is counted, as places in a CPU's row of counters; the first of each kind, for what there is one of for each [`kind`].
const COMPLETED: usize = 0;
const MERGED: usize = KINDS;
const SECTORS: usize = 2 * KINDS;
const TIME_NS: usize = 3 * KINDS;
const FAILED: usize = 4 * KINDS;
/// Begun less ended on this CPU: the sum over all is what is under way.
const IN_FLIGHT: usize = FAILED + 1;
const BUSY_MS: usize = FAILED + 2;
const COUNTERS: usize = FAILED + 3;

const NS_PER_MS: u64 = 1_000_000;

/// Counters, for each CPU its own. All relaxed: each stands for itself, and readers take what they see. A request may begin on one CPU and
/// end on another.
///
/// # How long it was busy
/// A request that ends adds the milliseconds since it began that nobody has added yet: those after the end of the latest one that did. That end
/// is the only word that CPUs share, and is written once a millisecond at most. What is missing is the time in which a request was alone under
/// way, if one that began later ended first.
pub struct Statistics {
    counters: PerCpuBox<[AtomicU64; COUNTERS]>,
    /// Until when busy times were added, ms since boot.
    counted_ms: AtomicU64,
}

/// The numbers of a moment, in the units of `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Requests completed: reads, writes, discards, flushes.
    pub completed: [u64; KINDS],
    /// Bios that went along with another.
    pub merged: [u64; KINDS],
    /// Sectors moved.
    pub sectors: [u64; KINDS],
    /// Milliseconds from submission to completion, summed up.
    pub time_ms: [u64; KINDS],
    /// Requests under way.
    pub in_flight: u64,
    /// Milliseconds with at least one under way.
    pub busy_ms: u64,
    /// Milliseconds times requests under way.
    pub weighted_ms: u64,
    /// Requests that failed.
    pub failed: u64,
}

const fn kind(operation: Operation) -> usize {
    match operation {
        Operation::Read => 0,
        Operation::Write | Operation::WriteZeroes => 1,
        Operation::Discard => 2,
        Operation::Flush => 3,
    }
}

impl Statistics {
    pub(crate) fn new() -> Result<Self> {
        let counters = PerCpuBox::try_zeroed().map_err(OutOfMemory::from)?;
        Ok(Self { counters, counted_ms: AtomicU64::new(0) })
    }

    fn add(&self, counter: usize, amount: u64) {
        self.counters.this()[counter].fetch_add(amount, Relaxed);
    }

    pub(crate) fn begin(&self) {
        self.add(IN_FLIGHT, 1);
    }

    /// The device had no room after all.
    pub(crate) fn withdraw(&self) {
        self.add(IN_FLIGHT, u64::MAX);
    }

    pub(crate) fn merged(&self, operation: Operation) {
        self.add(MERGED + kind(operation), 1);
    }

    pub(crate) fn end(&self, operation: Operation, sectors: u64, began_ns: u64, now_ns: u64, failed: bool) {
        let kind = kind(operation);
        self.add(COMPLETED + kind, 1);
        self.add(SECTORS + kind, sectors);
        self.add(TIME_NS + kind, now_ns.saturating_sub(began_ns));
        if failed {
            self.add(FAILED, 1);
        }
        self.add(IN_FLIGHT, u64::MAX);
        self.add_busy(began_ns / NS_PER_MS, now_ns / NS_PER_MS);
    }

    fn add_busy(&self, began_ms: u64, now_ms: u64) {
        let counted_ms = self.counted_ms.load(Relaxed);
        if now_ms > counted_ms
            && self.counted_ms.compare_exchange(counted_ms, now_ms, Relaxed, Relaxed).is_ok()
        {
            self.add(BUSY_MS, now_ms.saturating_sub(began_ms.max(counted_ms)));
        }
    }

    fn sum(&self, counter: usize) -> u64 {
        self.counters.iter().fold(0, |sum: u64, row| sum.wrapping_add(row[counter].load(Relaxed)))
    }

    /// Requests under way.
    pub fn in_flight(&self) -> u64 {
        // Of one that begins and ends meanwhile the end alone may be seen.
        (self.sum(IN_FLIGHT) as i64).max(0) as u64
    }

    /// The numbers of this moment.
    pub fn snapshot(&self) -> Snapshot {
        let row = |first: usize| core::array::from_fn(|kind| self.sum(first + kind));
        let time_ns: [u64; KINDS] = row(TIME_NS);
        Snapshot {
            completed: row(COMPLETED),
            merged: row(MERGED),
            sectors: row(SECTORS),
            time_ms: time_ns.map(|ns| ns / NS_PER_MS),
            in_flight: self.in_flight(),
            busy_ms: self.sum(BUSY_MS),
            weighted_ms: time_ns.iter().sum::<u64>() / NS_PER_MS,
            failed: self.sum(FAILED),
        }
    }
}

impl Snapshot {
    /// What came after an earlier moment, and what is under way now.
    pub fn since(&self, earlier: &Self) -> Self {
        let less = |now: &[u64; KINDS], then: &[u64; KINDS]| {
            core::array::from_fn(|kind| now[kind].saturating_sub(then[kind]))
        };
        Self {
            completed: less(&self.completed, &earlier.completed),
            merged: less(&self.merged, &earlier.merged),
            sectors: less(&self.sectors, &earlier.sectors),
            time_ms: less(&self.time_ms, &earlier.time_ms),
            in_flight: self.in_flight,
            busy_ms: self.busy_ms.saturating_sub(earlier.busy_ms),
            weighted_ms: self.weighted_ms.saturating_sub(earlier.weighted_ms),
            failed: self.failed.saturating_sub(earlier.failed),
        }
    }
}

impl fmt::Display for Snapshot {
    /// The columns of `/proc/diskstats` from the fourth on.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = |out: &mut fmt::Formatter<'_>, kind: usize| {
            write!(
                out,
                "{} {} {} {} ",
                self.completed[kind], self.merged[kind], self.sectors[kind], self.time_ms[kind]
            )
        };
        row(out, 0)?;
        row(out, 1)?;
        write!(out, "{} {} {} ", self.in_flight, self.busy_ms, self.weighted_ms)?;
        row(out, 2)?;
        write!(out, "{} {}", self.completed[3], self.time_ms[3])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(statistics: &Statistics, began_ms: u64, now_ms: u64) {
        statistics.begin();
        statistics.end(Operation::Read, 8, began_ms * NS_PER_MS, now_ms * NS_PER_MS, false);
    }

    #[test]
    fn the_line_has_seventeen_columns() {
        let statistics = Statistics::new().unwrap();
        end(&statistics, 0, 3);
        let line = statistics.snapshot().to_string();
        assert_eq!(line, "1 0 8 3 0 0 0 0 0 3 3 0 0 0 0 0 0");
    }

    #[test]
    fn time_with_several_under_way_is_busy_once() {
        let statistics = Statistics::new().unwrap();
        for (began_ms, now_ms) in [(100, 110), (105, 120), (105, 120), (200, 201)] {
            end(&statistics, began_ms, now_ms);
        }
        let snapshot = statistics.snapshot();
        assert_eq!((snapshot.busy_ms, snapshot.weighted_ms), (21, 41));
    }

    #[test]
    fn a_request_may_end_on_another_cpu() {
        let statistics = Statistics::new().unwrap();
        statistics.begin();
        std::thread::scope(|scope| {
            scope.spawn(|| statistics.end(Operation::Write, 1, 0, 0, true));
        });
        let snapshot = statistics.snapshot();
        assert_eq!((snapshot.in_flight, snapshot.failed, snapshot.completed[1]), (0, 1, 1));
    }

    #[test]
    fn what_was_before_is_not_counted_again() {
        let statistics = Statistics::new().unwrap();
        end(&statistics, 0, 3);
        let before = statistics.snapshot();
        end(&statistics, 5, 6);
        let after = statistics.snapshot().since(&before);
        assert_eq!((after.completed[0], after.sectors[0], after.busy_ms), (1, 8, 1));
    }
}
