//! A tree of static directories that is filled by path.
//!
//! States: *open* (whoever has something to show adds it) → *waiting* ([`PathTree::fill_later`]: what fills the rest is
//! known) → *full*. It gets full when somebody first looks for something that was not there from the start, or
//! lists the root: many programs never do, and a hundred files are a noticeable part of a short boot. While the
//! filler runs nobody sees what it has made, so that a half-filled directory never looks as if something were missing. A
//! filler that runs out of memory is undone, and tried again the next time.
//!
//! Locking: `filling` (may sleep) before the spin locks of directories and list.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use sched::Mutex;
use sync::{Once, SpinLock};

use super::directory::{Directory, StaticDirectory};
use super::file::text_file;
use super::inode::Node;
use crate::inode::DirectorySink;
use crate::text::Text;
use crate::{Error, Result, allocation};

/// Crates beside the one that calls [`PathTree::fill_later`] that may fill a tree.
const FURTHER_FILLERS: usize = 4;

/// Fills a tree, or a part of it.
type Fill = fn() -> Result<()>;

/// What fills the rest of a tree.
struct Filler {
    fill: Fill,
    /// Entries of the root that are there before.
    present: usize,
}

/// A tree; for statics. Directories are found by their whole paths in a list. As a [`Directory`] it is its root.
pub struct PathTree {
    root: StaticDirectory,
    directories: SpinLock<Vec<(String, Arc<StaticDirectory>)>>,
    directory_mode: u32,
    filler: Once<Filler>,
    /// What fills in more after it; each set once, before the first look.
    more: [Once<Fill>; FURTHER_FILLERS],
    filling: Mutex<()>,
    /// Nothing is left to be filled in. Written with `filling` held.
    full: AtomicBool,
}

impl PathTree {
    /// An empty tree whose directories get this mode.
    pub const fn new(directory_mode: u32) -> Self {
        Self {
            root: StaticDirectory::new(),
            directories: SpinLock::new(Vec::new()),
            directory_mode,
            filler: Once::new(),
            more: [const { Once::new() }; FURTHER_FILLERS],
            filling: Mutex::named("filling of a tree", ()),
            full: AtomicBool::new(false),
        }
    }

    /// Names what adds the rest when somebody wants it. Once, after what must be there from the start; directories
    /// that are there already stay as they are.
    pub fn fill_later(&self, fill: fn() -> Result<()>) {
        self.filler.call_once(|| Filler { fill, present: self.root.length() });
    }

    /// Names what adds more after that. At start-up, by crates that the first one does not know.
    pub fn fill_also(&self, fill: fn() -> Result<()>) {
        let free = self.more.iter().find(|more| more.get().is_none());
        let free = free.expect("a filler for each crate that shows something");
        free.call_once(|| fill);
    }

    fn run_fillers(&self, first: fn() -> Result<()>) -> Result<()> {
        first()?;
        self.more.iter().filter_map(Once::get).try_for_each(|fill| fill())
    }

    /// Entries of the root that may be looked at without filling the tree.
    fn visible(&self) -> usize {
        match self.filler.get() {
            // Acquire: pairs with the Release in `fill`.
            Some(filler) if !self.full.load(Ordering::Acquire) => filler.present,
            _ => usize::MAX,
        }
    }

    /// Fills the tree unless it is full.
    fn fill(&self) -> Result<()> {
        let Some(filler) = self.filler.get() else { return Ok(()) };
        if self.full.load(Ordering::Acquire) {
            return Ok(());
        }
        let _filling = self.filling.lock();
        if self.full.load(Ordering::Acquire) {
            return Ok(());
        }
        if let Err(error) = self.run_fillers(filler.fill) {
            self.root.truncate(filler.present);
            *self.directories.lock() = Vec::new();
            return Err(error);
        }
        // Release: who sees it sees the entries.
        self.full.store(true, Ordering::Release);
        Ok(())
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

impl Directory for PathTree {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        match self.root.find(name, self.visible()) {
            Some(node) => Ok(node),
            None => {
                self.fill()?;
                self.root.find(name, usize::MAX).ok_or(Error::NotFound)
            }
        }
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        self.fill()?;
        self.root.list(position, sink)
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        self.root.still_valid(name, number)
    }

    fn links(&self) -> u32 {
        self.root.links()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::FileKind;

    #[test]
    fn directories_are_made_on_the_way() {
        let tree = PathTree::new(0o755);
        tree.add_text("devices/system/online", |_| Ok(())).unwrap();
        let node = tree.lookup(b"devices").unwrap();
        assert_eq!((node.kind(), node.mode), (FileKind::Directory, 0o755));
        assert!(tree.directory("devices/system").unwrap().lookup(b"online").is_ok());
        assert!(tree.lookup(b"online").is_err());
        assert!(tree.add_text("devices/system/online", |_| Ok(())).is_err());
    }

    #[test]
    fn rest_is_filled_in_when_somebody_looks_for_it() {
        static TREE: PathTree = PathTree::new(0o555);
        static ATTEMPTS: sync::SpinLock<u32> = sync::SpinLock::new(0);
        TREE.add_text("early", |_| Ok(())).unwrap();
        TREE.fill_later(|| {
            TREE.add_text("deep/late", |_| Ok(()))?;
            // What is half made is not seen.
            assert!(TREE.root.find(b"deep", TREE.visible()).is_none());
            *ATTEMPTS.lock() += 1;
            if *ATTEMPTS.lock() == 1 { Err(Error::OutOfMemory) } else { Ok(()) }
        });
        assert!(TREE.lookup(b"early").is_ok());
        assert_eq!(*ATTEMPTS.lock(), 0);
        assert_eq!(TREE.lookup(b"deep").err(), Some(Error::OutOfMemory));
        assert!(TREE.lookup(b"deep").is_ok() && TREE.lookup(b"none").is_err());
        assert!(TREE.directory("deep").unwrap().lookup(b"late").is_ok());
        assert_eq!(*ATTEMPTS.lock(), 2);
    }
}
