//! Watches, as they hang on inodes.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use sync::SpinLock;

use super::event::EventMask;
use super::instance::Queue;
use crate::dnotify::NoticeList;
use crate::fanotify::MarkList;
use crate::inode::Inode;
use crate::watch_account::Charge;
use crate::watched::Share;
use crate::{Result, allocation};

/// One watch: keeps its file alive, and is kept by its instance.
pub(super) struct Watch {
    pub(super) queue: Arc<Queue>,
    pub(super) descriptor: i32,
    pub(super) inode: Arc<Inode>,
    pub(super) mask: AtomicU32,
    pub(super) _charge: Charge,
    pub(super) _share: Share,
}

impl Watch {
    pub(super) fn mask(&self) -> EventMask {
        EventMask::from_bits_retain(self.mask.load(Ordering::Acquire))
    }

    /// Changes what it asks for; returns whether it had not ended.
    pub(super) fn change(&self, new: impl Fn(EventMask) -> EventMask) -> bool {
        let change = |bits| (bits != 0).then(|| new(EventMask::from_bits_retain(bits)).bits());
        self.mask.fetch_update(Ordering::AcqRel, Ordering::Acquire, change).is_ok()
    }
}

/// The watches on a file. A watch keeps its place in the list, since those who tell them go through it without holding the lock; a new one
/// gets the place of one that is gone.
pub struct WatchList {
    watches: SpinLock<Vec<Weak<Watch>>>,
    /// What open files are told of the directory.
    notices: NoticeList,
    /// What groups of `fanotify` want to hear of it.
    marks: MarkList,
}

impl Default for WatchList {
    fn default() -> Self {
        Self::new()
    }
}

impl WatchList {
    /// No watches.
    pub const fn new() -> Self {
        Self { watches: SpinLock::new(Vec::new()), notices: NoticeList::new(), marks: MarkList::new() }
    }

    pub(crate) fn notices(&self) -> &NoticeList {
        &self.notices
    }

    pub(crate) fn marks(&self) -> &MarkList {
        &self.marks
    }

    pub(super) fn add(&self, watch: &Arc<Watch>) -> Result<()> {
        let mut watches = self.watches.lock();
        let new = Arc::downgrade(watch);
        match watches.iter_mut().find(|known| known.strong_count() == 0) {
            Some(gone) => {
                *gone = new;
                Ok(())
            }
            None => allocation::push(&mut watches, new),
        }
    }

    /// Calls `each` with every watch, without the lock.
    pub(super) fn for_each(&self, mut each: impl FnMut(&Arc<Watch>)) {
        let mut index = 0;
        loop {
            let watch = match self.watches.lock().get(index) {
                Some(watch) => watch.upgrade(),
                None => return,
            };
            if let Some(watch) = watch {
                each(&watch);
            }
            index += 1;
        }
    }
}
