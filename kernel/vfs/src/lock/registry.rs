//! All files that have or had locks, for `/proc/locks`.
//!
//! A file comes in when its first lock is asked for and stays in memory's books until its inode goes. Files that are gone are cleared away when twice as many are
//! known as were left by the last clearing, so the steps that takes are paid for by those who came in, and a file that goes, wherever that happens,
//! takes no lock here.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;

use sync::SpinLock;

use super::state::FileLocks;
use crate::{Result, allocation};

/// Files below which nothing is cleared away.
const FILES_MIN: usize = 64;

struct Known {
    number: u64,
    locks: Weak<FileLocks>,
}

struct Registry {
    /// By ascending numbers.
    files: Vec<Known>,
    next: u64,
    clear_from: usize,
}

static REGISTRY: SpinLock<Registry> =
    SpinLock::named("files with locks", Registry { files: Vec::new(), next: 1, clear_from: FILES_MIN });

/// A file's first lock is asked for.
pub(super) fn add(locks: &Arc<FileLocks>) -> Result<()> {
    let mut registry = allocation::lock_with_room(|| REGISTRY.lock(), 1, |registry| &mut registry.files)?;
    if registry.files.len() >= registry.clear_from {
        registry.files.retain(|known| known.locks.strong_count() > 0);
        registry.clear_from = FILES_MIN.max(2 * registry.files.len());
    }
    let number = registry.next;
    registry.next += 1;
    registry.files.push(Known { number, locks: Arc::downgrade(locks) });
    Ok(())
}

/// Calls `each` with every file that has locks, in the order in which they were first locked.
pub fn for_each_file(mut each: impl FnMut(&FileLocks)) {
    let mut last = 0;
    loop {
        let next = {
            let registry = REGISTRY.lock();
            let index = registry.files.partition_point(|known| known.number <= last);
            registry.files.get(index).map(|known| (known.number, known.locks.upgrade()))
        };
        let Some((number, locks)) = next else { return };
        last = number;
        if let Some(locks) = locks {
            each(&locks);
        }
    }
}
