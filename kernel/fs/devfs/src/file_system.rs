//! `devtmpfs`: an ordinary tmpfs instance, filled with the device nodes when it is first mounted and shared by all mounts.
//!
//! Programs may add, change and remove nodes in it as in any directory.

use alloc::sync::Arc;

use sync::SpinLock;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::credentials::Credentials;
use vfs::flags::MountFlags;
use vfs::mount::{Mount, MountNamespace, Path};
use vfs::superblock::{FileSystemType, Superblock, find_file_system};
use vfs::walk::{PathContext, Places};
use vfs::{Result, allocation};

use crate::nodes;

/// The type `devtmpfs`.
pub struct DeviceTree {
    instance: SpinLock<Option<Arc<Superblock>>>,
}

pub(crate) static DEVICE_TREE: DeviceTree = DeviceTree { instance: SpinLock::new(None) };

/// Permission bits of the directories.
const DIRECTORY_MODE: u32 = 0o755;

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

/// Makes the nodes, through a name space of their own that ends with this function.
fn fill(superblock: &Arc<Superblock>) -> Result<()> {
    let mount = Mount::new(superblock.clone(), superblock.root().clone(), b"devtmpfs", MountFlags::empty())?;
    let root = Path::root_of(&mount);
    let namespace = MountNamespace::new(mount)?;
    let places = allocation::arc(Places { root: root.clone(), cwd: root.clone(), namespace })?;
    let credentials = Credentials::root();
    let context = PathContext { places: &places, credentials: &credentials, umask: 0 };
    for directory in nodes::DIRECTORIES {
        context.make_directory(&root, directory.as_bytes(), DIRECTORY_MODE)?;
    }
    for node in nodes::all() {
        context.make_node(&root, node.path.as_bytes(), node.kind, node.mode, node.number)?;
    }
    for (name, target) in nodes::LINKS {
        context.make_symbolic_link(target.as_bytes(), &root, name.as_bytes())?;
    }
    Ok(())
}

/// A node of a character device.
pub(crate) fn character(path: &'static str, major: u32, minor: u32, mode: u32) -> nodes::Node {
    nodes::Node { path, kind: FileKind::CharacterDevice, number: DeviceNumber::new(major, minor), mode }
}
