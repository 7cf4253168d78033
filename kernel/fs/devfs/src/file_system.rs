//! `devtmpfs`: an ordinary tmpfs instance, filled with the device nodes when it is first mounted and shared by all mounts.
//!
//! Programs may add, change and remove nodes in it as in any directory.

use alloc::sync::Arc;

use block::registry::{BlockDevice, Listener};
use sync::SpinLock;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::inode::NewFile;
use vfs::name::Name;
use vfs::superblock::{FileSystemType, Superblock, find_file_system};
use vfs::{Error, Result};

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

impl DeviceTree {
    /// The tree, once it is mounted.
    pub(crate) fn instance(&self) -> Option<Arc<Superblock>> {
        self.instance.lock().clone()
    }
}

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
        let superblock = self.instance.lock().get_or_insert(superblock).clone();
        // Devices that came meanwhile found no tree to be entered into.
        block::registry::for_each(|device| enter(&superblock, device));
        crate::appearing::enter_all(&superblock);
        Ok(superblock)
    }
}

/// Makes and removes nodes as disks come and go.
struct Disks;

impl Listener for Disks {
    fn added(&self, device: &Arc<BlockDevice>) {
        let instance = DEVICE_TREE.instance.lock().clone();
        if let Some(superblock) = instance {
            enter(&superblock, device);
        }
    }

    fn removed(&self, device: &Arc<BlockDevice>) {
        let instance = DEVICE_TREE.instance.lock().clone();
        if let Some(superblock) = instance
            && let Err(error) = leave(&superblock, device)
        {
            log::warn!("/dev/{} stays: {error}", device.name());
        }
    }
}

/// From now on disks get their nodes. Once, at start-up.
pub(crate) fn follow_disks() {
    static DISKS: Disks = Disks;
    block::registry::listen(&DISKS);
}

fn number_of(device: &BlockDevice) -> DeviceNumber {
    DeviceNumber::new(device.number().major, device.number().minor)
}

/// Makes a disk's node, unless there is something of that name.
fn enter(superblock: &Arc<Superblock>, device: &BlockDevice) {
    let make = || {
        let root = superblock.root().existing()?;
        let new = NewFile {
            kind: FileKind::BlockDevice,
            mode: DISK_MODE,
            access_lists: None,
            user: 0,
            group: 0,
            special: number_of(device),
            target: &[],
        };
        let _exclusive = root.lock().write();
        root.operations().create(root, &Name::new(device.name().as_bytes())?, &new).map(|_| ())
    };
    match make() {
        // Somebody may have asked for the name, and been told that there is none.
        Ok(()) => vfs::dentry::forget_child(superblock.root(), device.name().as_bytes()),
        Err(Error::Exists) => {}
        Err(error) => log::warn!("no /dev/{}: {error}", device.name()),
    }
}

/// Removes a disk's node, if that is what has the name.
fn leave(superblock: &Arc<Superblock>, device: &BlockDevice) -> Result<()> {
    let root = superblock.root().existing()?;
    let name = device.name().as_bytes();
    {
        let _exclusive = root.lock().write();
        let inode = match root.operations().lookup(root, name) {
            Ok(inode) => inode,
            Err(Error::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        };
        if inode.kind != FileKind::BlockDevice || inode.special != number_of(device) {
            return Ok(());
        }
        root.operations().unlink(root, name, &inode)?;
    }
    vfs::dentry::forget_child(superblock.root(), name);
    Ok(())
}

/// Makes the nodes, before anybody can see the tree.
fn fill(superblock: &Arc<Superblock>) -> Result<()> {
    let root = superblock.root().existing()?;
    let make = |name: &str, kind, mode, special, target: &str| {
        let new =
            NewFile { kind, mode, access_lists: None, user: 0, group: 0, special, target: target.as_bytes() };
        root.operations().create(root, &Name::new(name.as_bytes())?, &new).map(|_| ())
    };
    for directory in nodes::DIRECTORIES {
        make(directory, FileKind::Directory, DIRECTORY_MODE, DeviceNumber::default(), "")?;
    }
    for node in nodes::all() {
        make(node.path, node.kind, node.mode, node.number, "")?;
    }
    for (name, target) in nodes::LINKS {
        make(name, FileKind::SymbolicLink, LINK_MODE, DeviceNumber::default(), target)?;
    }
    Ok(())
}

/// A node of a character device.
pub(crate) fn character(path: &'static str, major: u32, minor: u32, mode: u32) -> nodes::Node {
    nodes::Node { path, kind: FileKind::CharacterDevice, number: DeviceNumber::new(major, minor), mode }
}
