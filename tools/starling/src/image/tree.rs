//! A root file system in memory: names, attributes, and where the bytes are.
//!
//! Names come from archives that nobody vouches for, so every name goes through [`Tree::insert`], which keeps it
//! inside the root:
//!
//! * a leading `/` and `.` components are dropped, as `tar` does;
//! * a name with `..` in it is refused;
//! * a directory part that is a symbolic link *in the image* is followed *in the image*, where `/` and `..` stop at the
//!   image's root, as the guest itself would see it.
//!
//! Nodes are kept sorted by path, which puts every directory before what is in it. Hard links share a [`FileId`].

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use super::content::Content;

/// Symbolic links followed in one name before it is refused, as Linux's `MAXSYMLINKS`.
const MAXIMUM_LINKS: usize = 40;
/// The longest path that Linux takes (`PATH_MAX` without its NUL).
const MAXIMUM_PATH: usize = 4095;

/// Attributes of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permission bits, with set-uid, set-gid and sticky.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Seconds since 1970.
    pub(crate) mtime: u32,
}

impl Attributes {
    /// Attributes of what belongs to root and has no history.
    pub(crate) const fn root(mode: u32) -> Self {
        Self { mode, uid: 0, gid: 0, mtime: 0 }
    }
}

/// The contents of a regular file; hard links have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct FileId(usize);

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A directory.
    Directory,
    /// A regular file.
    File(FileId),
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
    /// A character device.
    Character(u32, u32),
    /// A block device.
    Block(u32, u32),
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

/// One name in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Its attributes.
    pub(crate) attributes: Attributes,
    /// What it is.
    pub(crate) kind: Kind,
}

/// Why a name is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NameError {
    /// It has a `..` component.
    Leaves(String),
    /// It is longer than any path may be.
    TooLong(String),
    /// It goes through too many symbolic links.
    Loop(String),
    /// It goes through something that is no directory.
    NotADirectory(String),
    /// It is a hard link to something that is not there or no file.
    NoSuchFile(String),
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaves(name) => write!(f, "member {name} leaves the image's root"),
            Self::TooLong(name) => write!(f, "member {name} has too long a name"),
            Self::Loop(name) => write!(f, "member {name} goes through a loop of symbolic links"),
            Self::NotADirectory(name) => write!(f, "member {name} lies in something that is no directory"),
            Self::NoSuchFile(name) => write!(f, "member {name} is a link to a file that is not in the image"),
        }
    }
}

impl std::error::Error for NameError {}

/// A root file system.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    /// By path without a leading slash; the root is the empty path.
    nodes: BTreeMap<Vec<u8>, Node>,
    contents: Vec<Content>,
}

impl Default for Tree {
    fn default() -> Self {
        let root = Node { attributes: Attributes::root(0o755), kind: Kind::Directory };
        Self { nodes: BTreeMap::from([(Vec::new(), root)]), contents: Vec::new() }
    }
}

impl Tree {
    /// Adds the contents of a file, to be named by [`Kind::File`].
    pub(crate) fn add_content(&mut self, content: Content) -> FileId {
        self.contents.push(content);
        FileId(self.contents.len() - 1)
    }

    /// Says anew where the bytes of a file are.
    pub(crate) fn set_content(&mut self, file: FileId, content: Content) {
        self.contents[file.0] = content;
    }

    /// Where the bytes of a file are.
    pub(crate) fn content(&self, file: FileId) -> &Content {
        &self.contents[file.0]
    }

    /// All nodes by path, directories before what is in them.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_slice(), node))
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Adds a node, or replaces the one of that name: the later member of an archive wins.
    ///
    /// # Errors
    /// [`NameError`] when the name is not inside the root.
    pub(crate) fn insert(&mut self, name: &[u8], node: Node) -> Result<(), NameError> {
        let path = self.resolve(name, LastLink::Keep)?;
        self.make_parents(&path);
        self.replace(path, node);
        Ok(())
    }

    /// Adds another name for the file `target`.
    ///
    /// # Errors
    /// [`NameError`] when a name is not inside the root or `target` is no file.
    pub(crate) fn link(&mut self, name: &[u8], target: &[u8]) -> Result<(), NameError> {
        let target = self.resolve(target, LastLink::Keep)?;
        let node = self.nodes.get(&target).filter(|node| node.kind != Kind::Directory);
        let node = node.ok_or_else(|| NameError::NoSuchFile(printable(name)))?.clone();
        self.insert(name, node)
    }

    /// Takes a name away, with everything below; that it is not there is no error.
    ///
    /// # Errors
    /// [`NameError`] when the name is not inside the root.
    pub(crate) fn remove(&mut self, name: &[u8]) -> Result<(), NameError> {
        let path = self.resolve(name, LastLink::Keep)?;
        if !path.is_empty() && self.nodes.remove(&path).is_some() {
            self.remove_below(&path);
        }
        Ok(())
    }

    /// Takes everything out of a directory; that it is not there is no error.
    ///
    /// # Errors
    /// [`NameError`] when the name is not inside the root.
    pub(crate) fn empty(&mut self, name: &[u8]) -> Result<(), NameError> {
        let path = self.resolve(name, LastLink::Follow)?;
        self.remove_below(&path);
        Ok(())
    }

    fn remove_below(&mut self, path: &[u8]) {
        let inside = if path.is_empty() { Vec::new() } else { [path, b"/"].concat() };
        let mut below = self.nodes.split_off(&inside);
        let after = below.keys().find(|name| !name.starts_with(&inside)).cloned();
        if let Some(after) = after {
            self.nodes.append(&mut below.split_off(&after));
        }
        // The root is below nothing.
        if let Some(root) = below.remove(&Vec::new()) {
            self.nodes.insert(Vec::new(), root);
        }
    }

    /// The node of that name, symbolic links followed inside the image.
    pub(crate) fn lookup(&self, name: &[u8]) -> Option<&Node> {
        self.nodes.get(&self.resolve(name, LastLink::Follow).ok()?)
    }

    /// The path of `name` after following the symbolic links in its directories.
    fn resolve(&self, name: &[u8], last: LastLink) -> Result<Vec<u8>, NameError> {
        let components = |path: &[u8]| -> VecDeque<Vec<u8>> {
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).map(<[u8]>::to_vec).collect()
        };
        if name.len() > MAXIMUM_PATH {
            return Err(NameError::TooLong(printable(&name[..MAXIMUM_PATH.min(80)])));
        }
        let mut pending = components(name);
        if pending.iter().any(|part| part == b"..") {
            return Err(NameError::Leaves(printable(name)));
        }
        let mut path = Vec::new();
        let mut links = 0;
        while let Some(component) = pending.pop_front() {
            let parent_length = path.len();
            match component.as_slice() {
                b"." => continue,
                b".." => {
                    path.truncate(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
                    continue;
                }
                _ if path.is_empty() => path.extend(component),
                _ => path.extend([b"/", component.as_slice()].concat()),
            }
            match self.nodes.get(&path).map(|node| &node.kind) {
                Some(Kind::Symlink(target)) if last == LastLink::Follow || !pending.is_empty() => {
                    links += 1;
                    if links > MAXIMUM_LINKS {
                        return Err(NameError::Loop(printable(name)));
                    }
                    path.truncate(if target.starts_with(b"/") { 0 } else { parent_length });
                    let mut ahead = components(target);
                    ahead.append(&mut pending);
                    pending = ahead;
                }
                None | Some(Kind::Directory) => {}
                Some(_) if pending.is_empty() => {}
                Some(_) => return Err(NameError::NotADirectory(printable(name))),
            }
        }
        Ok(path)
    }

    /// Adds the directories above `path` that the archive did not mention.
    fn make_parents(&mut self, path: &[u8]) {
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(end, _)| end);
        for end in ends {
            let directory = Node { attributes: Attributes::root(0o755), kind: Kind::Directory };
            self.nodes.entry(path[..end].to_vec()).or_insert(directory);
        }
    }

    fn replace(&mut self, path: Vec<u8>, node: Node) {
        // The root stays a directory whatever the archive says.
        if path.is_empty() && node.kind != Kind::Directory {
            return;
        }
        let was_directory = self.nodes.get(&path).is_some_and(|old| old.kind == Kind::Directory);
        if was_directory && node.kind != Kind::Directory {
            self.remove_below(&path);
        }
        self.nodes.insert(path, node);
    }
}

/// What to do when the last component of a name is a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LastLink {
    Keep,
    Follow,
}

/// A name as it can be shown in one line.
fn printable(name: &[u8]) -> String {
    String::from_utf8_lossy(name).escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(tree: &mut Tree, text: &str) -> Node {
        let content = tree.add_content(Content::Bytes(text.into()));
        Node { attributes: Attributes::root(0o644), kind: Kind::File(content) }
    }

    fn symlink(target: &str) -> Node {
        Node { attributes: Attributes::root(0o777), kind: Kind::Symlink(target.into()) }
    }

    fn names(tree: &Tree) -> Vec<String> {
        tree.nodes().map(|(path, _)| printable(path)).collect()
    }

    #[test]
    fn names_are_kept_inside_the_root() {
        let mut tree = Tree::default();
        let node = file(&mut tree, "x");
        tree.insert(b"/etc//./passwd", node.clone()).expect("inside");
        assert_eq!(names(&tree), ["", "etc", "etc/passwd"]);
        for name in ["../x", "a/../../x", "..", "/../x", "a/.."] {
            let result = tree.insert(name.as_bytes(), node.clone());
            assert!(matches!(result, Err(NameError::Leaves(_))), "{name}");
        }
        assert!(matches!(tree.insert(&[b'a'; 5000], node), Err(NameError::TooLong(_))));
    }

    #[test]
    fn links_in_the_image_lead_to_places_in_the_image() {
        let mut tree = Tree::default();
        tree.insert(b"out", symlink("/../../../host")).expect("inside");
        tree.insert(b"usr/up", symlink("../../..")).expect("inside");
        let node = file(&mut tree, "x");
        tree.insert(b"out/evil", node.clone()).expect("stays inside");
        tree.insert(b"usr/up/top", node).expect("stays inside");
        assert_eq!(names(&tree), ["", "host", "host/evil", "out", "top", "usr", "usr/up"]);
    }

    #[test]
    fn loop_of_links_is_refused() {
        let mut tree = Tree::default();
        tree.insert(b"a", symlink("b")).expect("inside");
        tree.insert(b"b", symlink("a")).expect("inside");
        let node = file(&mut tree, "x");
        assert!(matches!(tree.insert(b"a/x", node), Err(NameError::Loop(_))));
        assert!(tree.lookup(b"a").is_none());
    }

    #[test]
    fn later_member_replaces_the_earlier_one() {
        let mut tree = Tree::default();
        let node = file(&mut tree, "old");
        tree.insert(b"dir/file", node.clone()).expect("inside");
        tree.insert(b"dir", node.clone()).expect("inside");
        assert_eq!(names(&tree), ["", "dir"]);
        assert!(matches!(tree.insert(b"dir/x", node.clone()), Err(NameError::NotADirectory(_))));
        tree.insert(b"/", node).expect("the root stays");
        assert_eq!(tree.lookup(b"").map(|node| node.kind.clone()), Some(Kind::Directory));
    }

    #[test]
    fn hard_links_share_their_content() {
        let mut tree = Tree::default();
        let node = file(&mut tree, "x");
        tree.insert(b"one", node.clone()).expect("inside");
        tree.link(b"two", b"/one").expect("one exists");
        assert_eq!(tree.lookup(b"two"), Some(&node));
        assert!(matches!(tree.link(b"three", b"/etc/passwd"), Err(NameError::NoSuchFile(_))));
        assert!(matches!(tree.link(b"three", b"../one"), Err(NameError::Leaves(_))));
    }

    #[test]
    fn lookup_follows_links() {
        let mut tree = Tree::default();
        let node = file(&mut tree, "root:x:0:0::/:/bin/sh");
        tree.insert(b"usr/etc/passwd", node.clone()).expect("inside");
        tree.insert(b"etc", symlink("usr/etc")).expect("inside");
        assert_eq!(tree.lookup(b"/etc/passwd"), Some(&node));
        assert_eq!(tree.lookup(b"/etc/group"), None);
    }
}
