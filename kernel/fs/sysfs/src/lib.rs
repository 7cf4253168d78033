//! `/sys`: devices and kernel objects as files.
//!
//! A tree of directories that is filled by whoever has something to show: [`directory`] makes one (and those above it),
//! [`add`] puts a node into one. Everything else is [`vfs::generated`]'s. There is one instance, shared by all mounts.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;

use sync::Once;
use vfs::generated::{Node, PathTree, StaticDirectory, TRAITS, new_superblock};
use vfs::superblock::{FileSystemType, Superblock};
use vfs::text::Text;
use vfs::{Result, allocation};

/// `SYSFS_MAGIC`
const MAGIC: u64 = 0x6265_6572;

static TREE: PathTree = PathTree::new(0o755);

/// The directory at a path such as `devices/system/cpu`, made when it is missing, with those above it.
pub fn directory(path: &str) -> Result<Arc<StaticDirectory>> {
    TREE.directory(path)
}

/// Names what fills the tree when somebody first looks into it. Once, at start-up.
pub fn fill_later(fill: fn() -> Result<()>) {
    TREE.fill_later(fill);
}

/// Adds a node at a path.
pub fn add(path: &str, node: Node) -> Result<()> {
    TREE.add(path, node)
}

/// Adds a file that everybody may read.
pub fn add_text(path: &str, show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static) -> Result<()> {
    TREE.add_text(path, show)
}

/// The type `sysfs`.
pub struct SysFs;

/// `sysfs`, to be registered at start-up.
pub static SYSFS: SysFs = SysFs;
static INSTANCE: Once<Arc<Superblock>> = Once::new();

impl FileSystemType for SysFs {
    fn name(&self) -> &'static str {
        "sysfs"
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = INSTANCE.get() {
            return Ok(instance.clone());
        }
        let root: &'static PathTree = &TREE;
        let mut node = Node::directory(allocation::arc(root)?);
        node.mode = 0o755;
        let superblock = new_superblock("sysfs", MAGIC, TRAITS, node)?;
        Ok(INSTANCE.call_once(|| superblock).clone())
    }
}
