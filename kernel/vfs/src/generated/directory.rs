//! Directories of computed trees.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::SpinLock;

use super::inode::Node;
use crate::attributes::FileKind;
use crate::inode::{DirectorySink, FIRST_POSITION};
use crate::name::Name;
use crate::{Error, Result, allocation};

/// A directory whose contents are computed.
pub trait Directory: Send + Sync {
    /// The node with this name. Fails with `ENOENT`.
    fn lookup(&self, name: &[u8]) -> Result<Node>;

    /// Lists from `position` (2 or more) until the sink is full; returns where to go on. Positions must be stable while
    /// the contents change. The sink may sleep: hold no spin lock.
    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64>;

    /// Whether the entry that was found with this inode number still is what the name means.
    fn still_valid(&self, name: &[u8], number: u64) -> bool;

    /// The owner now, when it changes.
    fn owner(&self) -> Option<(u32, u32)> {
        None
    }

    /// Its link count.
    fn links(&self) -> u32 {
        2
    }
}

/// A directory with a list of nodes.
pub struct StaticDirectory {
    entries: SpinLock<Vec<(Name, Node)>>,
}

impl StaticDirectory {
    /// An empty one; for statics.
    pub const fn new() -> Self {
        Self { entries: SpinLock::new(Vec::new()) }
    }

    /// An empty one on the heap.
    pub fn allocate() -> Result<Arc<Self>> {
        allocation::arc(Self::new())
    }

    /// Adds a node. Fails with `EEXIST`.
    pub fn add(&self, name: &str, node: Node) -> Result<()> {
        let owned = Name::new(name.as_bytes())?;
        let mut entries = self.entries.lock();
        if entries.iter().any(|(known, _)| *known == owned) {
            return Err(Error::Exists);
        }
        allocation::push(&mut entries, (owned, node))
    }

    /// Takes a node out.
    pub fn remove(&self, name: &str) -> Option<Node> {
        let mut entries = self.entries.lock();
        let index = entries.iter().position(|(known, _)| known.as_bytes() == name.as_bytes())?;
        let (_, node) = entries.remove(index);
        drop(entries);
        Some(node)
    }

    /// How many nodes it holds.
    pub(super) fn length(&self) -> usize {
        self.entries.lock().len()
    }

    /// Takes all nodes out but the first ones.
    pub(super) fn truncate(&self, length: usize) {
        while self.length() > length {
            // Dropped after the lock.
            let last = self.entries.lock().pop();
            drop(last);
        }
    }

    /// The node with this name among the first ones.
    pub(super) fn find(&self, name: &[u8], first: usize) -> Option<Node> {
        let entries = self.entries.lock();
        entries.iter().take(first).find(|(known, _)| known.as_bytes() == name).map(|(_, node)| node.clone())
    }
}

impl Default for StaticDirectory {
    fn default() -> Self {
        Self::new()
    }
}

impl Directory for StaticDirectory {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        self.find(name, usize::MAX).ok_or(Error::NotFound)
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        let mut next = position;
        loop {
            let index = (next - FIRST_POSITION) as usize;
            let entry: Option<(Name, u64, FileKind)> = {
                let entries = self.entries.lock();
                entries.get(index).map(|(name, node)| (name.clone(), node.number, node.kind()))
            };
            let Some((name, number, kind)) = entry else { return Ok(next) };
            if !sink.entry(name.as_bytes(), number, kind, next + 1) {
                return Ok(next);
            }
            next += 1;
        }
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        let entries = self.entries.lock();
        entries.iter().any(|(known, node)| node.number == number && known.as_bytes() == name)
    }

    fn links(&self) -> u32 {
        let entries = self.entries.lock();
        2 + entries.iter().filter(|(_, node)| node.kind() == FileKind::Directory).count() as u32
    }
}

impl<D: Directory + ?Sized> Directory for &'static D {
    fn lookup(&self, name: &[u8]) -> Result<Node> {
        (**self).lookup(name)
    }

    fn list(&self, position: u64, sink: &mut dyn DirectorySink) -> Result<u64> {
        (**self).list(position, sink)
    }

    fn still_valid(&self, name: &[u8], number: u64) -> bool {
        (**self).still_valid(name, number)
    }

    fn owner(&self) -> Option<(u32, u32)> {
        (**self).owner()
    }

    fn links(&self) -> u32 {
        (**self).links()
    }
}
