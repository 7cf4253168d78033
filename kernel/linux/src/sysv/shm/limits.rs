//! How much shared memory there may be: `/proc/sys/kernel/shmmax`, `shmall`, `shmmni`.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::name_space::{Space, WeakSpace};
use crate::sysv::registry::PLACES_MAX;
use crate::sysv::space::IpcSpace;

/// Smallest segment in bytes (SHMMIN).
pub const LEAST_BYTES: u64 = 1;

/// As good as none, and yet sums with it don't overflow: Linux's choice.
const UNLIMITED: u64 = u64::MAX - (1 << 24);
const SEGMENTS_DEFAULT: u64 = 4096;

/// What the limit on segments can be set to at most.
pub const SEGMENTS_MOST: u64 = PLACES_MAX as u64;

/// Those of a name space. Relaxed, all of them: a change counts for segments made later.
pub struct Limits {
    /// Largest segment in bytes.
    pub bytes_max: AtomicU64,
    /// Pages in all segments.
    pub pages_max: AtomicU64,
    /// Segments.
    pub segments_max: AtomicU64,
    pages: AtomicU64,
}

impl Limits {
    pub(in crate::sysv) const fn new() -> Self {
        Self {
            bytes_max: AtomicU64::new(UNLIMITED),
            pages_max: AtomicU64::new(UNLIMITED),
            segments_max: AtomicU64::new(SEGMENTS_DEFAULT),
            pages: AtomicU64::new(0),
        }
    }

    /// Pages in all segments.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }
}

/// A segment's pages in the sum of all; given back on drop.
pub struct PageClaim {
    pages: u64,
    space: WeakSpace<IpcSpace>,
}

impl PageClaim {
    /// Claims pages; `None` when there are too many.
    pub(super) fn new(pages: u64, space: WeakSpace<IpcSpace>) -> Option<Self> {
        let limits = &space.upgrade()?.memory_limits;
        let limit = limits.pages_max.load(Ordering::Relaxed);
        let add = |sum: u64| sum.checked_add(pages).filter(|&sum| sum <= limit);
        limits.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self { pages, space })
    }
}

impl PageClaim {
    /// Where the segment is.
    pub(super) fn space(&self) -> Option<Space<IpcSpace>> {
        self.space.upgrade()
    }
}

impl Drop for PageClaim {
    fn drop(&mut self) {
        if let Some(space) = self.space.upgrade() {
            space.memory_limits.pages.fetch_sub(self.pages, Ordering::Relaxed);
        }
    }
}
