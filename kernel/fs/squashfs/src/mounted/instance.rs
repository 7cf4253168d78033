//! One mounted image, and the inodes of it that are in memory: found by their place in the image, so that all names of a file lead to the same pages.

use alloc::sync::{Arc, Weak};
use core::any::Any;

use block::registry::{BlockDevice, Holder};
use hashbrown::{DefaultHashBuilder, HashMap};
use vfs::attributes::FileSystemStatus;
use vfs::disk::DeviceFiles;
use vfs::inode::{Inode, InodeAttributes};
use vfs::superblock::{Superblock, SuperblockOperations};
use vfs::{DeviceNumber, Error, FileKind, Result, Timestamp, allocation};

use super::node::Node;
use crate::{FileSystem, Kind};

/// Inodes in the table before those that have gone are looked for.
const CLEAN_FROM: usize = 256;
/// Longest name.
const NAME_MAX: u64 = 256;

/// See the theory of this file.
pub(super) struct Instance {
    pub(super) system: FileSystem,
    pub(super) device: Arc<BlockDevice>,
    pub(super) files: Arc<DeviceFiles>,
    inodes: sched::Mutex<Known>,
}

struct Known {
    table: HashMap<u64, Weak<Inode>, DefaultHashBuilder>,
    clean_at: usize,
}

pub(super) fn error_of(error: crate::Error) -> Error {
    match error {
        crate::Error::Device(error) => error.into(),
        crate::Error::Corrupted(..) => {
            log::error!("squashfs: {error}");
            Error::Io
        }
        crate::Error::NotSquash | crate::Error::Unsupported(..) | crate::Error::WrongKind => Error::Invalid,
        crate::Error::NotFound => Error::NotFound,
        crate::Error::Range => Error::Range,
        crate::Error::OutOfMemory => Error::OutOfMemory,
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

impl Instance {
    /// What is on a device.
    pub(super) fn open(device: &Arc<BlockDevice>) -> Result<Arc<Self>> {
        let files = DeviceFiles::of(device)?;
        // What programs wrote to the device must be there when it is read past their pages.
        files.empty()?;
        let system = FileSystem::mount(device.volume()).map_err(|error| {
            match error {
                crate::Error::NotSquash => {}
                _ => log::warn!("squashfs on {}: {error}", device.name()),
            }
            match error {
                // What can't be read at all is none.
                crate::Error::Corrupted(..) => Error::Invalid,
                error => error_of(error),
            }
        })?;
        let known = Known { table: HashMap::default(), clean_at: CLEAN_FROM };
        let inodes = sched::Mutex::named("inodes of squashfs in memory", known);
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
        let reference = found.reference;
        let mut known = self.inodes.lock();
        if let Some(inode) = known.table.get(&reference).and_then(Weak::upgrade) {
            return Ok(inode);
        }
        if known.table.len() >= known.clean_at {
            known.table.retain(|_, inode| inode.strong_count() > 0);
            known.clean_at = (known.table.len() * 2).max(CLEAN_FROM);
        }
        known.table.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let attributes = InodeAttributes {
            number: found.number.into(),
            kind: kind_of(found.kind),
            mode: found.mode.into(),
            user: found.user,
            group: found.group,
            links: found.links,
            special: DeviceNumber::new(found.special.0, found.special.1),
            size: found.size,
        };
        let modified = Timestamp { seconds: found.modified.into(), nanoseconds: 0 };
        let has_attributes = found.attributes.is_some();
        let inode = make(attributes, Node::new(self.clone(), found)?)?;
        if has_attributes {
            inode.expect_capabilities(true);
        }
        for time in [inode.accessed(), inode.modified(), inode.changed()] {
            time.set(modified);
        }
        known.table.insert(reference, Arc::downgrade(&inode));
        Ok(inode)
    }
}

/// What the file layer asks of the file system as a whole. The device is claimed as long as this is there.
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
        let system = &self.instance.system;
        let ((bytes, inodes), block_bytes) = (system.size(), u64::from(system.block_bytes()));
        FileSystemStatus {
            block_size: block_bytes,
            blocks: bytes.div_ceil(block_bytes),
            files: inodes.into(),
            name_length: NAME_MAX,
            ..FileSystemStatus::default()
        }
    }

    fn show_options(&self, out: &mut dyn core::fmt::Write) -> core::fmt::Result {
        out.write_str(",errors=continue")
    }

    fn change_read_only(&self, read_only: bool) -> Result<()> {
        if read_only { Ok(()) } else { Err(Error::ReadOnly) }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
