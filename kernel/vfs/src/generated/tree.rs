//! File systems made of computed trees.

use alloc::sync::Arc;
use core::any::Any;
use core::sync::atomic::{AtomicU64, Ordering};

use sync::Once;

use super::inode::Node;
use super::path_tree::PathTree;
use crate::attributes::FileSystemStatus;
use crate::superblock::{FileSystemType, MountedBy, Superblock, SuperblockOperations, SuperblockTraits};
use crate::{Result, allocation};

/// Numbers of nodes that are made once; dynamic nodes compute theirs above 2³².
static NEXT_NUMBER: AtomicU64 = AtomicU64::new(2);

/// A number for a node that is made once.
pub fn next_number() -> u64 {
    // Relaxed: only uniqueness matters.
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

struct Computed;

impl SuperblockOperations for Computed {
    fn status(&self) -> FileSystemStatus {
        FileSystemStatus {
            block_size: machine::address::PAGE_SIZE as u64,
            name_length: 255,
            ..FileSystemStatus::default()
        }
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// The properties of a computed tree.
pub const TRAITS: SuperblockTraits = SuperblockTraits {
    attributes: 0,
    bound_from_nowhere: false,
    access_lists: false,
    one_name: false,
    volatile: true,
    no_negative_entries: true,
    lookup_only: false,
    no_devices: true,
    no_execute: true,
    awaited: false,
    block_bytes: 0,
    stacked: 0,
};

/// A file system with this root; `traits` are [`TRAITS`] or stricter.
pub fn new_superblock(
    file_system: &'static str,
    magic: u64,
    traits: SuperblockTraits,
    root: Node,
) -> Result<Arc<Superblock>> {
    let root = Node { number: 1, ..root };
    Superblock::new(file_system, magic, traits, allocation::boxed(Computed)?, |superblock| {
        root.into_inode(superblock)
    })
}

/// A type of file system with one computed tree, shared by all mounts; for statics.
pub struct TreeFileSystem {
    name: &'static str,
    magic: u64,
    root_mode: u32,
    mounted_by: MountedBy,
    tree: PathTree,
    instance: Once<Arc<Superblock>>,
}

impl TreeFileSystem {
    /// A file system with an empty tree, whose root has one mode and whose other directories have another.
    pub const fn new(name: &'static str, magic: u64, root_mode: u32, directory_mode: u32) -> Self {
        let mounted_by = MountedBy::Administrator;
        let tree = PathTree::new(directory_mode);
        Self { name, magic, root_mode, mounted_by, tree, instance: Once::new() }
    }

    /// The same for other people to mount.
    pub const fn mounted_by(mut self, who: MountedBy) -> Self {
        self.mounted_by = who;
        self
    }

    /// What the file system shows.
    pub const fn tree(&self) -> &PathTree {
        &self.tree
    }
}

impl FileSystemType for TreeFileSystem {
    fn mounted_by(&self) -> MountedBy {
        self.mounted_by
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn mount(&'static self, _source: &[u8], _options: &[u8]) -> Result<Arc<Superblock>> {
        if let Some(instance) = self.instance.get() {
            return Ok(instance.clone());
        }
        let root = Node { mode: self.root_mode, ..Node::directory(allocation::arc(&self.tree)?) };
        let superblock = new_superblock(self.name, self.magic, TRAITS, root)?;
        Ok(self.instance.call_once(|| superblock).clone())
    }
}
