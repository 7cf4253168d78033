//! An amount that many CPUs take from and give back to, with an exact limit.
//!
//! Each CPU keeps what it may take without asking: what it gave back, and a batch that it took beyond its need. So a CPU
//! that takes and gives back in turn, far from the limit, writes no shared line. What is in use is what was *taken* from
//! the whole less what the CPUs keep as *spare*.
//!
//! Near the limit nobody takes more than it needs, and who finds too little left collects what all CPUs keep before it
//! gives up: the limit is never exceeded, and nobody is refused while enough is unused.
//!
//! Costs: one atomic operation on a line of this CPU; on a shared one once in a batch.
//!
//! `tests/per_cpu_models.rs` compiles this file against loom's atomics.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sync::CachePadded;

use super::boxed::PerCpuBox;
use crate::OutOfMemory;

/// See the theory of this file.
pub struct Quota {
    /// 0: none.
    limit: AtomicU64,
    pub(super) spare: PerCpuBox<AtomicU64>,
    pub(super) taken: CachePadded<AtomicU64>,
}

impl Quota {
    /// What a CPU takes beyond its need; twice as much it keeps at most.
    pub const BATCH: u64 = if cfg!(all(loom, test)) { 1 } else { 32 };

    /// Nothing is taken; `limit` of 0 is none.
    ///
    /// # Errors
    /// When there is no memory.
    #[track_caller]
    pub fn try_new(limit: u64) -> Result<Self, OutOfMemory> {
        let spare = PerCpuBox::try_zeroed().map_err(|_| OutOfMemory)?;
        Ok(Self { limit: AtomicU64::new(limit), spare, taken: CachePadded::new(AtomicU64::new(0)) })
    }

    /// The limit; 0 for none.
    pub fn limit(&self) -> u64 {
        self.limit.load(Relaxed)
    }

    /// Changes the limit, if not more than that is in use. Exact if nobody takes meanwhile.
    #[must_use]
    pub fn set_limit(&self, limit: u64) -> bool {
        self.collect();
        let fits = limit == 0 || self.taken.load(Relaxed) <= limit;
        if fits {
            self.limit.store(limit, Relaxed);
        }
        fits
    }

    /// What is in use; exact while nobody takes or gives back.
    pub fn used(&self) -> u64 {
        let spare: u64 = self.spare.iter().map(|spare| spare.load(Relaxed)).sum();
        self.taken.load(Relaxed).saturating_sub(spare)
    }

    /// Takes so much; false when that is too much.
    #[inline]
    pub fn take(&self, amount: u64) -> bool {
        // Relaxed, here and below: counts that guard nothing else.
        self.spare.this().fetch_update(Relaxed, Relaxed, |spare| spare.checked_sub(amount)).is_ok()
            || self.take_shared(amount)
    }

    /// Takes so much even beyond the limit, which grows by it.
    pub fn take_regardless(&self, amount: u64) {
        let raise = |limit: u64| (limit != 0).then(|| limit.saturating_add(amount));
        let _unlimited = self.limit.fetch_update(Relaxed, Relaxed, raise);
        self.taken.fetch_add(amount, Relaxed);
    }

    /// Gives so much back.
    #[inline]
    pub fn give_back(&self, amount: u64) {
        let spare = self.spare.this();
        if spare.fetch_add(amount, Relaxed).saturating_add(amount) > 2 * Self::BATCH {
            self.return_most(spare);
        }
    }

    #[cold]
    #[inline(never)]
    fn take_shared(&self, amount: u64) -> bool {
        let near = Self::BATCH * self.spare.cpus().count() as u64;
        if self.take_from_all(amount + Self::BATCH, near) {
            self.spare.this().fetch_add(Self::BATCH, Relaxed);
            return true;
        }
        if self.take_from_all(amount, 0) {
            return true;
        }
        self.collect();
        self.take_from_all(amount, 0)
    }

    /// Takes so much from the whole if `rest` is left then.
    fn take_from_all(&self, amount: u64, rest: u64) -> bool {
        let limit = self.limit();
        let fits = |sum: &u64| limit == 0 || sum.checked_add(rest).is_some_and(|sum| sum <= limit);
        let update = |taken: u64| taken.checked_add(amount).filter(fits);
        self.taken.fetch_update(Relaxed, Relaxed, update).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn return_most(&self, spare: &AtomicU64) {
        let keep = |spare: u64| (spare > Self::BATCH).then_some(Self::BATCH);
        if let Ok(before) = spare.fetch_update(Relaxed, Relaxed, keep) {
            self.taken.fetch_sub(before - Self::BATCH, Relaxed);
        }
    }

    /// Returns what all CPUs keep.
    fn collect(&self) {
        for spare in self.spare.iter() {
            self.taken.fetch_sub(spare.swap(0, Relaxed), Relaxed);
        }
    }
}

impl core::fmt::Debug for Quota {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{} of {}", self.used(), self.limit())
    }
}
