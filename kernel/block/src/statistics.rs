//! What a device has done: the numbers of `/proc/diskstats`.

use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::bio::Operation;

/// Which row of numbers an operation belongs to: read, write, discard, flush.
const KINDS: usize = 4;

/// Counters. All relaxed: each stands for itself, and readers take what they see.
#[derive(Debug, Default)]
pub struct Statistics {
    completed: [AtomicU64; KINDS],
    merged: [AtomicU64; KINDS],
    sectors: [AtomicU64; KINDS],
    time_ns: [AtomicU64; KINDS],
    failed: AtomicU64,
    in_flight: AtomicU64,
    busy_since_ns: AtomicU64,
    busy_ns: AtomicU64,
    weighted_ns: AtomicU64,
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
    pub(crate) fn begin(&self, now_ns: u64) {
        if self.in_flight.fetch_add(1, Relaxed) == 0 {
            self.busy_since_ns.store(now_ns, Relaxed);
        }
    }

    /// The device had no room after all.
    pub(crate) fn withdraw(&self) {
        self.in_flight.fetch_sub(1, Relaxed);
    }

    pub(crate) fn merged(&self, operation: Operation) {
        self.merged[kind(operation)].fetch_add(1, Relaxed);
    }

    pub(crate) fn end(&self, operation: Operation, sectors: u64, began_ns: u64, now_ns: u64, failed: bool) {
        let kind = kind(operation);
        let taken_ns = now_ns.saturating_sub(began_ns);
        self.completed[kind].fetch_add(1, Relaxed);
        self.sectors[kind].fetch_add(sectors, Relaxed);
        self.time_ns[kind].fetch_add(taken_ns, Relaxed);
        self.weighted_ns.fetch_add(taken_ns, Relaxed);
        self.failed.fetch_add(u64::from(failed), Relaxed);
        if self.in_flight.fetch_sub(1, Relaxed) == 1 {
            self.busy_ns.fetch_add(now_ns.saturating_sub(self.busy_since_ns.load(Relaxed)), Relaxed);
        }
    }

    /// Requests under way.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Relaxed)
    }

    /// The numbers of this moment.
    pub fn snapshot(&self) -> Snapshot {
        const NS_PER_MS: u64 = 1_000_000;
        let row = |from: &[AtomicU64; KINDS]| core::array::from_fn(|index| from[index].load(Relaxed));
        Snapshot {
            completed: row(&self.completed),
            merged: row(&self.merged),
            sectors: row(&self.sectors),
            time_ms: row(&self.time_ns).map(|ns: u64| ns / NS_PER_MS),
            in_flight: self.in_flight(),
            busy_ms: self.busy_ns.load(Relaxed) / NS_PER_MS,
            weighted_ms: self.weighted_ns.load(Relaxed) / NS_PER_MS,
            failed: self.failed.load(Relaxed),
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

    #[test]
    fn the_line_has_seventeen_columns() {
        let statistics = Statistics::default();
        statistics.begin(0);
        statistics.end(Operation::Read, 8, 0, 3_000_000, false);
        let line = statistics.snapshot().to_string();
        assert_eq!(line, "1 0 8 3 0 0 0 0 0 3 3 0 0 0 0 0 0");
    }
}
