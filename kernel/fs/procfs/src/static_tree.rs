//! The fixed entries of `/proc`.

use alloc::sync::Arc;

use sync::SpinLock;
use vfs::generated::{Node, StaticDirectory, text_file};
use vfs::text::Text;
use vfs::{Result, allocation};

pub(crate) static ROOT: StaticDirectory = StaticDirectory::new();

/// Directories made by [`directory`], by path.
static DIRECTORIES: SpinLock<alloc::vec::Vec<(alloc::string::String, Arc<StaticDirectory>)>> =
    SpinLock::new(alloc::vec::Vec::new());

/// Adds a node to the root.
pub fn add(name: &str, node: Node) -> Result<()> {
    ROOT.add(name, node)
}

/// The directory at a path such as `sys/kernel`, made when it is missing, with those above it. For start-up.
pub fn directory(path: &str) -> Result<Arc<StaticDirectory>> {
    if let Some((_, known)) = DIRECTORIES.lock().iter().find(|(known, _)| known == path) {
        return Ok(known.clone());
    }
    let new = StaticDirectory::allocate()?;
    let node = Node::directory(new.clone());
    match path.rsplit_once('/') {
        Some((above, name)) => directory(above)?.add(name, node)?,
        None => ROOT.add(path, node)?,
    }
    let mut directories = DIRECTORIES.lock();
    allocation::push(&mut directories, (path.into(), new.clone()))?;
    Ok(new)
}

/// Adds a node at a path such as `sys/kernel/hostname`.
pub fn add_at(path: &str, node: Node) -> Result<()> {
    match path.rsplit_once('/') {
        Some((above, name)) => directory(above)?.add(name, node),
        None => ROOT.add(path, node),
    }
}

/// Adds a file that everybody may read.
pub fn add_text(path: &str, show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static) -> Result<()> {
    add_at(path, Node::file(0o444, text_file(show)?))
}
