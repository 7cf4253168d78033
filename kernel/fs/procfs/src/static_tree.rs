//! The fixed entries of `/proc`.

use alloc::sync::Arc;

use vfs::Result;
use vfs::generated::{Node, PathTree, StaticDirectory};
use vfs::text::Text;

pub(crate) static TREE: PathTree = PathTree::new(0o555);

/// Adds a node to the root.
pub fn add(name: &str, node: Node) -> Result<()> {
    TREE.add(name, node)
}

/// Names what adds the rest of the entries when somebody first wants one of them. Once, at start-up.
pub fn fill_later(fill: fn() -> Result<()>) {
    TREE.fill_later(fill);
}

/// Names what adds more after that. At start-up.
pub fn fill_also(fill: fn() -> Result<()>) {
    TREE.fill_also(fill);
}

/// The directory at a path such as `sys/kernel`, made when it is missing, with those above it. For start-up.
pub fn directory(path: &str) -> Result<Arc<StaticDirectory>> {
    TREE.directory(path)
}

/// Adds a node at a path such as `sys/kernel/hostname`.
pub fn add_at(path: &str, node: Node) -> Result<()> {
    TREE.add(path, node)
}

/// Adds a file that everybody may read.
pub fn add_text(path: &str, show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static) -> Result<()> {
    TREE.add_text(path, show)
}
