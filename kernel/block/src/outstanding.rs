//! How many requests the driver has, when something moved last, and whether a watch looks after them.
//!
//! # The handshake of the watch
//! A request that begins is counted, and then the watch is claimed if it sleeps. The watch that finds nothing to do
//! goes to sleep, and then looks at the count once more. One of both must see the other, although each writes and then
//! reads. So the last look at the count is a read-modify-write operation like the counting itself: whichever of the two
//! comes later reads what the other left, and acquires what it did before.
//!
//! `tests/models.rs` compiles this file against loom's atomics and tries all interleavings.

#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// See the theory of this file.
pub(crate) struct Outstanding {
    count: AtomicU32,
    /// When the driver last took or ended a request, ns since boot.
    progress_ns: AtomicU64,
    /// Whether the watch is awake, or about to be.
    watched: AtomicBool,
}

impl Outstanding {
    pub(crate) fn new() -> Self {
        Self { count: AtomicU32::new(0), progress_ns: AtomicU64::new(0), watched: AtomicBool::new(false) }
    }

    /// Requests that the driver has.
    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The driver is given a request.
    pub(crate) fn begin(&self, now_ns: u64) {
        // Before the count: whoever sees the request sees that it is new.
        self.progressed(now_ns);
        // Acquire: pairs with `end_watch`. Release: with that, and with the look in `silent_since`.
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// The driver has refused a request.
    pub(crate) fn withdraw(&self) {
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// The driver has ended a request.
    pub(crate) fn end(&self, now_ns: u64) {
        self.progressed(now_ns);
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// Something has moved.
    pub(crate) fn progressed(&self, now_ns: u64) {
        self.progress_ns.store(now_ns, Ordering::Relaxed);
    }

    /// Since when nothing has moved, ns since boot, if the driver has requests.
    pub(crate) fn silent_since(&self) -> Option<u64> {
        // Acquire: the time is not older than the request.
        (self.count.load(Ordering::Acquire) > 0).then(|| self.progress_ns.load(Ordering::Relaxed))
    }

    /// Whether the watch sleeps; it counts as awake from now on, and the caller is the one to wake it.
    pub(crate) fn claim_watch(&self) -> bool {
        // Usually awake already: a look is cheaper than a swap.
        !self.watched.load(Ordering::Relaxed) && !self.watched.swap(true, Ordering::AcqRel)
    }

    /// The watch sleeps from now on. Whether a request has come meanwhile: then it must be claimed again, unless that
    /// request's own look has done so.
    pub(crate) fn end_watch(&self) -> bool {
        self.watched.store(false, Ordering::Release);
        // Not a load, which might pass the store; see the theory of this file.
        self.count.fetch_add(0, Ordering::AcqRel) > 0
    }
}
