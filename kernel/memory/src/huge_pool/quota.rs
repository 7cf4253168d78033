//! What the files of one mount may have of the pool, and what of it is kept for them.
//!
//! Pages that its files have, or were promised, count. Of the *least* size what they don't have is promised to the mount itself, so that a file's promise is met from it
//! first. Private mappings of files take from the pool, whatever the limit is.

use super::supply;
use crate::OutOfMemory;
use sync::SpinLock;

/// See the theory of this file.
pub struct HugeQuota {
    /// Pages; none: as many as there are.
    limit: Option<u64>,
    state: SpinLock<State>,
}

#[derive(Clone, Copy)]
struct State {
    /// Pages that files have or were promised.
    used: u64,
    /// Of these and of what is promised to the mount together at least so many.
    least: u64,
}

impl State {
    /// Pages that are promised to the mount itself.
    fn kept(&self) -> u64 {
        self.least.saturating_sub(self.used)
    }
}

impl HugeQuota {
    /// A quota of at most and at least so many pages.
    ///
    /// # Errors
    /// The pool has not the least.
    pub fn new(limit: Option<u64>, least: u64) -> Result<HugeQuota, OutOfMemory> {
        supply::promise(least)?;
        Ok(HugeQuota { limit, state: SpinLock::named("quota of huge pages", State { used: 0, least }) })
    }

    /// The limit, if there is one.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Pages that files have or were promised.
    pub fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// The least size.
    pub fn least(&self) -> u64 {
        self.state.lock().least
    }

    /// The mount keeps nothing any more.
    pub fn end(&self) {
        let kept = {
            let mut state = self.state.lock();
            let kept = state.kept();
            state.least = 0;
            kept
        };
        supply::unpromise(kept);
    }

    /// Counts pages for a file. Returns how many of them the pool must still promise; the others were promised to the mount, and are the file's now.
    pub(crate) fn count(&self, pages: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let used = state.used.checked_add(pages)?;
        if self.limit.is_some_and(|limit| used > limit) {
            return None;
        }
        let before = state.kept();
        state.used = used;
        Some(pages - (before - state.kept()))
    }

    /// A file has so many fewer. Returns how many of them the mount keeps for itself: they must be promised still, or anew.
    pub(crate) fn forget(&self, pages: u64) -> u64 {
        let mut state = self.state.lock();
        debug_assert!(state.used >= pages);
        let before = state.kept();
        state.used -= pages;
        state.kept() - before
    }

    /// What the mount was to keep can't be promised anew, because somebody still uses the page.
    pub(crate) fn lower_least(&self, pages: u64) {
        let mut state = self.state.lock();
        state.least = state.least.saturating_sub(pages);
    }
}

impl Drop for HugeQuota {
    fn drop(&mut self) {
        self.end();
    }
}
