//! The queues of a name space by name. A queue whose name was removed lives on while somebody has it open.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::mount::Path;
use vfs::{Capabilities, Inode};

use super::file::QueueInode;
use super::queue::Queue;
use crate::errno::Errno;
use crate::nowhere::{Home, ROOT};
use crate::task::Task;

/// `MQUEUE_MAGIC`
const MAGIC: u64 = 0x1980_0202;
/// The size that a queue's file has.
const FILE_BYTES: u64 = 80;
static HOME: Home = Home::new("mqueue", MAGIC);

struct Named {
    name: Box<[u8]>,
    inode: Arc<Inode>,
}

/// The queues of a name space, in the order of their names.
pub(crate) struct Names(sched::Mutex<Vec<Named>>);

/// What comes of a search, with the names locked.
pub(super) enum Found<'a> {
    Queue(Arc<Inode>),
    None(Vacancy<'a>),
}

/// The place of a name that there is none of yet.
pub(super) struct Vacancy<'a> {
    names: sched::MutexGuard<'a, Vec<Named>>,
    place: usize,
}

impl Names {
    pub(crate) const fn new() -> Self {
        Self(sched::Mutex::named("names of POSIX message queues", Vec::new()))
    }

    /// Looks for a queue.
    pub(super) fn find(&self, name: &[u8]) -> Found<'_> {
        let names = self.0.lock();
        match names.binary_search_by(|named| (*named.name).cmp(name)) {
            Ok(place) => Found::Queue(names[place].inode.clone()),
            Err(place) => Found::None(Vacancy { names, place }),
        }
    }

    /// Removes a name. Who may: the queue's owner, and those who may do so to all files.
    ///
    /// # Errors
    /// ENOENT, EPERM.
    pub(super) fn remove(&self, task: &Task, name: &[u8]) -> Result<(), Errno> {
        let mut names = self.0.lock();
        let place = names.binary_search_by(|named| (*named.name).cmp(name)).map_err(|_| Errno::ENOENT)?;
        if names[place].inode.identity().user != task.credentials.file.user
            && !task.credentials.file.has_over(&names[place].inode, Capabilities::FOWNER)
        {
            return Err(Errno::EPERM);
        }
        let removed = names.remove(place);
        removed.inode.set_links(0);
        drop(names);
        drop(removed);
        Ok(())
    }
}

impl Vacancy<'_> {
    /// How many queues there are.
    pub(super) fn queues(&self) -> u64 {
        self.names.len() as u64
    }

    /// Gives a new queue the name.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn fill(
        mut self,
        task: &Task,
        name: &[u8],
        mode: u32,
        queue: Arc<Queue>,
    ) -> Result<Arc<Inode>, Errno> {
        static NEXT: AtomicU64 = AtomicU64::new(ROOT + 1);
        // Relaxed: only uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let owner = &task.credentials.file;
        let inode = HOME.file(number, mode, (owner.user, owner.group), FILE_BYTES, QueueInode(queue))?;
        memory::fallible::try_reserve(&mut self.names, 1).map_err(|_| Errno::ENOMEM)?;
        let name = memory::fallible::try_copy(name).map_err(|_| Errno::ENOMEM)?.into_boxed_slice();
        self.names.insert(self.place, Named { name, inode: inode.clone() });
        Ok(inode)
    }
}

/// Where a queue is, for who opens it.
pub(super) fn place_of(inode: Arc<Inode>, name: &[u8]) -> Result<Path, Errno> {
    Ok(HOME.place_of(inode, name)?)
}
