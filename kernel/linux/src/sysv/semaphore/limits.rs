//! How many semaphores there may be: `/proc/sys/kernel/sem`.

use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::sysv::registry::PLACES_MAX;

/// Highest value of a semaphore (SEMVMX).
pub const VALUE_MAX: i32 = 32767;
/// Highest adjustment that a process leaves (SEMAEM).
pub const ADJUSTMENT_MAX: i32 = 32767;

/// Most semaphores in a set, in all sets, most operations of a call, most sets: as `/proc/sys/kernel/sem` lists them.
/// Relaxed: a change counts for sets made later and calls made later.
pub static LIMITS: [AtomicU64; 4] =
    [AtomicU64::new(32_000), AtomicU64::new(1_024_000_000), AtomicU64::new(500), AtomicU64::new(32_000)];
/// What each can be set to at most.
const MOST: [u64; 4] = [32_000, i32::MAX as u64, 1 << 16, PLACES_MAX as u64];

static SEMAPHORES: AtomicU64 = AtomicU64::new(0);

fn limit(index: usize) -> usize {
    LIMITS[index].load(Ordering::Relaxed) as usize
}

/// Most semaphores in a set.
pub fn in_set() -> usize {
    limit(0)
}

/// Most semaphores in all sets.
pub fn in_all() -> usize {
    limit(1)
}

/// Most operations of a call.
pub fn operations() -> usize {
    limit(2)
}

/// Most sets.
pub fn sets() -> usize {
    limit(3)
}

/// Shows the limits.
///
/// # Errors
/// What the text returns.
pub fn show(out: &mut dyn Write) -> core::fmt::Result {
    let [in_set, in_all, operations, sets] = LIMITS.each_ref().map(|limit| limit.load(Ordering::Relaxed));
    writeln!(out, "{in_set}\t{in_all}\t{operations}\t{sets}")
}

/// Takes new limits: as many of the four numbers as there are. All are looked at before one counts.
///
/// # Errors
/// [`vfs::Error::Invalid`].
pub fn store(bytes: &[u8]) -> vfs::Result<()> {
    let text = core::str::from_utf8(bytes).map_err(|_| vfs::Error::Invalid)?;
    let mut new = LIMITS.each_ref().map(|limit| limit.load(Ordering::Relaxed));
    let mut given = 0;
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        let value = word.parse().ok().filter(|value| MOST.get(index).is_some_and(|most| value <= most));
        new[index] = value.ok_or(vfs::Error::Invalid)?;
        given += 1;
    }
    if given == 0 {
        return Err(vfs::Error::Invalid);
    }
    for (limit, value) in LIMITS.iter().zip(new) {
        limit.store(value, Ordering::Relaxed);
    }
    Ok(())
}

/// Semaphores in all sets.
pub fn used() -> u64 {
    SEMAPHORES.load(Ordering::Relaxed)
}

/// A set's semaphores in the sum of all; given back on drop.
pub struct SemaphoreClaim(u64);

impl SemaphoreClaim {
    /// Claims semaphores; `None` when there are too many.
    pub fn new(semaphores: usize) -> Option<SemaphoreClaim> {
        let (wanted, most) = (semaphores as u64, in_all() as u64);
        let add = |sum: u64| sum.checked_add(wanted).filter(|&sum| sum <= most);
        SEMAPHORES
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, add)
            .ok()
            .map(|_| SemaphoreClaim(wanted))
    }
}

impl Drop for SemaphoreClaim {
    fn drop(&mut self) {
        SEMAPHORES.fetch_sub(self.0, Ordering::Relaxed);
    }
}
