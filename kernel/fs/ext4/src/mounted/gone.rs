//! Files that nobody can reach any more: without names, and nobody has them open. They are deleted a few at a time.
//!
//! The last one who has such a file may be where nothing may sleep, so it only notes it. Removals of names delete what was noted when it is
//! worth it, who finds no space or asks how much there is deletes all, and the thread that commits does every five seconds. What a crash leaves, the
//! list of orphans has.
//!
//! The end of a mount deletes what is in the list of orphans, and after it nobody deletes anything. When the machine ends, programs may still have
//! files open: those are left in the list, for the next mount.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};

use memory::fallible;
use sync::SpinLock;

use super::instance::{Instance, now};
use super::pages::File;
use crate::Writer;

/// Files that are deleted together, and that wait for that before a removal of a name does it.
const DELETED_TOGETHER: usize = 8;
/// So many times are files deleted by one removal: more than once, so that no more and more of them wait.
const DELETIONS_A_REMOVAL: usize = 2;

/// So often are files deleted for who finds no space: those that have gone, and those that go after a grace period.
const SPACE_ROUNDS: usize = 2;

/// Those of a mount.
pub(super) struct Gone {
    files: SpinLock<Vec<Arc<File>>>,
    /// Held by whoever deletes them: nothing is deleted twice.
    deleting: sched::Mutex<()>,
    /// Counts those that were deleted.
    deletions: AtomicU64,
}

impl Gone {
    pub(super) const fn new() -> Self {
        Self {
            files: SpinLock::named("deleted files of ext4", Vec::new()),
            deleting: sched::Mutex::named("deletions of ext4", ()),
            deletions: AtomicU64::new(0),
        }
    }
}

impl Instance {
    /// Nobody has a file without names any more. It is deleted by whoever removes the next name, finds no space or commits: this is called
    /// from where nothing may sleep. What is not noted here, the list of orphans still has.
    pub(super) fn note_gone(&self, file: &Arc<File>) {
        let mut gone = self.gone.files.lock();
        if fallible::try_reserve(&mut gone, 1).is_ok() {
            gone.push(file.clone());
        }
    }

    /// Deletes files that nobody can reach any more. No file of the caller's may be [`alone`](File::alone).
    pub(super) fn delete_gone(&self) {
        // Who comes beside somebody else waits for what that one is deleting.
        let _deleting = self.gone.deleting.lock();
        while self.may_delete() && self.delete_together() {}
    }

    /// Whether the mount has not ended. Asked with `deleting` held, which its end waits for.
    fn may_delete(&self) -> bool {
        !self.ended.load(SeqCst)
    }

    /// The end of the mount: deletes all files without names that nobody has, also those that could not be noted.
    pub(super) fn delete_last(&self, writer: &Writer) -> crate::Result<()> {
        // Those whose names' entries wait for a grace period.
        sync::rcu::barrier_expedited();
        let _deleting = self.gone.deleting.lock();
        while self.delete_together() {}
        writer.delete_orphans(now(), &|number| !self.is_had(number))
    }

    /// Deletes some of them if many wait, unless somebody else is at it: each removal of a name does before its own work. The list of orphans begins with them
    /// then, and is cut off there, where taking one out of its middle changes the inode of the one before it.
    pub(super) fn delete_some_gone(&self) {
        let many = || self.gone.files.lock().len() >= DELETED_TOGETHER;
        if many()
            && let Some(_deleting) = self.gone.deleting.try_lock()
        {
            let mut left = DELETIONS_A_REMOVAL;
            while left > 0 && self.may_delete() && many() && self.delete_together() {
                left -= 1;
            }
        }
    }

    /// The files that are to be deleted next, the last one that came first: as it is in the list of orphans. What was on its way to the disk is there, and nothing
    /// of them will be any more.
    fn next_gone<'a>(&self, numbers: &'a mut [u32; DELETED_TOGETHER]) -> &'a [u32] {
        let mut count = 0;
        while count < numbers.len() {
            let Some(file) = self.gone.files.lock().pop() else { break };
            drop(file.alone(self));
            numbers[count] = file.number;
            count += 1;
        }
        &numbers[..count]
    }

    /// Deletes a few. `deleting` is held. False: there are none.
    fn delete_together(&self) -> bool {
        let Ok(writer) = self.writer() else { return false };
        let mut numbers = [0; DELETED_TOGETHER];
        let mut left = self.next_gone(&mut numbers);
        if left.is_empty() {
            return false;
        }
        while let [first, ..] = left {
            let deleted = match writer.delete_some(left, now()) {
                Ok(deleted) if deleted > 0 => deleted,
                // It takes handles of its own, or something is wrong with one of them.
                _ => {
                    if let Err(error) = writer.delete(*first, now()) {
                        let name = self.device.name();
                        log::warn!("ext4 on {name}: inode {first} could not be deleted: {error}");
                    }
                    1
                }
            };
            left = &left[deleted..];
            self.gone.deletions.fetch_add(deleted as u64, SeqCst);
        }
        true
    }

    /// Runs an operation; when it finds no space but something has been deleted since, or can be, once more after that.
    pub(super) fn retry_for_space<T>(&self, operation: impl Fn() -> crate::Result<T>) -> crate::Result<T> {
        let mut before = self.gone.deletions.load(SeqCst);
        let mut outcome = operation();
        for round in 0..SPACE_ROUNDS {
            if outcome.as_ref().err() != Some(&crate::Error::NoSpace) {
                break;
            }
            // A name that was removed keeps its file until a grace period has ended: that of the file whose space it takes, perhaps, and not of the others.
            if round > 0 && sync::rcu::barrier_expedited() == 0 {
                break;
            }
            self.delete_gone();
            let now = self.gone.deletions.load(SeqCst);
            if now != before {
                before = now;
                outcome = operation();
            }
        }
        outcome
    }
}
