//! How many semaphores there may be: `/proc/sys/kernel/sem`.

use core::fmt::Write;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::name_space::{Space, WeakSpace};
use crate::sysv::registry::PLACES_MAX;
use crate::sysv::space::IpcSpace;

/// Highest value of a semaphore (SEMVMX).
pub const VALUE_MAX: i32 = 32767;
/// Highest adjustment that a process leaves (SEMAEM).
pub const ADJUSTMENT_MAX: i32 = 32767;

/// What each can be set to at most.
const MOST: [u64; 4] = [32_000, i32::MAX as u64, 1 << 16, PLACES_MAX as u64];

/// Those of a name space.
pub struct Limits {
    /// Most semaphores in a set, in all sets, most operations of a call, most sets: as `/proc/sys/kernel/sem` lists them.
    /// Relaxed: a change counts for sets made later and calls made later.
    most: [AtomicU64; 4],
    semaphores: AtomicU64,
}

impl Limits {
    pub(in crate::sysv) const fn new() -> Self {
        let most = [
            AtomicU64::new(32_000),
            AtomicU64::new(1_024_000_000),
            AtomicU64::new(500),
            AtomicU64::new(32_000),
        ];
        Self { most, semaphores: AtomicU64::new(0) }
    }

    fn limit(&self, index: usize) -> usize {
        self.most[index].load(Ordering::Relaxed) as usize
    }

    /// Most semaphores in a set.
    pub fn in_set(&self) -> usize {
        self.limit(0)
    }

    /// Most semaphores in all sets.
    pub fn in_all(&self) -> usize {
        self.limit(1)
    }

    /// Most operations of a call.
    pub fn operations(&self) -> usize {
        self.limit(2)
    }

    /// Most sets.
    pub fn sets(&self) -> usize {
        self.limit(3)
    }

    /// Semaphores in all sets.
    pub fn used(&self) -> u64 {
        self.semaphores.load(Ordering::Relaxed)
    }
}

/// Shows the limits.
///
/// # Errors
/// What the text returns.
pub fn show(limits: &Limits, out: &mut dyn Write) -> core::fmt::Result {
    let [in_set, in_all, operations, sets] =
        limits.most.each_ref().map(|limit| limit.load(Ordering::Relaxed));
    writeln!(out, "{in_set}\t{in_all}\t{operations}\t{sets}")
}

/// Takes new limits: as many of the four numbers as there are. All are looked at before one counts.
///
/// # Errors
/// [`vfs::Error::Invalid`].
pub fn store(limits: &Limits, bytes: &[u8]) -> vfs::Result<()> {
    let text = core::str::from_utf8(bytes).map_err(|_| vfs::Error::Invalid)?;
    let mut new = limits.most.each_ref().map(|limit| limit.load(Ordering::Relaxed));
    let mut given = 0;
    for (index, word) in text.split_ascii_whitespace().enumerate() {
        let value = word.parse().ok().filter(|value| MOST.get(index).is_some_and(|most| value <= most));
        new[index] = value.ok_or(vfs::Error::Invalid)?;
        given += 1;
    }
    if given == 0 {
        return Err(vfs::Error::Invalid);
    }
    for (limit, value) in limits.most.iter().zip(new) {
        limit.store(value, Ordering::Relaxed);
    }
    Ok(())
}

/// A set's semaphores in the sum of all; given back on drop.
pub struct SemaphoreClaim {
    semaphores: u64,
    space: WeakSpace<IpcSpace>,
}

impl SemaphoreClaim {
    /// Claims semaphores; `None` when there are too many.
    pub(super) fn new(semaphores: usize, space: WeakSpace<IpcSpace>) -> Option<Self> {
        let limits = &space.upgrade()?.semaphore_limits;
        let (semaphores, most) = (semaphores as u64, limits.in_all() as u64);
        let add = |sum: u64| sum.checked_add(semaphores).filter(|&sum| sum <= most);
        limits.semaphores.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Self { semaphores, space })
    }

    /// Where the set is.
    pub(super) fn space(&self) -> Option<Space<IpcSpace>> {
        self.space.upgrade()
    }
}

impl Drop for SemaphoreClaim {
    fn drop(&mut self) {
        if let Some(space) = self.space.upgrade() {
            space.semaphore_limits.semaphores.fetch_sub(self.semaphores, Ordering::Relaxed);
        }
    }
}
