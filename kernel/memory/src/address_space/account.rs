//! Committed memory: what programs have been promised (`Committed_AS`).
//!
//! A region counts when its pages may become private copies or shared memory of nobody else's: private and writable, or
//! shared and anonymous. In mode 0 a request is refused only when it could never be met; in mode 1 none is refused; in
//! mode 2 the sum is limited. The counter is per CPU: only mode 2 needs the sum. Shared memory that exists without being mapped is
//! promised by a [`Commitment`].

use super::MapError;
use crate::frame;
use core::sync::atomic::{AtomicU32, Ordering};
use sync::PerCpuCounter;

/// How much may be promised (`/proc/sys/vm/overcommit_memory`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitMode {
    /// 0: refuse what is obviously too much.
    Heuristic,
    /// 1: refuse nothing.
    Always,
    /// 2: refuse what goes beyond the limit.
    Never,
}

static COMMITTED: PerCpuCounter = PerCpuCounter::new();
static MODE: AtomicU32 = AtomicU32::new(0);
/// Percent of memory (`/proc/sys/vm/overcommit_ratio`).
static RATIO: AtomicU32 = AtomicU32::new(50);

/// Requests of no more pages than this are never obviously too much: 8 MiB.
const SMALL_PAGES: u64 = 2048;

/// Sets the mode.
pub fn set_commit_mode(mode: CommitMode) {
    MODE.store(mode as u32, Ordering::Relaxed);
}

/// Sets the percentage of memory that mode 2 may promise.
pub fn set_commit_ratio(percent: u32) {
    RATIO.store(percent, Ordering::Relaxed);
}

/// The mode.
#[must_use]
pub fn commit_mode() -> CommitMode {
    match MODE.load(Ordering::Relaxed) {
        1 => CommitMode::Always,
        2 => CommitMode::Never,
        _ => CommitMode::Heuristic,
    }
}

/// The percentage of memory that mode 2 may promise.
#[must_use]
pub fn commit_ratio() -> u32 {
    RATIO.load(Ordering::Relaxed)
}

/// Pages promised now.
#[must_use]
pub fn committed_pages() -> u64 {
    COMMITTED.sum().max(0).cast_unsigned()
}

/// Pages that mode 2 may promise.
#[must_use]
pub fn commit_limit_pages() -> u64 {
    frame::total_frames() * u64::from(RATIO.load(Ordering::Relaxed)) / 100
}

/// Pages promised to an object that no region stands for; taken back on drop.
#[derive(Debug)]
pub struct Commitment(u64);

impl Commitment {
    /// Promises pages.
    ///
    /// # Errors
    /// [`MapError::OutOfMemory`]: more than may be promised.
    pub fn new(pages: u64) -> Result<Commitment, MapError> {
        charge(pages).map(|()| Commitment(pages))
    }
}

impl Drop for Commitment {
    fn drop(&mut self) {
        release(self.0);
    }
}

/// Promises pages.
pub(super) fn charge(pages: u64) -> Result<(), MapError> {
    let refused = match commit_mode() {
        CommitMode::Always => false,
        CommitMode::Heuristic => pages > SMALL_PAGES && pages > frame::total_frames(),
        CommitMode::Never => pages > 0 && committed_pages() + pages > commit_limit_pages(),
    };
    if refused {
        return Err(MapError::OutOfMemory);
    }
    COMMITTED.add(pages.cast_signed());
    Ok(())
}

/// Takes a promise back.
pub(super) fn release(pages: u64) {
    if pages > 0 {
        COMMITTED.add(-pages.cast_signed());
    }
}
