//! What the pool has, and what of it is promised.

use sync::IrqSpinLock;

use super::page::Home;

/// See the theory of this module.
pub(super) struct Pool {
    /// The free pages.
    pub(super) home: Home,
    counts: HugePoolCounts,
}

/// Pages of the pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePoolCounts {
    /// All of them, surplus ones included.
    pub total: u64,
    /// Those that nobody uses.
    pub free: u64,
    /// Free ones that have been promised.
    pub promised: u64,
    /// Those that are given up when they come home.
    pub surplus: u64,
    /// As many of these may be taken from free memory.
    pub overcommit: u64,
}

pub(super) static POOL: IrqSpinLock<Pool> =
    IrqSpinLock::new(Pool { home: Home::new(), counts: HugePoolCounts::NONE });

/// The numbers now.
pub fn counts() -> HugePoolCounts {
    POOL.lock().counts
}

/// How many surplus pages may be taken from free memory.
pub fn overcommit_limit() -> u64 {
    counts().overcommit
}

/// So many may be from now on.
pub fn set_overcommit_limit(pages: u64) {
    POOL.lock().counts.overcommit = pages;
}

impl HugePoolCounts {
    const NONE: Self = Self { total: 0, free: 0, promised: 0, surplus: 0, overcommit: 0 };

    /// Pages that the pool shall have.
    pub fn lasting(&self) -> u64 {
        self.total - self.surplus
    }
}

impl Pool {
    pub(super) fn counts(&mut self) -> &mut HugePoolCounts {
        &mut self.counts
    }

    /// Promises pages if so many are free and not promised; otherwise says how many are missing.
    pub(super) fn promise(&mut self, pages: u64) -> Result<(), u64> {
        let counts = &mut self.counts;
        let missing = pages.saturating_sub(counts.free - counts.promised);
        if missing > 0 {
            return Err(missing);
        }
        counts.promised += pages;
        self.check();
        Ok(())
    }

    /// A free page comes or goes.
    pub(super) fn check(&self) {
        let counts = &self.counts;
        debug_assert!(counts.promised <= counts.free && counts.free <= counts.total);
        debug_assert!(counts.surplus <= counts.total);
    }
}
