//! What a process has done with SEM_UNDO, and takes back at its end.
//!
//! The adjustments are with their sets; a list has the sets. Threads made with CLONE_SYSVSEM share a list, whose last user's end counts; execve keeps it,
//! fork does not give it on.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use sync::SpinLock;

use super::set::Set;
use crate::errno::Errno;
use crate::process::thread::Thread;
use crate::sysv::caller;

/// Sets in which something is taken back.
pub struct UndoList {
    /// Who the sets know it as.
    id: u64,
    sets: SpinLock<Vec<Weak<Set>>>,
}

impl UndoList {
    fn new() -> Result<Arc<UndoList>, Errno> {
        static IDS: AtomicU64 = AtomicU64::new(0);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        let list = UndoList { id, sets: SpinLock::named("sets to undo", Vec::new()) };
        memory::fallible::try_arc(list).map_err(|_| Errno::ENOMEM)
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Notes a set. Sets that are gone are forgotten.
    pub(super) fn add(&self, set: &Arc<Set>) -> Result<(), Errno> {
        let mut sets = self.sets.lock();
        sets.retain(|set| set.strong_count() > 0);
        sets.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        sets.push(Arc::downgrade(set));
        Ok(())
    }
}

impl Drop for UndoList {
    fn drop(&mut self) {
        let process = caller();
        for set in self.sets.get_mut().iter().filter_map(Weak::upgrade) {
            set.state.lock().take_back(self.id, process);
        }
    }
}

/// The caller has its list no longer.
pub(crate) fn leave(task: &crate::task::Task) {
    let list = task.thread.shared.lock().undo.take();
    drop(list);
}

/// The list of a thread, made on its first use.
///
/// # Errors
/// ENOMEM.
pub fn list_of(thread: &Thread) -> Result<Arc<UndoList>, Errno> {
    if let Some(list) = &thread.shared.lock().undo {
        return Ok(list.clone());
    }
    // Only the thread itself gives itself a list.
    let list = UndoList::new()?;
    thread.shared.lock().undo = Some(list.clone());
    Ok(list)
}
