//! Trees of mounts that are attached nowhere: those of `open_tree` and `fsmount`.
//!
//! Such a tree is a name space of its own, which a descriptor keeps. When it is attached to a place its mounts move to the name space there, and
//! nothing is left here; otherwise it goes with the descriptor.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Shared;

use super::change::Change;
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use super::{group, tree};
use crate::file::{FileOperations, OpenFile};
use crate::flags::{MountFlags, OpenFlags};
use crate::superblock::Superblock;
use crate::user_space::Owner;
use crate::{Error, FileFeatures, Result, allocation};

/// What a descriptor of a detached tree keeps.
struct DetachedTree(#[allow(dead_code, reason = "kept, not used")] Arc<MountNamespace>);

impl FileOperations for DetachedTree {
    fn features(&self) -> FileFeatures {
        FileFeatures::SEEKABLE
    }
}

impl MountNamespace {
    /// A copy of what is at a place, as a bind would attach it.
    ///
    /// # Errors
    /// `EINVAL` for a place of another name space, or one that may not be bound. No memory.
    pub fn detached_copy(self: &Arc<Self>, source: &Path, recursive: bool) -> Result<Arc<OpenFile>> {
        let mut change = Change::begin();
        let copies = self.copy_to_bind(&mut change, source, recursive)?;
        self.open_detached(change, copies)
    }

    /// A mount of a file system.
    ///
    /// # Errors
    /// No memory.
    pub fn detached_mount(
        self: &Arc<Self>,
        superblock: &Arc<Superblock>,
        source: &[u8],
        flags: MountFlags,
    ) -> Result<Arc<OpenFile>> {
        let mount = Self::mount_of(superblock, source, flags)?;
        let mut change = Change::begin();
        change.made(&mount)?;
        let tree = tree::only(&mount)?;
        self.open_detached(change, tree)
    }

    fn open_detached(&self, mut change: Change, tree: Vec<Shared<Mount>>) -> Result<Arc<OpenFile>> {
        let namespace = Self::empty(tree[0].clone(), Owner::uncounted(self.owner()), None, true)?;
        change.touch(&namespace, tree.len())?;
        for mount in &tree {
            change.arrive(&namespace, mount)?;
        }
        change.commit()?;
        let place = Path::root_of(&tree[0]);
        // What is left when this fails goes with the name space.
        drop(tree);
        let object: Arc<dyn FileOperations> = allocation::arc(DetachedTree(namespace))?;
        OpenFile::at_path(place, OpenFlags::PATH, Some(object), None)
    }

    /// Whether the place is the root of a mount that may be changed from here: one of this name space, or a detached one. That is kept in `home`, which
    /// is to outlive the change: the end of a name space is a change itself.
    ///
    /// # Errors
    /// `EINVAL`.
    pub(super) fn check_changeable(
        &self,
        place: &Path,
        home: &mut Option<Arc<MountNamespace>>,
    ) -> Result<()> {
        *home = place.mount.home();
        let detached = || home.as_ref().is_some_and(|home| home.is_detached());
        if place.is_mount_root() && (self.contains(&place.mount) || detached()) {
            Ok(())
        } else {
            Err(Error::Invalid)
        }
    }

    /// Has the mount at `to` propagate like that at `from` (`MOVE_MOUNT_SET_GROUP`).
    ///
    /// # Errors
    /// `EINVAL`: one is not a mount's root, `to` propagates already, or shows what `from` does not. No memory.
    pub fn copy_propagation(self: &Arc<Self>, from: &Path, to: &Path) -> Result<()> {
        let mut homes = [None, None];
        let change = Change::begin();
        self.check_changeable(from, &mut homes[0])?;
        self.check_changeable(to, &mut homes[1])?;
        let relations = to.mount.relations();
        let hides = |child: &Shared<Mount>| {
            child.is_locked()
                && child.attachment_now().is_some_and(|(_, point)| point.is_below(to.mount.root()))
        };
        if relations.group.is_some()
            || relations.master.is_some()
            || !Arc::ptr_eq(from.mount.superblock(), to.mount.superblock())
            || !to.mount.root().is_below(from.mount.root())
            || from.mount.has_child(hides)
        {
            return Err(Error::Invalid);
        }
        if let Err(error) = group::copy_relations(&from.mount, &to.mount) {
            group::leave(&to.mount);
            return Err(error);
        }
        change.commit()
    }
}
