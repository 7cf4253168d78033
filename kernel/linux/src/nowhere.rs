//! File systems whose files have no place in any tree: they are reached by a call, or by a link below `/proc`.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::any::Any;

use memory::per_cpu::Shared;
use sync::Once;
use vfs::attributes::FileSystemStatus;
use vfs::dentry::Dentry;
use vfs::flags::MountFlags;
use vfs::inode::{InodeAttributes, InodeOperations};
use vfs::mount::{Mount, Path};
use vfs::superblock::{Superblock, SuperblockOperations, SuperblockTraits};
use vfs::{DeviceNumber, FileKind, Inode, Result};

/// The number of the directory that nobody can walk to; files have those after it.
pub(crate) const ROOT: u64 = 1;

/// Such a file system, made when it is used first.
pub(crate) struct Home {
    file_system: &'static str,
    magic: u64,
    mount: Once<Shared<Mount>>,
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

struct Plain;

impl InodeOperations for Plain {}

impl Home {
    /// One of this type, with what `statfs` says of it. Its files may be bound to places.
    pub(crate) const fn bindable(file_system: &'static str, magic: u64) -> Self {
        Self { file_system, magic, mount: Once::new() }
    }

    fn mount(&self) -> Result<&Shared<Mount>> {
        if let Some(mount) = self.mount.get() {
            return Ok(mount);
        }
        let operations: Box<dyn SuperblockOperations> = vfs::allocation::boxed(Operations)?;
        let root = |superblock: &Arc<Superblock>| {
            let attributes = attributes(ROOT, FileKind::Directory, 0o555, (0, 0), 0);
            let root: Arc<Inode> = Inode::new(superblock, attributes, Plain)?;
            Ok(root)
        };
        let traits = SuperblockTraits { bound_from_nowhere: true, ..SuperblockTraits::default() };
        let superblock = Superblock::new(self.file_system, self.magic, traits, operations, root)?;
        let root = superblock.root().clone();
        let mount = Mount::new(superblock, root, self.file_system.as_bytes(), MountFlags::empty())?;
        Ok(self.mount.call_once(|| mount))
    }

    /// A file of it.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn file(
        &self,
        number: u64,
        mode: u32,
        owner: (u32, u32),
        size: u64,
        operations: impl InodeOperations,
    ) -> Result<Arc<Inode>> {
        let attributes = attributes(number, FileKind::Regular, mode, owner, size);
        let inode: Arc<Inode> = Inode::new(self.mount()?.superblock(), attributes, operations)?;
        Ok(inode)
    }

    /// Where a file of it is, for who opens it.
    ///
    /// # Errors
    /// No memory.
    pub(crate) fn place_of(&self, inode: Arc<Inode>, name: &[u8]) -> Result<Path> {
        Ok(Path::new(self.mount()?.clone(), Dentry::new_detached(name, inode)?))
    }
}

const fn attributes(number: u64, kind: FileKind, mode: u32, owner: (u32, u32), size: u64) -> InodeAttributes {
    let special = DeviceNumber::new(0, 0);
    InodeAttributes { number, kind, mode, user: owner.0, group: owner.1, links: 1, special, size }
}
