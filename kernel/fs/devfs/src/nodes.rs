//! The list of device nodes that `devtmpfs` shows.

use alloc::vec::Vec;

use sync::SpinLock;
use vfs::attributes::{DeviceNumber, FileKind};

/// A device node, or a symbolic link among them.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its name in `/dev`.
    pub path: &'static str,
    /// Character or block device.
    pub kind: FileKind,
    /// Which device.
    pub number: DeviceNumber,
    /// Permission bits.
    pub mode: u32,
}

static NODES: SpinLock<Vec<Node>> = SpinLock::new(Vec::new());

/// Directories that are there from the start: mount points.
pub(crate) const DIRECTORIES: [&str; 2] = ["pts", "shm"];

/// Symbolic links that programs expect.
pub(crate) const LINKS: [(&str, &str); 4] = [
    ("fd", "/proc/self/fd"),
    ("stdin", "/proc/self/fd/0"),
    ("stdout", "/proc/self/fd/1"),
    ("stderr", "/proc/self/fd/2"),
];

/// Adds a node; drivers do so at start-up, before the tree is first mounted.
pub fn add(node: Node) {
    NODES.lock().push(node);
}

/// The nodes added so far.
pub fn all() -> Vec<Node> {
    NODES.lock().clone()
}
