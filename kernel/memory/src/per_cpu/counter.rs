//! A counter that CPUs add to without sharing a cache line, with a cheap approximate value.
//!
//! Each CPU collects what it adds in its own cell; when that reaches the batch it moves into the global part. So the
//! global part alone is off by less than batch × CPUs ([`Counter::approximate`], one load), and global part and cells
//! together are exact while nobody adds ([`Counter::exact`], a load per CPU).
//!
//! Costs of an addition: one instruction on this CPU's own memory, and in one of `batch` additions a lock.
//! Without memory for the cells everything goes to the global part: slower, never wrong.
//!
//! # A limit
//! [`Counter::try_add`] adds first, passes a full barrier, and then looks whether the limit holds; if not, it takes back what it added. Of
//! any set of those that succeed, the one with the last barrier has seen what all the others added, so together they are within the limit.
//! Who is far from the limit looks at the global part alone, which is off by so much at most. Who is near it looks at everything, with
//! the lock that is needed to move a cell into the global part: what is on its way there would be in neither.
//!
//! `tests/per_cpu_models.rs` compiles this file against loom's atomics.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicI64, Ordering::Relaxed, Ordering::SeqCst, fence};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicI64, Ordering::Relaxed, Ordering::SeqCst, fence};

use machine::cpu;
use machine::preempt;

use sync::IrqSpinLock;

use super::boxed::PerCpuBox;
use super::geometry::existing_cpus;

/// See the theory of this file.
pub struct Counter {
    global: AtomicI64,
    cells: Option<PerCpuBox<AtomicI64>>,
    batch: i64,
    cpus: i64,
    /// Held by who moves a cell into the global part, and by who adds near a limit.
    moving: IrqSpinLock<()>,
}

impl Counter {
    /// What a CPU collects at most, for counters without a reason for another number.
    pub const BATCH: u32 = 32;

    /// Zero.
    #[track_caller]
    pub fn new(batch: u32) -> Self {
        Self {
            global: AtomicI64::new(0),
            cells: PerCpuBox::try_zeroed().ok(),
            batch: i64::from(batch.max(1)),
            cpus: existing_cpus().count() as i64,
            moving: IrqSpinLock::new(()),
        }
    }

    /// Adds `amount`, which may be negative.
    #[inline]
    pub fn add(&self, amount: i64) {
        let Some(cells) = &self.cells else {
            self.global.fetch_add(amount, Relaxed);
            return;
        };
        let _preemption = preempt::disable();
        let cell = cells.this();
        cpu::add_to_own(cell, amount);
        if cell.load(Relaxed).unsigned_abs() >= self.batch.unsigned_abs() {
            self.fold(cell);
        }
    }

    #[cold]
    #[inline(never)]
    fn fold(&self, cell: &AtomicI64) {
        let _moving = self.moving.lock();
        self.global.fetch_add(cell.swap(0, Relaxed), Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Subtracts one.
    #[inline]
    pub fn decrement(&self) {
        self.add(-1);
    }

    /// The value, off by less than [`Counter::error_max`].
    #[inline]
    pub fn approximate(&self) -> i64 {
        self.global.load(Relaxed)
    }

    /// The value, exact if nobody adds meanwhile.
    pub fn exact(&self) -> i64 {
        let cells = self.cells.iter().flat_map(PerCpuBox::iter);
        self.approximate() + cells.map(|cell| cell.load(Relaxed)).sum::<i64>()
    }

    /// What the approximate value is off by at most.
    pub fn error_max(&self) -> i64 {
        self.cells.as_ref().map_or(0, |_| self.batch * self.cpus)
    }

    /// Adds `amount`, which is not negative, unless that would lift the value over `limit`; says whether it did. The limit holds exactly,
    /// whoever adds in this way at the same time. All CPUs are looked at only when the approximate value is too close to the limit.
    #[inline]
    pub fn try_add(&self, amount: i64, limit: i64) -> bool {
        let highest = || self.approximate().saturating_add(self.error_max());
        if highest().saturating_add(amount) <= limit && self.cells.is_some() {
            self.add(amount);
            // See the theory of this file: meanwhile the others may have come to the limit.
            fence(SeqCst);
            if highest() <= limit {
                return true;
            }
            self.add(-amount);
        }
        self.try_add_exactly(amount, limit)
    }

    #[inline(never)]
    fn try_add_exactly(&self, amount: i64, limit: i64) -> bool {
        let _moving = self.moving.lock();
        if self.exact().checked_add(amount).is_none_or(|sum| sum > limit) {
            return false;
        }
        self.global.fetch_add(amount, Relaxed);
        fence(SeqCst);
        let fits = self.exact() <= limit;
        if !fits {
            self.global.fetch_sub(amount, Relaxed);
        }
        fits
    }
}

impl core::fmt::Debug for Counter {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Counter").field(&self.exact()).finish()
    }
}
