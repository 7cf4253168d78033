//! How much shared memory there may be: `/proc/sys/kernel/shmmax`, `shmall`, `shmmni`.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::sysv::registry::PLACES_MAX;

/// Smallest segment in bytes (SHMMIN).
pub const LEAST_BYTES: u64 = 1;

/// As good as none, and yet sums with it don't overflow: Linux's choice.
const UNLIMITED: u64 = u64::MAX - (1 << 24);
const SEGMENTS_DEFAULT: u64 = 4096;

// Relaxed, all of them: a change counts for segments made later.
/// Largest segment in bytes.
pub static BYTES_MAX: AtomicU64 = AtomicU64::new(UNLIMITED);
/// Pages in all segments.
pub static PAGES_MAX: AtomicU64 = AtomicU64::new(UNLIMITED);
/// Segments.
pub static SEGMENTS_MAX: AtomicU64 = AtomicU64::new(SEGMENTS_DEFAULT);

/// What [`SEGMENTS_MAX`] can be set to at most.
pub const SEGMENTS_MOST: u64 = PLACES_MAX as u64;

static PAGES: AtomicU64 = AtomicU64::new(0);

/// A segment's pages in the sum of all; given back on drop.
pub struct PageClaim(u64);

impl PageClaim {
    /// Claims pages; `None` when there are too many.
    pub fn new(pages: u64) -> Option<PageClaim> {
        let limit = PAGES_MAX.load(Ordering::Relaxed);
        let add = |sum: u64| sum.checked_add(pages).filter(|&sum| sum <= limit);
        PAGES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(|_| PageClaim(pages))
    }
}

impl Drop for PageClaim {
    fn drop(&mut self) {
        PAGES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// Pages in all segments.
pub fn pages() -> u64 {
    PAGES.load(Ordering::Relaxed)
}
