//! The device behind caches: how much of it is dirty, and which files.
//!
//! Files with dirty pages wait in their device's queue, each once, linked through themselves, so that entering one takes no memory. The queue keeps a file that nobody has open
//! alive until it is written. Whoever writes back takes the whole queue, oldest first.

use super::backing::Backing;
use super::cache::FileCache;
use super::errors::WriteErrors;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use sync::{Once, SpinLock};

/// Pages read ahead at most, unless somebody wants another number: 128 KiB.
pub const READ_AHEAD_PAGES: u32 = 32;
/// Pages that are read ahead at a time whatever somebody wants: 32 MiB.
const READ_AHEAD_PAGES_MAX: u32 = 8192;

/// How many pages are read ahead at most, of a disk and all of its partitions.
pub struct ReadAheadLimit(AtomicU32);

impl Default for ReadAheadLimit {
    fn default() -> Self {
        Self(AtomicU32::new(READ_AHEAD_PAGES))
    }
}

impl ReadAheadLimit {
    /// The number as it was set.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// Sets it.
    pub fn set_pages(&self, pages: u32) {
        self.0.store(pages, Relaxed);
    }
}

/// See the theory of this file.
pub struct BackingDevice {
    name: String,
    /// None: the usual limit.
    read_ahead: Once<Arc<ReadAheadLimit>>,
    dirty: AtomicU64,
    under_write_back: AtomicU64,
    /// Pages written since the start.
    written: AtomicU64,
    /// The youngest; others follow.
    queue: SpinLock<Option<Arc<FileCache>>>,
    wake: Once<Box<dyn Fn(Event) + Send + Sync>>,
    /// Those of all its files.
    errors: WriteErrors,
}

/// What whoever writes back is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A file became dirty.
    FileDirty,
    /// Pages were written.
    PagesWritten,
    /// A program makes a page dirty through a mapping. The caller may sleep, and may be kept waiting as those who write are.
    PageStored,
}

/// Pages of all devices.
static DIRTY: AtomicU64 = AtomicU64::new(0);
static UNDER_WRITE_BACK: AtomicU64 = AtomicU64::new(0);
static DIRTIED: AtomicU64 = AtomicU64::new(0);
static WRITTEN: AtomicU64 = AtomicU64::new(0);

/// How many pages of all files are in which state, and how many ever were.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteBackCounts {
    /// Dirty.
    pub dirty: u64,
    /// Being written.
    pub under_write_back: u64,
    /// Ever became dirty.
    pub dirtied: u64,
    /// Were written.
    pub written: u64,
}

/// The counts of all devices.
pub fn write_back_counts() -> WriteBackCounts {
    WriteBackCounts {
        dirty: DIRTY.load(Relaxed),
        under_write_back: UNDER_WRITE_BACK.load(Relaxed),
        dirtied: DIRTIED.load(Relaxed),
        written: WRITTEN.load(Relaxed),
    }
}

impl BackingDevice {
    /// A device of this name.
    #[must_use]
    pub const fn new(name: String) -> BackingDevice {
        BackingDevice {
            name,
            read_ahead: Once::new(),
            dirty: AtomicU64::new(0),
            under_write_back: AtomicU64::new(0),
            written: AtomicU64::new(0),
            queue: SpinLock::named("dirty files of a device", None),
            wake: Once::new(),
            errors: WriteErrors::new(),
        }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets what is called when something happens. Only the first call counts.
    pub fn on_event(&self, wake: Box<dyn Fn(Event) + Send + Sync>) {
        self.wake.call_once(|| wake);
    }

    /// Pages read ahead at most.
    #[must_use]
    pub fn read_ahead_pages(&self) -> u32 {
        let limit = self.read_ahead.get().map_or(READ_AHEAD_PAGES, |limit| limit.pages());
        limit.min(READ_AHEAD_PAGES_MAX)
    }

    /// Has this limit count, which others may share. Only the first call does something.
    pub fn share_read_ahead(&self, limit: Arc<ReadAheadLimit>) {
        self.read_ahead.call_once(|| limit);
    }

    /// Errors of writing any of its files: what `syncfs` tells.
    #[must_use]
    pub fn write_errors(&self) -> &WriteErrors {
        &self.errors
    }

    /// Dirty pages of its files.
    #[must_use]
    pub fn dirty_pages(&self) -> u64 {
        self.dirty.load(Relaxed)
    }

    /// Pages on their way to it.
    #[must_use]
    pub fn pages_under_write_back(&self) -> u64 {
        self.under_write_back.load(Relaxed)
    }

    /// Pages written since the start.
    #[must_use]
    pub fn pages_written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Takes all files that have become dirty, oldest first. Each must be entered again if it is still dirty afterwards
    /// ([`FileCache::requeue`]).
    #[must_use]
    pub fn take_dirty(&self) -> DirtyFiles {
        let mut taken = self.queue.lock().take();
        let mut oldest = None;
        while let Some(file) = taken {
            let backing = file.backing().expect("files in the queue have a device");
            let mut next = backing.next.lock();
            taken = core::mem::replace(&mut *next, oldest);
            drop(next);
            oldest = Some(file);
        }
        DirtyFiles(oldest)
    }

    /// Whether files wait to be written.
    #[must_use]
    pub fn has_dirty_files(&self) -> bool {
        self.queue.lock().is_some()
    }

    pub(super) fn enter(&self, backing: &Backing, file: Arc<FileCache>) {
        {
            let mut queue = self.queue.lock();
            *backing.next.lock() = queue.take();
            *queue = Some(file);
        }
        self.tell(Event::FileDirty);
    }

    pub(super) fn count(&self, dirty: i64, under_write_back: i64) {
        if dirty > 0 {
            DIRTIED.fetch_add(dirty as u64, Relaxed);
        }
        for count in [&self.dirty, &DIRTY] {
            count.fetch_add(dirty as u64, Relaxed);
        }
        if under_write_back != 0 {
            for count in [&self.under_write_back, &UNDER_WRITE_BACK] {
                count.fetch_add(under_write_back as u64, Relaxed);
            }
        }
    }

    pub(super) fn wrote(&self, pages: u64) {
        self.written.fetch_add(pages, Relaxed);
        WRITTEN.fetch_add(pages, Relaxed);
        self.tell(Event::PagesWritten);
    }

    pub(super) fn tell(&self, event: Event) {
        if let Some(wake) = self.wake.get() {
            wake(event);
        }
    }
}

/// Files taken from a queue, oldest first.
pub struct DirtyFiles(Option<Arc<FileCache>>);

impl Iterator for DirtyFiles {
    type Item = Arc<FileCache>;

    fn next(&mut self) -> Option<Arc<FileCache>> {
        let file = self.0.take()?;
        let backing = file.backing().expect("files in the queue have a device");
        self.0 = backing.next.lock().take();
        // From here on it may be entered again.
        backing.leave_queue();
        Some(file)
    }
}

impl Drop for DirtyFiles {
    /// What was not looked at goes back.
    fn drop(&mut self) {
        for file in self.by_ref() {
            file.requeue();
        }
    }
}
