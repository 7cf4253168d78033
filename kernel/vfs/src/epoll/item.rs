//! One interest: a file under a descriptor, what is to be watched, and what the program gets back.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bitflags::bitflags;
use sync::SpinLock;

use super::instance::Shared;
use crate::file::OpenFile;
use crate::poll::{Notified, PollEvents, PollTable, PollWatcher};
use crate::{Error, Result};

bitflags! {
    /// Events and modes of an interest, as in `epoll_ctl(2)`; the low bits are [`PollEvents`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct EpollEvents: u32 {
        /// Wake one of several `epoll` instances.
        const EXCLUSIVE = 1 << 28;
        /// Accepted, without meaning here.
        const WAKE_UP = 1 << 29;
        /// Report once, then wait to be re-armed.
        const ONE_SHOT = 1 << 30;
        /// Report changes, not states.
        const EDGE_TRIGGERED = 1 << 31;
        /// Every event of [`PollEvents`].
        const _ = !0;
    }
}

impl EpollEvents {
    /// With what is reported whether it was asked for or not.
    pub(super) fn with_always(self) -> Self {
        self | Self::from_bits_retain(PollEvents::ALWAYS.bits())
    }

    /// What is watched, without the modes.
    pub fn poll_events(self) -> PollEvents {
        PollEvents::from_bits_truncate(self.bits())
    }
}

/// What a program registers, and what it gets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EpollEvent {
    /// Events.
    pub events: EpollEvents,
    /// The program's own.
    pub data: u64,
}

/// An interest.
pub struct EpollItem {
    pub(super) shared: Arc<Shared>,
    pub(super) file: Weak<OpenFile>,
    pub(super) key: (u32, u64),
    pub(super) index: u32,
    pub(super) event: SpinLock<EpollEvent>,
    /// In the ready list. Written with the list locked.
    pub(super) queued: AtomicBool,
    /// Removed. Written with the list locked.
    pub(super) dead: AtomicBool,
    /// The last scan that looked at it: who collects looks at each once. Written by who collects.
    pub(super) scan: AtomicU64,
    /// Counted up when the interest changes: older registrations are stale. Written with `event` locked.
    pub(super) generation: AtomicU64,
}

impl EpollItem {
    /// What is watched, and the generation of that.
    pub(super) fn setting(&self) -> (EpollEvent, u64) {
        let event = self.event.lock();
        (*event, self.generation.load(Ordering::Acquire))
    }

    /// Changes what is watched.
    pub(super) fn change(&self, new: EpollEvent) {
        let mut event = self.event.lock();
        *event = new;
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Ends a one-shot that was reported, unless it was changed since: then it is armed again.
    pub(super) fn disarm(&self, generation: u64) {
        let mut event = self.event.lock();
        if self.generation.load(Ordering::Acquire) == generation {
            let modes = EpollEvents::ONE_SHOT | EpollEvents::EDGE_TRIGGERED | EpollEvents::WAKE_UP;
            event.events &= modes | EpollEvents::EXCLUSIVE;
        }
    }

    /// What is ready of what is watched.
    pub(super) fn ready(&self, event: &EpollEvent) -> PollEvents {
        let Some(file) = self.file.upgrade() else { return PollEvents::empty() };
        // Adding or changing an interest adds `ALWAYS`; only a one-shot that was shot lacks it.
        let interest = event.events.poll_events();
        if interest.is_empty() {
            return PollEvents::empty();
        }
        file.poll(None) & interest
    }

    /// Registers with the file, and queues itself if it is ready already.
    pub(super) fn arm(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        let (event, generation) = self.setting();
        let watcher: Arc<dyn PollWatcher> = self.clone();
        let exclusive = event.events.contains(EpollEvents::EXCLUSIVE);
        let interest = event.events.poll_events();
        let mut table = PollTable::new(&watcher, generation, interest, exclusive);
        let ready = file.poll(Some(&mut table)) & interest;
        if table.failed() {
            return Err(Error::OutOfMemory);
        }
        if !ready.is_empty() {
            self.shared.enqueue(self);
        }
        Ok(())
    }

    /// It was removed: the file, which is there still, forgets it.
    pub(super) fn leave(self: &Arc<Self>, file: &OpenFile) {
        let watcher: Arc<dyn PollWatcher> = self.clone();
        file.poll(Some(&mut PollTable::leaving(&watcher)));
        file.forget_interest(self);
    }

    /// The file is gone, and the interest with it.
    pub(crate) fn file_closed(self: &Arc<Self>) {
        let shared = self.shared.clone();
        shared.remove(self);
    }
}

impl Drop for EpollItem {
    fn drop(&mut self) {
        self.shared.account.release();
    }
}

impl PollWatcher for EpollItem {
    fn notify(&self, key: u64, _events: PollEvents) -> Notified {
        if self.is_stale(key) {
            return Notified::Remove;
        }
        if self.shared.enqueue(self) { Notified::Taken } else { Notified::Keep }
    }

    fn is_stale(&self, key: u64) -> bool {
        self.dead.load(Ordering::Acquire) || self.generation.load(Ordering::Acquire) != key
    }
}
