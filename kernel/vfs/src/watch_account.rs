//! How much a user may have watched: instances and watches of `inotify`, groups and marks of `fanotify`; and how many events may wait.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// The limits of `inotify` (`/proc/sys/fs/inotify`).
pub mod inotify_settings {
    use core::sync::atomic::AtomicU32;

    /// Instances of a user: each has a queue of its own.
    pub static INSTANCES_MAX: AtomicU32 = AtomicU32::new(128);
    /// Watches of a user: each keeps an inode in memory.
    pub static WATCHES_MAX: AtomicU32 = AtomicU32::new(65_536);
    /// Events that wait for an instance that was made since this was set.
    pub static EVENTS_MAX: AtomicU32 = AtomicU32::new(16_384);
}

/// The limits of `fanotify` (`/proc/sys/fs/fanotify`).
pub mod fanotify_settings {
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
pub struct WatchAccount {
    // Any CPU, relaxed: they guard no other data.
    instances: AtomicU32,
    watches: AtomicU32,
    groups: AtomicU32,
    marks: AtomicU32,
}

impl WatchAccount {
    /// Nothing yet.
    pub const fn new() -> Self {
        Self {
            instances: AtomicU32::new(0),
            watches: AtomicU32::new(0),
            groups: AtomicU32::new(0),
            marks: AtomicU32::new(0),
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Instance,
    Watch,
    Group,
    Mark,
}

/// One of what a user has.
pub(crate) struct Charge {
    account: Arc<WatchAccount>,
    kind: Kind,
}

impl Charge {
    fn claim(account: &Arc<WatchAccount>, kind: Kind, limit: u32, error: Error) -> Result<Self> {
        let charge = Self { account: account.clone(), kind };
        // Counted first: of two at the limit both may fail, but none goes beyond it.
        if charge.count().fetch_add(1, Ordering::Relaxed) < limit { Ok(charge) } else { Err(error) }
    }

    /// An instance of `inotify`: `EMFILE` at the limit.
    pub(crate) fn instance(account: &Arc<WatchAccount>) -> Result<Self> {
        let limit = inotify_settings::INSTANCES_MAX.load(Ordering::Relaxed);
        Self::claim(account, Kind::Instance, limit, Error::TooManyDescriptors)
    }

    /// A watch: `ENOSPC` at the limit.
    pub(crate) fn watch(account: &Arc<WatchAccount>) -> Result<Self> {
        let limit = inotify_settings::WATCHES_MAX.load(Ordering::Relaxed);
        Self::claim(account, Kind::Watch, limit, Error::NoSpace)
    }

    /// A group of `fanotify`: `EMFILE` at the limit.
    pub(crate) fn group(account: &Arc<WatchAccount>) -> Result<Self> {
        let limit = fanotify_settings::GROUPS_MAX.load(Ordering::Relaxed);
        Self::claim(account, Kind::Group, limit, Error::TooManyDescriptors)
    }

    /// A mark: `ENOSPC` at the limit.
    pub(crate) fn mark(account: &Arc<WatchAccount>, unlimited: bool) -> Result<Self> {
        let limit = if unlimited { u32::MAX } else { fanotify_settings::MARKS_MAX.load(Ordering::Relaxed) };
        Self::claim(account, Kind::Mark, limit, Error::NoSpace)
    }

    fn count(&self) -> &AtomicU32 {
        match self.kind {
            Kind::Instance => &self.account.instances,
            Kind::Watch => &self.account.watches,
            Kind::Group => &self.account.groups,
            Kind::Mark => &self.account.marks,
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let before = self.count().fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "what a user has watched went below zero");
    }
}
