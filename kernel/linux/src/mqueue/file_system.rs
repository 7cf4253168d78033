//! The file system `mqueue`: the queues of a name space as files of one directory (mq_overview(7)).
//!
//! A name space has one instance, made when it is first wanted; whatever is mounted in it shows that. Names come and go by calls as well as by the file layer,
//! so what is cached is asked about, and absent names are not cached. When the name space ends, so do its queues: who still has the file system mounted
//! sees an empty directory, in which nothing can be made.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

use memory::per_cpu::Shared;
use sync::Once;
use vfs::attributes::FileSystemStatus;
use vfs::dentry::{Dentry, forget_child, forget_tree};
use vfs::flags::MountFlags;
use vfs::inode::{DirectorySink, InodeAttributes, InodeOperations, NewFile};
use vfs::mount::{Mount, Path};
use vfs::name::Name;
use vfs::superblock::{FileSystemType, MountedBy, Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{DeviceNumber, Error, FileKind, Inode, Result, allocation};

use super::limits::Size;
use super::names::{Found, Names};
use super::queue::Queue;
use crate::errno::Errno;
use crate::name_space::NameSpaces;
use crate::task::Task;
use crate::terminal::calling_thread;

/// `MQUEUE_MAGIC`
const MAGIC: u64 = 0x1980_0202;
const NAME: &str = "mqueue";
/// The number of the root directory; queues have those after it.
pub(super) const ROOT: u64 = 1;
/// Everybody makes queues; only owners remove them.
const ROOT_MODE: u32 = 0o1777;

const TRAITS: SuperblockTraits = SuperblockTraits {
    volatile: true,
    no_negative_entries: true,
    no_devices: true,
    no_execute: true,
    attributes: 0,
    bound_from_nowhere: false,
    access_lists: false,
    one_name: false,
    lookup_only: false,
    awaited: false,
    block_bytes: 0,
    stacked: 0,
};

struct Instance {
    names: Arc<Names>,
    mount: Shared<Mount>,
}

/// That of a name space.
pub(crate) struct QueueTree {
    instance: Once<Instance>,
    /// The user and the group that the directory belongs to: those of who made the name space.
    maker: (u32, u32),
}

impl QueueTree {
    pub(crate) const fn new(maker: (u32, u32)) -> Self {
        Self { instance: Once::new(), maker }
    }

    fn instance(&self) -> Result<&Instance> {
        if let Some(instance) = self.instance.get() {
            return Ok(instance);
        }
        let names = allocation::arc(Names::new())?;
        let operations: Box<dyn SuperblockOperations> = allocation::boxed(Operations)?;
        let shown = names.clone();
        let superblock = Superblock::new(NAME, MAGIC, TRAITS, operations, |superblock| {
            let special = DeviceNumber::new(0, 0);
            let (kind, mode) = (FileKind::Directory, ROOT_MODE);
            let (user, group) = self.maker;
            let attributes =
                InodeAttributes { number: ROOT, kind, mode, user, group, links: 2, special, size: 0 };
            let root: Arc<Inode> = Inode::new(superblock, attributes, Root(shown))?;
            Ok(root)
        })?;
        let root = superblock.root().clone();
        let mount = Mount::new(superblock, root, NAME.as_bytes(), MountFlags::empty())?;
        Ok(self.instance.call_once(|| Instance { names, mount }))
    }

    /// Its queues.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn names(&self) -> Result<&Arc<Names>> {
        Ok(&self.instance()?.names)
    }

    /// Removes a name; what the file layer has cached of it goes along, so that the queue goes with its last user.
    ///
    /// # Errors
    /// ENOENT, EPERM, ENOMEM.
    pub(super) fn remove(&self, task: &Task, name: &[u8]) -> core::result::Result<(), Errno> {
        let instance = self.instance()?;
        let directory = instance.mount.root().existing()?.identity().user;
        instance.names.remove(task, name, directory)?;
        forget_child(instance.mount.root(), name);
        Ok(())
    }

    /// The root directory's inode, beside which those of queues are made.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn root(&self) -> Result<Arc<Inode>> {
        self.instance()?.mount.root().existing().cloned()
    }

    /// Where a queue is, for who opens it by its name.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn place_of(&self, inode: Arc<Inode>, name: &[u8]) -> Result<Path> {
        Ok(Path::new(self.instance()?.mount.clone(), Dentry::new_detached(name, inode)?))
    }
}

impl Drop for QueueTree {
    fn drop(&mut self) {
        if let Some(instance) = self.instance.get() {
            instance.names.close();
            forget_tree(instance.mount.root());
        }
    }
}

struct Operations;

impl SuperblockOperations for Operations {
    fn status(&self) -> FileSystemStatus {
        FileSystemStatus {
            block_size: machine::address::PAGE_SIZE as u64,
            name_length: vfs::name::NAME_MAX as u64,
            ..Default::default()
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The directory.
struct Root(Arc<Names>);

impl InodeOperations for Root {
    fn lookup(&self, _directory: &Arc<Inode>, name: &[u8]) -> Result<Arc<Inode>> {
        match self.0.find(name) {
            Ok(Found::Queue(inode)) => Ok(inode),
            _ => Err(Error::NotFound),
        }
    }

    fn still_valid(&self, _directory: &Inode, name: &[u8], child: &Inode) -> bool {
        matches!(self.0.find(name), Ok(Found::Queue(inode)) if inode.number == child.number)
    }

    fn create(&self, directory: &Arc<Inode>, name: &Name, new: &NewFile<'_>) -> Result<Arc<Inode>> {
        let thread = calling_thread().ok_or(Error::NotPermitted)?;
        if new.kind != FileKind::Regular {
            return Err(Error::NotPermitted);
        }
        let space = NameSpaces::of_reader().ipc;
        let credentials = thread.credentials();
        let Found::None(vacancy) = self.0.find(name.as_bytes())? else { return Err(Error::Exists) };
        let made = (|| {
            vacancy.check(&space.queue_limits, &credentials)?;
            let size = Size::of_new(&space.queue_limits, &credentials, None)?;
            let queue = Queue::new(size, size.claim(thread.process(), &credentials)?)?;
            vacancy.fill(directory, name.as_bytes(), new.mode, (new.user, new.group), queue)
        })();
        made.map_err(|errno| match errno {
            Errno::ENOSPC => Error::NoSpace,
            Errno::EMFILE => Error::TooManyDescriptors,
            Errno::ENOMEM => Error::OutOfMemory,
            _ => Error::Invalid,
        })
    }

    fn unlink(&self, _directory: &Arc<Inode>, name: &[u8], inode: &Arc<Inode>) -> Result<()> {
        if self.0.take(name, |found| found.number == inode.number) { Ok(()) } else { Err(Error::NotFound) }
    }

    fn read_directory(&self, _directory: &Inode, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        self.0.list(position, sink)
    }
}

/// The type `mqueue`.
pub struct Mqueue;

/// `mqueue`, to be registered at start-up.
pub static MQUEUE: Mqueue = Mqueue;

impl FileSystemType for Mqueue {
    fn mounted_by(&self) -> MountedBy {
        MountedBy::OwnersOfContent
    }

    fn name(&self) -> &'static str {
        NAME
    }

    /// That of the caller's name space.
    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        let space = NameSpaces::of_reader().ipc;
        let instance = space.queues_by_name.instance()?;
        Ok(instance.mount.superblock().clone())
    }
}
