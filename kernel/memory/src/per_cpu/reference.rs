//! A reference count that CPUs change without sharing a cache line, for long-lived objects that many use ("bigref").
//!
//! The number of references is always `atomic` + the CPUs' cells, less the bias while there is one.
//!
//! States:
//! - *gathered*: everybody counts in `atomic`; who takes the last reference away is told, exactly once. The first state,
//!   and the only one while there is no memory for cells.
//! - *spread* ([`PerCpuRef::spread`]): each CPU counts in its own cell, up and down. A cell alone means nothing. `atomic`
//!   holds a bias that keeps it from becoming 0 by those who still, or already, count there.
//! - *switching*, for a moment on the way there.
//! - *gathering*, on the way back ([`PerCpuRef::gather`]): the cells are no longer shown; a grace period later nobody
//!   counts in them any more, because counting is a read section. Then their sum is added and the bias taken away.
//!
//! While it is spread nobody learns that the last reference is gone: the owner gathers, then gives back its own.
//!
//! Costs while spread: one instruction on this CPU's memory; no atomic operation, no shared line written.
//!
//! `tests/per_cpu_models.rs` compiles this file against loom's atomics.

use core::ptr;
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

#[cfg(all(loom, test))]
use loom::sync::atomic::{
    AtomicI64, AtomicPtr, AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};

use machine::cpu;
use sync::{Once, clustered, rcu};

use super::boxed::PerCpuBox;

const GATHERED: u8 = 0;
const SPREAD: u8 = 1;
const SWITCHING: u8 = 2;
const GATHERING: u8 = 3;

/// Added while references may be in cells: more than there can be.
const BIAS: i64 = 1 << 62;

/// Counts that share a grace period.
const GATHER_BATCH: usize = 64;

/// What giving a reference back came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// There are others, or it can't be told: the count is spread.
    Others,
    /// It was the last one: the object is the caller's.
    Last,
}

/// See the theory of this file.
pub struct PerCpuRef {
    /// The cells, while references are counted there: those of `cells`, or null.
    shown: AtomicPtr<AtomicI64>,
    atomic: AtomicI64,
    /// Who changes it to SWITCHING or GATHERING owns the transition.
    state: AtomicU8,
    cells: Once<PerCpuBox<AtomicI64>>,
}

impl PerCpuRef {
    /// One reference, gathered.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Self {
        Self {
            shown: AtomicPtr::new(ptr::null_mut()),
            atomic: AtomicI64::new(1),
            state: AtomicU8::new(GATHERED),
            cells: Once::new(),
        }
    }

    /// One reference, gathered.
    #[cfg(all(loom, test))]
    pub fn new() -> Self {
        Self {
            shown: AtomicPtr::new(ptr::null_mut()),
            atomic: AtomicI64::new(1),
            state: AtomicU8::new(GATHERED),
            cells: Once::new(),
        }
    }

    /// Counts in this CPU's cell if the count is spread; says whether it was.
    #[inline(always)]
    fn count_in_cell(&self, amount: i64) -> bool {
        let _section = rcu::read();
        // Acquire: who sees the cells sees the bias; pairs with the Release in `spread`.
        let Some(cells) = ptr::NonNull::new(self.shown.load(Acquire)) else { return false };
        // SAFETY: cells that are shown belong to the box in `cells`, which lives as long as `self`.
        cpu::add_to_own(unsafe { PerCpuBox::own_copy(cells) }, amount);
        true
    }

    /// Takes another reference; the caller has one, or something keeps one that can't go away meanwhile.
    #[inline(always)]
    pub fn get(&self) {
        if !self.count_in_cell(1) {
            let before = self.atomic.fetch_add(1, Relaxed);
            debug_assert!(before > 0, "a reference of something that is gone");
        }
    }

    /// Gives a reference back.
    #[inline(always)]
    pub fn put(&self) -> Put {
        if self.count_in_cell(-1) { Put::Others } else { self.put_gathered() }
    }

    #[inline]
    fn put_gathered(&self) -> Put {
        // AcqRel: what others did to the object before they gave their references back happens before its end.
        let before = self.atomic.fetch_sub(1, AcqRel);
        debug_assert!(before > 0, "one reference too many was given back");
        if before == 1 { Put::Last } else { Put::Others }
    }

    /// Counts per CPU from now on, if there is memory for that and nobody switches already.
    ///
    /// With `clustered=off` it stays gathered.
    pub fn spread(&self) {
        if !clustered::enabled() {
            return;
        }
        if self.cells.get().is_none()
            && let Ok(cells) = PerCpuBox::try_zeroed()
        {
            let mut cells = Some(cells);
            self.cells.call_once(|| cells.take().expect("called once"));
        }
        let Some(cells) = self.cells.get() else { return };
        if self.state.compare_exchange(GATHERED, SWITCHING, Acquire, Relaxed).is_ok() {
            self.atomic.fetch_add(BIAS, Relaxed);
            // Release: who counts in cells sees that the bias is there.
            self.shown.store(cells.as_ptr(), Release);
            self.state.store(SPREAD, Release);
        }
    }

    /// Counts in one place again. May sleep: waits for a grace period. Says whether it is gathered now, which it is not
    /// when somebody else switches at the moment.
    pub fn gather(&self) -> bool {
        let mine = self.state.load(Relaxed) == SPREAD && Self::may_gather() && self.begin_gathering();
        if mine {
            rcu::synchronize_expedited();
            self.end_gathering();
        }
        mine || self.is_gathered()
    }

    /// Gathers many counts with a grace period for each few dozen of them. May sleep.
    pub fn gather_all<'a>(counts: impl Iterator<Item = &'a Self> + Clone) {
        let mut rest = counts;
        if !Self::may_gather() {
            return;
        }
        while rest.clone().next().is_some() {
            let batch = rest.clone().take(GATHER_BATCH);
            let mut mine = 0_u64;
            for (index, count) in batch.clone().enumerate() {
                mine |= u64::from(count.begin_gathering()) << index;
            }
            if mine != 0 {
                rcu::synchronize_expedited();
            }
            batch
                .enumerate()
                .filter(|(index, _)| mine >> index & 1 != 0)
                .for_each(|(_, count)| count.end_gathering());
            rest.nth(GATHER_BATCH - 1);
        }
    }

    /// Whether one may wait for a grace period here. If not, a count stays spread: its object is leaked, which is a bug but
    /// no danger.
    fn may_gather() -> bool {
        let may = crate::frame::allocate::may_wait();
        if !may {
            log::error!("per-CPU references can't be gathered where nobody may sleep");
        }
        may
    }

    /// Hides the cells; says whether the caller has to end it, a grace period later.
    pub(super) fn begin_gathering(&self) -> bool {
        let mine = self.state.compare_exchange(SPREAD, GATHERING, Acquire, Relaxed).is_ok();
        if mine {
            self.shown.store(ptr::null_mut(), SeqCst);
        }
        mine
    }

    /// Ends the gathering that the only owner began, if it did, a grace period ago.
    pub(super) fn end_own_gathering(&self) {
        if self.state.load(Relaxed) == GATHERING {
            self.end_gathering();
        }
    }

    /// Who saw the cells has counted in them by now.
    fn end_gathering(&self) {
        let cells = self.cells.get().expect("it was spread");
        let counted: i64 = cells.iter().map(|cell| cell.swap(0, Relaxed)).sum();
        self.atomic.fetch_add(counted - BIAS, AcqRel);
        self.state.store(GATHERED, Release);
    }

    /// Gathers and gives a reference back: the owner's farewell. May sleep.
    pub fn disown(&self) -> Put {
        self.gather();
        self.put()
    }

    /// Whether `atomic` alone is the number.
    pub fn is_gathered(&self) -> bool {
        self.state.load(Acquire) == GATHERED
    }

    /// The number of references. A moment's view; not exact while the count is spread and changes.
    pub fn value(&self) -> i64 {
        let cells = self.cells.get();
        let counted: i64 = cells.into_iter().flat_map(PerCpuBox::iter).map(|cell| cell.load(Relaxed)).sum();
        let atomic = self.atomic.load(Acquire);
        counted + if atomic > BIAS / 2 { atomic - BIAS } else { atomic }
    }
}

impl Default for PerCpuRef {
    fn default() -> Self {
        Self::new()
    }
}
