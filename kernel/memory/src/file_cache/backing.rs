//! What a cache has more when its pages have a home elsewhere.

use super::cache::FileCache;
use super::device::BackingDevice;
use super::errors::WriteErrors;
use super::representative::FileRepresentative;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Once, SpinLock};

/// See the theory of this file.
pub(super) struct Backing {
    pub(super) representative: Arc<dyn FileRepresentative>,
    pub(super) device: Arc<BackingDevice>,
    /// The cache that this belongs to; set before anybody has it.
    pub(super) cache: Once<Weak<FileCache>>,
    /// Dirty pages; changed under the index's lock.
    pub(super) dirty: AtomicU64,
    /// Pages being written; changed under the index's lock.
    pub(super) under_write_back: AtomicU64,
    pub(super) errors: WriteErrors,
    /// Runs that lacked memory: their pages became dirty again.
    pub(super) starved: AtomicU64,
    /// Where memory reclaim goes on looking for pages to give up.
    pub(super) hand: AtomicU64,
    /// In the device's queue, or taken from it and not looked at yet.
    queued: AtomicBool,
    /// When it last became dirty after having been clean, ns since boot.
    pub(super) dirty_since_ns: AtomicU64,
    /// The next older one in the device's queue.
    pub(super) next: SpinLock<Option<Arc<FileCache>>>,
}

impl Backing {
    pub(super) fn new(representative: Arc<dyn FileRepresentative>, device: Arc<BackingDevice>) -> Backing {
        Backing {
            representative,
            device,
            cache: Once::new(),
            dirty: AtomicU64::new(0),
            under_write_back: AtomicU64::new(0),
            errors: WriteErrors::default(),
            starved: AtomicU64::new(0),
            hand: AtomicU64::new(0),
            queued: AtomicBool::new(false),
            dirty_since_ns: AtomicU64::new(0),
            next: SpinLock::named("next dirty file", None),
        }
    }

    /// The cache.
    pub(super) fn own(&self) -> Arc<FileCache> {
        let own = self.cache.get().and_then(Weak::upgrade);
        own.expect("a cache is used as long as somebody has it")
    }

    /// Counts pages that change their state. The index's lock is held.
    pub(super) fn count(&self, dirty: i64, under_write_back: i64) {
        let change = |count: &AtomicU64, by: i64| {
            let now = count.load(Ordering::Relaxed).wrapping_add_signed(by);
            debug_assert!(now <= i64::MAX as u64, "as many pages leave a state as entered it");
            count.store(now, Ordering::Relaxed);
        };
        change(&self.dirty, dirty);
        change(&self.under_write_back, under_write_back);
        self.device.count(dirty, under_write_back);
    }

    /// Has the device's queue know that there are dirty pages; call after they were tagged. `again`: the file keeps its age.
    pub(super) fn enqueue(&self, cache: &Arc<FileCache>, again: bool) {
        // SeqCst: pairs with `leave_queue`. Who finds it queued has tagged pages early enough for whoever takes it.
        if !self.queued.swap(true, Ordering::SeqCst) {
            if !again {
                self.dirty_since_ns.store(machine::time::now_ns(), Ordering::Relaxed);
            }
            self.device.enter(self, cache.clone());
        }
    }

    /// It was taken from the queue; call before looking for dirty pages.
    pub(super) fn leave_queue(&self) {
        // SeqCst: pairs with `enqueue`.
        self.queued.store(false, Ordering::SeqCst);
    }
}
