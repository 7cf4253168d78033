//! How many groups and marks a user may have, and how many events may wait.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// The limits (`/proc/sys/fs/fanotify`).
pub mod settings {
    use core::sync::atomic::AtomicU32;

    /// Groups of a user.
    pub static GROUPS_MAX: AtomicU32 = AtomicU32::new(128);
    /// Marks of a user: each keeps an inode in memory.
    pub static MARKS_MAX: AtomicU32 = AtomicU32::new(8192);
    /// Events that wait for a group that has not asked for more.
    pub static EVENTS_MAX: AtomicU32 = AtomicU32::new(16_384);
}

/// What one user has.
#[derive(Debug, Default)]
pub struct Account {
    // Any CPU, relaxed: they guard no other data.
    groups: AtomicU32,
    marks: AtomicU32,
}

impl Account {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self { groups: AtomicU32::new(0), marks: AtomicU32::new(0) }
    }
}

/// One group or mark of a user.
pub(super) struct Charge {
    account: Arc<Account>,
    is_mark: bool,
}

impl Charge {
    fn claim(account: &Arc<Account>, is_mark: bool, limit: u32, error: Error) -> Result<Self> {
        let charge = Self { account: account.clone(), is_mark };
        // Counted first: of two at the limit both may fail, but none goes beyond it.
        if charge.count().fetch_add(1, Ordering::Relaxed) < limit { Ok(charge) } else { Err(error) }
    }

    /// `EMFILE` at the limit.
    pub(super) fn group(account: &Arc<Account>) -> Result<Self> {
        let limit = settings::GROUPS_MAX.load(Ordering::Relaxed);
        Self::claim(account, false, limit, Error::TooManyDescriptors)
    }

    /// `ENOSPC` at the limit.
    pub(super) fn mark(account: &Arc<Account>, unlimited: bool) -> Result<Self> {
        let limit = if unlimited { u32::MAX } else { settings::MARKS_MAX.load(Ordering::Relaxed) };
        Self::claim(account, true, limit, Error::NoSpace)
    }

    fn count(&self) -> &AtomicU32 {
        if self.is_mark { &self.account.marks } else { &self.account.groups }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.count().fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a user's number of groups or marks went below zero");
    }
}
