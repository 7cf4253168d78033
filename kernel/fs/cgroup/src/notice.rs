//! Telling that what a file shows has changed: to who polls it, and to who watches it (inotify).

use core::sync::atomic::{AtomicU64, Ordering};

use vfs::{PollEvents, PollList, PollTable};

/// Changes of what one file of a group shows.
#[derive(Default)]
pub(crate) struct Notice {
    /// How often it changed. Any processor.
    changes: AtomicU64,
    watchers: PollList,
}

impl Notice {
    /// It has changed.
    pub(crate) fn tell(&self) {
        // Release: who sees the new number sees the change.
        self.changes.fetch_add(1, Ordering::Release);
        self.watchers.notify(PollEvents::PRIORITY | PollEvents::ERROR);
    }

    /// How often it has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Enters who polls.
    pub(crate) fn register(&self, table: &mut PollTable<'_>) {
        table.register(&self.watchers);
    }
}
