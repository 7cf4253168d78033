//! `/sys`: devices and kernel objects as files.
//!
//! A tree of directories that is filled by whoever has something to show: [`directory`] makes one (and those above it),
//! [`add`] puts a node into one. Everything else is [`vfs::generated`]'s.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use alloc::sync::Arc;

use vfs::Result;
use vfs::generated::{Node, StaticDirectory, TreeFileSystem};
use vfs::superblock::MountedBy;
use vfs::text::Text;

/// `SYSFS_MAGIC`
const MAGIC: u64 = 0x6265_6572;

/// `sysfs`, to be registered at start-up.
pub static SYSFS: TreeFileSystem =
    TreeFileSystem::new("sysfs", MAGIC, 0o755, 0o755).mounted_by(MountedBy::OwnersOfContent);

/// The directory at a path such as `devices/system/cpu`, made when it is missing, with those above it.
pub fn directory(path: &str) -> Result<Arc<StaticDirectory>> {
    SYSFS.tree().directory(path)
}

/// Names what fills the tree when somebody first looks into it. Once, at start-up.
pub fn fill_later(fill: fn() -> Result<()>) {
    SYSFS.tree().fill_later(fill);
}

/// Names what adds more after that. At start-up.
pub fn fill_also(fill: fn() -> Result<()>) {
    SYSFS.tree().fill_also(fill);
}

/// Adds a node at a path.
pub fn add(path: &str, node: Node) -> Result<()> {
    SYSFS.tree().add(path, node)
}

/// Adds a file that everybody may read.
pub fn add_text(path: &str, show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static) -> Result<()> {
    SYSFS.tree().add_text(path, show)
}
