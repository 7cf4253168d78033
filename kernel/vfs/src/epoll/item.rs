<<<<<<< HEAD
//! One watched file of an epoll set.
=======
//! One interest: a file under a descriptor, what is to be watched, and what the program gets back.
>>>>>>> d8a845b (Add the file layer: path walk, mounts, open files, pipes, epoll, inotify, locks)

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bitflags::bitflags;
<<<<<<< HEAD
use sync::IrqSpinLock;

use super::Epoll;
use crate::file::OpenFile;
use crate::poll::{Notified, PollEvents, PollWatcher};

bitflags! {
    /// The event word of `epoll_ctl`: events of interest and how they are reported.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
    pub struct EpollFlags: u32 {
        /// Wake only one of several sets that watch the file.
        const EXCLUSIVE = 1 << 28;
        /// Keeps a machine awake; no meaning here.
        const WAKE_UP = 1 << 29;
        /// Report once, then wait for a modification.
        const ONE_SHOT = 1 << 30;
        /// Report changes, not states.
        const EDGE = 1 << 31;
        /// The events themselves.
=======
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
>>>>>>> d8a845b (Add the file layer: path walk, mounts, open files, pipes, epoll, inotify, locks)
        const _ = !0;
    }
}

<<<<<<< HEAD
impl EpollFlags {
    /// The bits that say how to report.
    pub const MODES: Self = Self::EXCLUSIVE.union(Self::WAKE_UP).union(Self::ONE_SHOT).union(Self::EDGE);

    /// The events of interest, with those that are always reported.
    pub fn events(self) -> PollEvents {
        PollEvents::from_bits_truncate(self.difference(Self::MODES).bits()) | PollEvents::ALWAYS
    }
}

#[derive(Clone, Copy)]
struct Interest {
    flags: EpollFlags,
    data: u64,
    disabled: bool,
}

/// A watched file.
pub struct EpollItem {
    this: Weak<Self>,
    epoll: Weak<Epoll>,
    file: Weak<OpenFile>,
    file_id: u64,
    descriptor: i32,
    interest: IrqSpinLock<Interest>,
    queued: AtomicBool,
    /// Counts modifications; registrations made before the last one are stale. [`DEAD`] once removed.
    generation: AtomicU64,
}

const DEAD: u64 = u64::MAX;

impl EpollItem {
    pub(super) fn new(
        epoll: &Weak<Epoll>,
        file: &Arc<OpenFile>,
        descriptor: i32,
        flags: EpollFlags,
        data: u64,
    ) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            epoll: epoll.clone(),
            file: Arc::downgrade(file),
            file_id: file.id(),
            descriptor,
            interest: IrqSpinLock::new(Interest { flags, data, disabled: false }),
            queued: AtomicBool::new(false),
            generation: AtomicU64::new(0),
        })
    }

    /// The descriptor it was added with.
    pub fn descriptor(&self) -> i32 {
        self.descriptor
    }

    pub(super) fn key(&self) -> (i32, u64) {
        (self.descriptor, self.file_id)
    }

    pub(super) fn interest(&self) -> (EpollFlags, u64) {
        let interest = self.interest.lock();
        (interest.flags, interest.data)
    }

    /// The events that would be reported now; none while disabled.
    pub(super) fn wanted(&self) -> PollEvents {
        let interest = self.interest.lock();
        if interest.disabled { PollEvents::empty() } else { interest.flags.events() }
    }

    pub(super) fn set_interest(&self, flags: EpollFlags, data: u64) {
        *self.interest.lock() = Interest { flags, data, disabled: false };
    }

    pub(super) fn disable(&self) {
        self.interest.lock().disabled = true;
    }

    pub(super) fn file(&self) -> Option<Arc<OpenFile>> {
        if self.is_dead() { None } else { self.file.upgrade() }
    }

    /// A new generation: earlier registrations become stale.
    pub(super) fn renew(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(super) fn is_dead(&self) -> bool {
        self.generation() == DEAD
    }

    pub(super) fn kill(&self) {
        self.generation.store(DEAD, Ordering::Release);
    }

    /// The last descriptor of the watched file is gone.
    pub(crate) fn file_closed(&self) {
        self.kill();
        if let Some(epoll) = self.epoll.upgrade() {
            epoll.forget(self.key());
        }
    }

    /// Marks the item as taken out of the ready list: from here on an event queues it again.
    pub(super) fn dequeued(&self) {
        // AcqRel: the question to the file comes after, so no event is lost in between.
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Queues it unless it is queued already.
    pub(super) fn queue(&self) -> bool {
        if self.is_dead() || self.queued.swap(true, Ordering::AcqRel) {
            return false;
        }
        match (self.epoll.upgrade(), self.this.upgrade()) {
            (Some(epoll), Some(item)) => {
                epoll.enqueue(item);
                true
            }
            _ => false,
        }
=======
impl EpollEvents {
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
    /// In the ready list.
    pub(super) queued: AtomicBool,
    /// Removed.
    pub(super) dead: AtomicBool,
    /// Counted up when the interest changes: older registrations are stale.
    pub(super) generation: AtomicU64,
}

impl EpollItem {
    /// What is ready of what is watched.
    pub(super) fn ready(&self) -> PollEvents {
        let Some(file) = self.file.upgrade() else { return PollEvents::empty() };
        let interest = self.event.lock().events.poll_events();
        if interest.is_empty() {
            // One-shot, and shot.
            return PollEvents::empty();
        }
        file.poll(None) & (interest | PollEvents::ALWAYS)
    }

    /// Registers with the file, and queues itself if it is ready already.
    pub(super) fn arm(self: &Arc<Self>, file: &OpenFile) -> Result<()> {
        let event = *self.event.lock();
        let watcher: Arc<dyn PollWatcher> = self.clone();
        let generation = self.generation.load(Ordering::Acquire);
        let exclusive = event.events.contains(EpollEvents::EXCLUSIVE);
        let interest = event.events.poll_events();
        let mut table = PollTable::new(&watcher, generation, interest, exclusive);
        let ready = file.poll(Some(&mut table)) & (interest | PollEvents::ALWAYS);
        if table.failed() {
            return Err(Error::OutOfMemory);
        }
        if !ready.is_empty() {
            self.shared.enqueue(self);
        }
        Ok(())
    }

    /// The file is gone, and the interest with it.
    pub(crate) fn file_closed(self: &Arc<Self>) {
        let shared = self.shared.clone();
        shared.remove(self);
>>>>>>> d8a845b (Add the file layer: path walk, mounts, open files, pipes, epoll, inotify, locks)
    }
}

impl PollWatcher for EpollItem {
<<<<<<< HEAD
    fn notify(&self, key: u64, events: PollEvents) -> Notified {
        if self.is_stale(key) {
            return Notified::Remove;
        }
        if !self.wanted().intersects(events) {
            return Notified::Keep;
        }
        if self.queue() { Notified::Taken } else { Notified::Keep }
    }

    fn is_stale(&self, key: u64) -> bool {
        self.generation() != key || self.epoll.strong_count() == 0
=======
    fn notify(&self, key: u64, _events: PollEvents) -> Notified {
        if self.is_stale(key) {
            return Notified::Remove;
        }
        if self.shared.enqueue(self) { Notified::Taken } else { Notified::Keep }
    }

    fn is_stale(&self, key: u64) -> bool {
        self.dead.load(Ordering::Acquire) || self.generation.load(Ordering::Acquire) != key
>>>>>>> d8a845b (Add the file layer: path walk, mounts, open files, pipes, epoll, inotify, locks)
    }
}
