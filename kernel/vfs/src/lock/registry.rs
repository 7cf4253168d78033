//! All files that have or had locks, for `/proc/locks`.
//!
//! A file comes in when its first lock is asked for, and leaves with its inode, which may be where nothing may sleep.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU64, Ordering};

use sync::SpinLock;

use super::chunks::Chunks;
use super::state::FileLocks;
use crate::Result;

struct Known {
    number: u64,
    locks: Weak<FileLocks>,
}

/// By ascending numbers.
static FILES: SpinLock<Chunks<Known>> = SpinLock::named("files with locks", Chunks::new());
/// 0 is no file's number.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A number for a file that comes in.
pub(super) fn next_number() -> u64 {
    // Relaxed: only uniqueness matters.
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A file's first lock is asked for.
pub(super) fn add(number: u64, locks: &Arc<FileLocks>) -> Result<()> {
    let mut files = FILES.lock();
    let place = files.seek(|known| known.number < number);
    let place = files.make_room(place)?;
    files.replace(place, 0, core::iter::once(Known { number, locks: Arc::downgrade(locks) }));
    Ok(())
}

/// The file is gone; it is not known if there was no memory for it.
pub(super) fn remove(number: u64) {
    let mut files = FILES.lock();
    let place = files.seek(|known| known.number < number);
    if files.get(place).is_some_and(|known| known.number == number) {
        files.replace(place, 1, core::iter::empty());
    }
}

/// Calls `each` with every file that has locks, in the order in which they were first locked.
pub fn for_each_file(mut each: impl FnMut(&FileLocks)) {
    let mut last = 0;
    loop {
        let next = {
            let files = FILES.lock();
            let place = files.seek(|known| known.number <= last);
            files.get(place).map(|known| (known.number, known.locks.upgrade()))
        };
        let Some((number, locks)) = next else { return };
        last = number;
        // Who ends here as the last one takes the list's lock again.
        if let Some(locks) = locks {
            each(&locks);
        }
    }
}
