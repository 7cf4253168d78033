//! A tree of static directories that is filled by path.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::SpinLock;

use super::directory::StaticDirectory;
use super::file::text_file;
use super::inode::Node;
use crate::text::Text;
use crate::{Result, allocation};

/// A tree; for statics. Filled at start-up: directories are found by their whole paths in a list.
pub struct PathTree {
    root: StaticDirectory,
    directories: SpinLock<Vec<(String, Arc<StaticDirectory>)>>,
    directory_mode: u32,
}

impl PathTree {
    /// An empty tree whose directories get this mode.
    pub const fn new(directory_mode: u32) -> Self {
        Self { root: StaticDirectory::new(), directories: SpinLock::new(Vec::new()), directory_mode }
    }

    /// The root.
    pub const fn root(&self) -> &StaticDirectory {
        &self.root
    }

    /// The directory at a path such as `sys/kernel`, made when it is missing, with those above it.
    pub fn directory(&self, path: &str) -> Result<Arc<StaticDirectory>> {
        if let Some((_, known)) = self.directories.lock().iter().find(|(known, _)| known == path) {
            return Ok(known.clone());
        }
        let new = StaticDirectory::allocate()?;
        self.add(path, Node { mode: self.directory_mode, ..Node::directory(new.clone()) })?;
        let mut directories = self.directories.lock();
        allocation::push(&mut directories, (path.into(), new.clone()))?;
        Ok(new)
    }

    /// Adds a node at a path; directories above it are made when they are missing.
    pub fn add(&self, path: &str, node: Node) -> Result<()> {
        match path.rsplit_once('/') {
            Some((above, name)) => self.directory(above)?.add(name, node),
            None => self.root.add(path, node),
        }
    }

    /// Adds a file that everybody may read.
    pub fn add_text(
        &self,
        path: &str,
        show: impl Fn(&mut Text) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        self.add(path, Node::file(0o444, text_file(show)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::FileKind;
    use crate::generated::Directory;

    #[test]
    fn directories_are_made_on_the_way() {
        let tree = PathTree::new(0o755);
        tree.add_text("devices/system/online", |_| Ok(())).unwrap();
        let node = tree.root().lookup(b"devices").unwrap();
        assert_eq!((node.kind(), node.mode), (FileKind::Directory, 0o755));
        assert!(tree.directory("devices/system").unwrap().lookup(b"online").is_ok());
        assert!(tree.root().lookup(b"online").is_err());
        assert!(tree.add_text("devices/system/online", |_| Ok(())).is_err());
    }
}
