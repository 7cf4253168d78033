//! One mounted file system, and the inodes of it that are in memory.
//!
//! An inode is found by its number as long as somebody has it, so that all names of a file lead to the same pages. The table holds weak references; it is cleaned when it
//! has doubled.

use alloc::sync::{Arc, Weak};
use core::any::Any;

use block::registry::{BlockDevice, Holder};
use vfs::attributes::FileSystemStatus;
use vfs::disk::DeviceFiles;
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{Superblock, SuperblockOperations};
use vfs::{DeviceNumber, Error, FileKind, Result, Timestamp, allocation};

use super::node::Node;
use crate::cache::BlockMap;
use crate::{FileSystem, Kind, NAME_MAX, Time};

/// Inodes in the table before those that have gone are looked for.
const CLEAN_FROM: usize = 256;

/// See the theory of this file.
pub(super) struct Instance {
    pub(super) system: FileSystem,
    pub(super) device: Arc<BlockDevice>,
    pub(super) files: Arc<DeviceFiles>,
    inodes: sched::Mutex<Known>,
}

struct Known {
    table: BlockMap<Weak<Inode>>,
    clean_at: usize,
}

pub(super) fn error_of(error: crate::Error) -> Error {
    match error {
        crate::Error::Device(error) => error.into(),
        crate::Error::Corrupted(..) => {
            log::error!("ext4: {error}");
            Error::Io
        }
        crate::Error::NotExt | crate::Error::UnknownFeature(..) => Error::Invalid,
        crate::Error::NotFound => Error::NotFound,
        crate::Error::NotDirectory => Error::NotDirectory,
        crate::Error::Range => Error::Range,
        crate::Error::OutOfMemory => Error::OutOfMemory,
        _ => Error::Invalid,
    }
}

pub(super) fn kind_of(kind: Kind) -> FileKind {
    match kind {
        Kind::Regular => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Link => FileKind::SymbolicLink,
        Kind::CharacterDevice => FileKind::CharacterDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
    }
}

fn stamp(time: Time) -> Timestamp {
    Timestamp { seconds: time.seconds, nanoseconds: time.nanoseconds }
}

impl Instance {
    /// What is on a device.
    pub(super) fn open(device: &Arc<BlockDevice>, options: &[u8]) -> Result<Arc<Self>> {
        const KNOWN: [&[u8]; 6] =
            [b"", b"ro", b"noload", b"norecovery", b"errors=remount-ro", b"errors=continue"];
        if let Some(unknown) = options.split(|&byte| byte == b',').find(|option| !KNOWN.contains(option)) {
            log::warn!("ext4 on {}: unknown option {}", device.name(), unknown.escape_ascii());
            return Err(Error::Invalid);
        }
        let files = DeviceFiles::of(device)?;
        // What programs wrote to the device must be there when it is read past their pages.
        files.empty()?;
        let system = FileSystem::mount(device.volume()).map_err(|error| {
            if error != crate::Error::NotExt {
                log::warn!("ext4 on {}: {error}", device.name());
            }
            error_of(error)
        })?;
        let known = Known { table: BlockMap::default(), clean_at: CLEAN_FROM };
        let inodes = sched::Mutex::named("inodes of ext4 in memory", known);
        allocation::arc(Self { system, device: device.clone(), files, inodes })
    }

    /// The root directory.
    pub(super) fn root(self: &Arc<Self>, superblock: &Arc<Superblock>) -> Result<Arc<Inode>> {
        let root = self.system.root().map_err(error_of)?;
        self.enter(root, |attributes, node| Ok(Inode::new(superblock, attributes, node)?))
    }

    /// The inode that a directory's entry names.
    pub(super) fn inode(self: &Arc<Self>, beside: &Inode, found: crate::Inode) -> Result<Arc<Inode>> {
        self.enter(found, |attributes, node| Ok(Inode::beside(beside, attributes, node)?))
    }

    fn enter(
        self: &Arc<Self>,
        found: crate::Inode,
        make: impl FnOnce(InodeAttributes, Node) -> Result<Arc<Inode>>,
    ) -> Result<Arc<Inode>> {
        let number = u64::from(found.number);
        let mut known = self.inodes.lock();
        if let Some(inode) = known.table.get(&number).and_then(Weak::upgrade) {
            return Ok(inode);
        }
        if known.table.len() >= known.clean_at {
            known.table.retain(|_, inode| inode.strong_count() > 0);
            known.clean_at = (known.table.len() * 2).max(CLEAN_FROM);
        }
        known.table.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let kind = kind_of(found.kind);
        let special = if kind.is_device() {
            DeviceNumber::new(found.special.0, found.special.1)
        } else {
            DeviceNumber::default()
        };
        let attributes = InodeAttributes {
            number,
            kind,
            mode: found.mode.into(),
            user: found.user,
            group: found.group,
            links: found.links.into(),
            special,
            size: found.size,
        };
        let (accessed, modified, changed) = (found.accessed, found.modified, found.changed);
        let inode = make(attributes, Node::new(self.clone(), found)?)?;
        inode.accessed().set(stamp(accessed));
        inode.modified().set(stamp(modified));
        inode.changed().set(stamp(changed));
        known.table.insert(number, Arc::downgrade(&inode));
        Ok(inode)
    }
}

/// What the file layer asks of the file system as a whole. The device is claimed as long as this is there: inodes that wait to be freed do not
/// keep others from it.
pub(super) struct Operations {
    instance: Arc<Instance>,
    holder: Holder,
}

impl Operations {
    /// Claims the device.
    pub(super) fn new(instance: &Arc<Instance>) -> Result<Self> {
        let holder = Holder(Arc::as_ptr(instance).addr());
        instance.device.claim(holder)?;
        Ok(Self { instance: instance.clone(), holder })
    }
}

impl Drop for Operations {
    fn drop(&mut self) {
        self.instance.device.release(self.holder);
    }
}

impl SuperblockOperations for Operations {
    fn status(&self) -> FileSystemStatus {
        let status = self.instance.system.status();
        FileSystemStatus {
            magic: 0,
            block_size: status.block_bytes as u64,
            blocks: status.blocks,
            blocks_free: status.blocks_free,
            blocks_available: status.blocks_available,
            files: status.inodes,
            files_free: status.inodes_free,
            name_length: NAME_MAX as u64,
            id: 0,
        }
    }

    fn change_read_only(&self, read_only: bool) -> Result<()> {
        if read_only {
            return Ok(());
        }
        log::warn!("ext4 on {}: writing is not supported", self.instance.device.name());
        Err(Error::ReadOnly)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
