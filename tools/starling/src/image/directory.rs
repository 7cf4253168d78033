//! Reads a directory on the host as an image. Symbolic links are taken as they are, never followed.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use super::content::Content;
use super::tree::{Attributes, FileId, Kind, Node, Tree};
use crate::failure::{Context, Failure, Outcome};

/// Reads everything below `root`.
///
/// # Errors
/// When a directory or link cannot be read.
pub(super) fn read(root: &Path) -> Outcome<Tree> {
    let mut walk = Walk { tree: Tree::default(), linked: HashMap::new() };
    // The image itself may be named through a link; what is in it may not.
    let metadata = fs::metadata(root).context(String::new)?;
    walk.insert(b"", Node { attributes: attributes(&metadata), kind: Kind::Directory })?;
    let mut pending = vec![(root.to_path_buf(), Vec::new())];
    while let Some((directory, name)) = pending.pop() {
        let entries = fs::read_dir(&directory).context(|| directory.display().to_string())?;
        for entry in entries {
            let path = entry.context(|| directory.display().to_string())?.path();
            let last = path.file_name().unwrap_or_default().as_bytes();
            let inner = if name.is_empty() { last.to_vec() } else { [&name, &b"/"[..], last].concat() };
            if walk.entry(&path, &inner)? {
                pending.push((path, inner));
            }
        }
    }
    Ok(walk.tree)
}

struct Walk {
    tree: Tree,
    /// Files with several names, by device and inode number.
    linked: HashMap<(u64, u64), FileId>,
}

impl Walk {
    /// Adds one entry. True when it is a directory that must be read too.
    fn entry(&mut self, path: &Path, name: &[u8]) -> Outcome<bool> {
        let metadata = fs::symlink_metadata(path).context(|| path.display().to_string())?;
        let kind_of_file = metadata.file_type();
        let device = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        let kind = if kind_of_file.is_dir() {
            Kind::Directory
        } else if kind_of_file.is_symlink() {
            let target = fs::read_link(path).context(|| path.display().to_string())?;
            Kind::Symlink(target.as_os_str().as_bytes().to_vec())
        } else if kind_of_file.is_file() {
            Kind::File(self.file(path, &metadata))
        } else if kind_of_file.is_char_device() {
            Kind::Character(device.0, device.1)
        } else if kind_of_file.is_block_device() {
            Kind::Block(device.0, device.1)
        } else if kind_of_file.is_fifo() {
            Kind::Fifo
        } else {
            Kind::Socket
        };
        self.insert(name, Node { attributes: attributes(&metadata), kind })?;
        Ok(kind_of_file.is_dir())
    }

    fn file(&mut self, path: &Path, metadata: &Metadata) -> FileId {
        let content = Content::HostFile { path: path.to_path_buf(), length: metadata.len() };
        if metadata.nlink() < 2 {
            return self.tree.add_content(content);
        }
        let key = (metadata.dev(), metadata.ino());
        *self.linked.entry(key).or_insert_with(|| self.tree.add_content(content))
    }

    fn insert(&mut self, name: &[u8], node: Node) -> Outcome<()> {
        self.tree.insert(name, node).map_err(|error| Failure::ours(error.to_string()))
    }
}

fn attributes(metadata: &Metadata) -> Attributes {
    Attributes {
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        mtime: u32::try_from(metadata.mtime().max(0)).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_taken_not_followed() {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(root.path().join("inside")).expect("created");
        fs::write(root.path().join("inside/file"), "text").expect("written");
        fs::hard_link(root.path().join("inside/file"), root.path().join("again")).expect("linked");
        symlink("/etc", root.path().join("outside")).expect("linked");
        let tree = read(root.path()).expect("readable");
        let names: Vec<_> =
            tree.nodes().map(|(name, _)| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["", "again", "inside", "inside/file", "outside"]);
        assert_eq!(tree.lookup(b"again"), tree.lookup(b"inside/file"), "a hard link is the same file");
        let outside = tree.nodes().find(|(name, _)| *name == b"outside").expect("the link is there");
        assert_eq!(outside.1.kind, Kind::Symlink(b"/etc".to_vec()));
    }

    #[test]
    fn missing_directory_is_an_error() {
        let failure = read(Path::new("/nonexistent/image")).expect_err("is not there");
        assert_eq!(failure.to_string(), ": No such file or directory");
    }
}
