<<<<<<< HEAD
//! `epoll`: waiting for many files at once.
//!
//! An [`Epoll`] has an [`EpollItem`] for each (descriptor, open file) pair that was added. The item is
//! registered with the file's watcher lists for as long as it exists; when the file tells it of an
//! event, it puts itself into the ready list. `epoll_wait` takes items from that list and asks their
//! files what is ready *now*: so an item in the list is a hint, and what is reported is true.
//!
//! States of an item: *idle* → (event) *queued* → (wait) reported, then *queued* again (level), *idle*
//! (edge) or *disabled* until modified (one-shot); *dead* once removed or its file closed.
//!
//! No lost events: an item leaves the queued state before its file is asked, so an event that comes
//! during the question queues it anew. Nothing is allocated when an event comes: room in the ready
//! list is reserved when an item is added.
//!
//! Locks: `items` (spin), then an item's file's watcher list (inside the file), then `ready`
//! (interrupts off). Files are asked with no lock held. Cost of `epoll_wait` grows with the number of
//! ready items, not with that of watched ones.

mod control;
mod item;
mod nesting;
mod wait;

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt;

use sched::WaitQueue;
use sync::{IrqSpinLock, SpinLock};

use crate::file::{FileFeatures, FileOperations, OpenFile};
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList, PollTable};
use crate::{Result, allocation};

pub use control::Control;
pub use item::{EpollFlags, EpollItem};

/// A set of watched files.
pub struct Epoll {
    this: Weak<Self>,
    /// Sorted by descriptor and file.
    items: SpinLock<Vec<Arc<EpollItem>>>,
    ready: IrqSpinLock<VecDeque<Arc<EpollItem>>>,
    waiters: WaitQueue,
    watchers: PollList,
}

/// Makes an empty set.
///
/// # Errors
/// [`crate::Error::FileTableFull`], [`crate::Error::OutOfMemory`].
pub fn create() -> Result<Arc<OpenFile>> {
    allocation::fail_point()?;
    let epoll = Arc::new_cyclic(|this| Epoll {
        this: this.clone(),
        items: SpinLock::new(Vec::new()),
        ready: IrqSpinLock::new(VecDeque::new()),
        waiters: WaitQueue::new(),
        watchers: PollList::new(),
    });
    OpenFile::anonymous(crate::anonymous::inode()?, epoll, OpenFlags::READ_WRITE)
}

impl Epoll {
    /// Puts an item into the ready list and wakes a waiter; called by the item, which holds its `queued` mark.
    fn enqueue(&self, item: Arc<EpollItem>) {
        self.ready.lock().push_back(item);
        self.waiters.wake_one();
        self.watchers.notify(PollEvents::INPUT);
    }

    fn has_ready(&self) -> bool {
        !self.ready.lock().is_empty()
    }
}

impl FileOperations for Epoll {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.watchers);
        }
        if self.any_ready_now() { PollEvents::INPUT } else { PollEvents::empty() }
    }

    fn describe(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("anon_inode:[eventpoll]")
    }

    fn information(&self, _file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        let items = self.items.lock();
        for item in items.iter() {
            let (events, data) = item.interest();
            writeln!(out, "tfd: {:8} events: {:8x} data: {data:16x}", item.descriptor(), events.bits())?;
        }
        Ok(())
    }
}
=======
//! `epoll`: watching many files at a cost that follows the number of ready ones.

mod instance;
mod item;

pub use instance::{Epoll, create_epoll};
pub use item::{EpollEvent, EpollEvents, EpollItem};
>>>>>>> d8a845b (Add the file layer: path walk, mounts, open files, pipes, epoll, inotify, locks)
