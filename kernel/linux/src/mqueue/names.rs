//! The queues of a name space by name. A queue whose name was removed lives on while somebody has it open.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use vfs::inode::{DirectorySink, InodeAttributes};
use vfs::{Capabilities, DeviceNumber, FileKind, Inode};

use super::file::QueueInode;
use super::file_system::ROOT;
use super::limits::Limits;
use super::queue::Queue;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::task::Task;

/// The size that a queue's file has.
const FILE_BYTES: u64 = 80;

struct Named {
    name: Box<[u8]>,
    inode: Arc<Inode>,
}

struct Table {
    /// In the order of their names.
    named: Vec<Named>,
    /// The name space has ended: nothing comes any more.
    closed: bool,
}

/// The queues of a name space.
pub(crate) struct Names(sched::Mutex<Table>);

/// What comes of a search, with the names locked.
pub(super) enum Found<'a> {
    Queue(Arc<Inode>),
    None(Vacancy<'a>),
}

/// The place of a name that there is none of yet.
pub(super) struct Vacancy<'a> {
    table: sched::MutexGuard<'a, Table>,
    place: usize,
}

impl Names {
    pub(super) const fn new() -> Self {
        let table = Table { named: Vec::new(), closed: false };
        Self(sched::Mutex::named("names of POSIX message queues", table))
    }

    /// Looks for a queue.
    ///
    /// # Errors
    /// EACCES when the name space has ended.
    pub(super) fn find(&self, name: &[u8]) -> vfs::Result<Found<'_>> {
        let table = self.0.lock();
        match table.named.binary_search_by(|named| (*named.name).cmp(name)) {
            Ok(place) => Ok(Found::Queue(table.named[place].inode.clone())),
            Err(_) if table.closed => Err(vfs::Error::AccessDenied),
            Err(place) => Ok(Found::None(Vacancy { table, place })),
        }
    }

    /// Removes a name. Who may: the owners of the queue and of the directory, and those who may do so to all files.
    ///
    /// # Errors
    /// ENOENT, EPERM.
    pub(super) fn remove(&self, task: &Task, name: &[u8], directory_user: u32) -> Result<(), Errno> {
        let mut allowed = true;
        let taken = self.take(name, |inode| {
            let user = &task.credentials.file;
            allowed = [inode.identity().user, directory_user].contains(&user.user)
                || user.has_over(inode, Capabilities::FOWNER);
            allowed
        });
        match (taken, allowed) {
            (true, _) => Ok(()),
            (false, true) => Err(Errno::ENOENT),
            (false, false) => Err(Errno::EPERM),
        }
    }

    /// Removes a name if its queue is a wanted one.
    pub(super) fn take(&self, name: &[u8], wanted: impl FnOnce(&Arc<Inode>) -> bool) -> bool {
        let mut table = self.0.lock();
        let Ok(place) = table.named.binary_search_by(|named| (*named.name).cmp(name)) else { return false };
        if !wanted(&table.named[place].inode) {
            return false;
        }
        let removed = table.named.remove(place);
        removed.inode.set_links(0);
        drop(table);
        drop(removed);
        true
    }

    /// Lists queues in the order in which they were made: positions are their numbers, so what comes and goes meanwhile moves nobody.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> vfs::Result<u64> {
        let mut position = position;
        loop {
            let (name, number) = {
                let table = self.0.lock();
                let next = table.named.iter().filter(|named| named.inode.number >= position);
                let Some(next) = next.min_by_key(|named| named.inode.number) else { return Ok(position) };
                let name = memory::fallible::try_copy(&next.name).map_err(|_| vfs::Error::OutOfMemory)?;
                (name, next.inode.number)
            };
            if !sink.entry(&name, number, FileKind::Regular, number + 1) {
                return Ok(number);
            }
            position = number + 1;
        }
    }

    /// The name space has ended.
    pub(super) fn close(&self) {
        let mut table = self.0.lock();
        table.closed = true;
        let named = core::mem::take(&mut table.named);
        drop(table);
        for queue in &named {
            queue.inode.set_links(0);
        }
    }
}

impl Vacancy<'_> {
    /// Whether the caller may make one more queue.
    ///
    /// # Errors
    /// ENOSPC.
    pub(super) fn check(&self, limits: &Limits, credentials: &Credentials) -> Result<(), Errno> {
        let limit = limits.queues.load(Ordering::Relaxed);
        let has_room = (self.table.named.len() as u64) < limit;
        if has_room || credentials.has(Capabilities::SYS_RESOURCE) { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    /// Gives a new queue the name, in the root directory.
    ///
    /// # Errors
    /// ENOMEM.
    pub(super) fn fill(
        mut self,
        root: &Inode,
        name: &[u8],
        mode: u32,
        owner: (u32, u32),
        queue: Arc<Queue>,
    ) -> Result<Arc<Inode>, Errno> {
        static NEXT: AtomicU64 = AtomicU64::new(ROOT + 1);
        let attributes = InodeAttributes {
            // Relaxed: only uniqueness matters.
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            kind: FileKind::Regular,
            mode,
            user: owner.0,
            group: owner.1,
            links: 1,
            special: DeviceNumber::new(0, 0),
            size: FILE_BYTES,
        };
        let inode: Arc<Inode> = Inode::beside(root, attributes, QueueInode(queue))?;
        memory::fallible::try_reserve(&mut self.table.named, 1).map_err(|_| Errno::ENOMEM)?;
        let name = memory::fallible::try_copy(name).map_err(|_| Errno::ENOMEM)?.into_boxed_slice();
        self.table.named.insert(self.place, Named { name, inode: inode.clone() });
        Ok(inode)
    }
}
