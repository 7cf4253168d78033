//! `devtmpfs`: an ordinary tmpfs instance, filled with the device nodes when it is first mounted and shared by all mounts.
//!
//! Programs may add, change and remove nodes in it as in any directory.

use alloc::sync::Arc;

use sync::SpinLock;
use vfs::Result;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::inode::NewFile;
use vfs::name::Name;
use vfs::superblock::{FileSystemType, Superblock, find_file_system};

use crate::nodes;

/// The type `devtmpfs`.
pub struct DeviceTree {
    instance: SpinLock<Option<Arc<Superblock>>>,
}

pub(crate) static DEVICE_TREE: DeviceTree = DeviceTree { instance: SpinLock::named("devfs", None) };

/// Permission bits of the directories.
const DIRECTORY_MODE: u32 = 0o755;
/// Permission bits of block devices.
const DISK_MODE: u32 = 0o660;
/// Permission bits of symbolic links.
const LINK_MODE: u32 = 0o777;

impl FileSystemType for DeviceTree {
    fn name(&self) -> &'static str {
        "devtmpfs"
    }

    fn mount(&'static self, source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = &*self.instance.lock() {
            return Ok(instance.clone());
        }
        let superblock = find_file_system(b"tmpfs")?.mount(source, b"mode=755")?;
        superblock.show_as(self.name());
        fill(&superblock)?;
        // Two first mounts at a time: the one that comes second gets the other's tree.
        let mut instance = self.instance.lock();
        Ok(instance.get_or_insert(superblock).clone())
    }
}

/// Makes the nodes, before anybody can see the tree.
fn fill(superblock: &Arc<Superblock>) -> Result<()> {
    let root = superblock.root().existing()?;
    let make = |name: &str, kind, mode, special, target: &str| {
        let new = NewFile { kind, mode, user: 0, group: 0, special, target: target.as_bytes() };
        root.operations().create(root, &Name::new(name.as_bytes())?, &new).map(|_| ())
    };
    for directory in nodes::DIRECTORIES {
        make(directory, FileKind::Directory, DIRECTORY_MODE, DeviceNumber::default(), "")?;
    }
    for node in nodes::all() {
        make(node.path, node.kind, node.mode, node.number, "")?;
    }
    let mut outcome = Ok(());
    block::registry::for_each(|device| {
        let number = DeviceNumber::new(device.number().major, device.number().minor);
        outcome = outcome.and_then(|()| make(device.name(), FileKind::BlockDevice, DISK_MODE, number, ""));
    });
    outcome?;
    for (name, target) in nodes::LINKS {
        make(name, FileKind::SymbolicLink, LINK_MODE, DeviceNumber::default(), target)?;
    }
    Ok(())
}

/// A node of a character device.
pub(crate) fn character(path: &'static str, major: u32, minor: u32, mode: u32) -> nodes::Node {
    nodes::Node { path, kind: FileKind::CharacterDevice, number: DeviceNumber::new(major, minor), mode }
}
