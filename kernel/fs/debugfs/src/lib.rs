//! `debugfs`: what helps to find faults of the kernel, as files for root.
//!
//! It is a tree like that of `sysfs`, and made in the same way ([`vfs::generated`]); nobody mounts it but who wants it
//! (`mount -t debugfs debugfs /sys/kernel/debug`).
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

use vfs::Result;
use vfs::generated::{Node, TreeFileSystem};

/// `DEBUGFS_MAGIC`
const MAGIC: u64 = 0x6462_6720;

/// `debugfs`, to be registered at start-up. Only root may enter it.
pub static DEBUGFS: TreeFileSystem = TreeFileSystem::new("debugfs", MAGIC, 0o700, 0o755);

/// Names what fills the tree when somebody first looks into it. Once, at start-up.
pub fn fill_later(fill: fn() -> Result<()>) {
    DEBUGFS.tree().fill_later(fill);
}

/// Adds a node at a path such as `provoke-crash/DIRECT`.
pub fn add(path: &str, node: Node) -> Result<()> {
    DEBUGFS.tree().add(path, node)
}
