//! Attaching mounts: new ones, binds, moves.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::change::Change;
use super::group;
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use super::policy;
use super::propagate;
use super::tree::{self, Copied, TreeCopy};
use crate::attributes::FileKind;
use crate::flags::MountFlags;
use crate::superblock::{FileSystemType, Superblock, mount_device};
use crate::{Error, Result};
use block::registry::BlockDevice;
use memory::per_cpu::Shared;

/// What to mount.
pub enum MountSource<'a> {
    /// An instance of a file system.
    New {
        /// Its type.
        file_system: &'static dyn FileSystemType,
        /// The source as given; only shown for file systems without a device.
        source: &'a [u8],
        /// The file system's own options.
        options: &'a [u8],
    },
    /// An instance that was made before.
    Made {
        /// The instance.
        superblock: Arc<Superblock>,
        /// What to show as its source.
        source: &'a [u8],
    },
    /// The file system on a block device.
    Device {
        /// Its type.
        file_system: &'static dyn FileSystemType,
        /// The device.
        device: &'a Arc<BlockDevice>,
        /// The path of its node, as given.
        source: &'a [u8],
        /// The file system's own options.
        options: &'a [u8],
    },
    /// A tree that is seen elsewhere.
    Bind {
        /// Where.
        source: &'a Path,
        /// With the mounts below it.
        recursive: bool,
    },
    /// A mount, taken away from where it is.
    Move {
        /// The mount's root.
        source: &'a Path,
    },
}

impl MountNamespace {
    /// Mounts something on `target`, which was walked to including mounts on it.
    pub fn mount(self: &Arc<Self>, what: MountSource<'_>, target: &Path, flags: MountFlags) -> Result<()> {
        match what {
            MountSource::New { file_system, source, options } => {
                self.mount_superblock(file_system.mount(source, options)?, source, target, flags)
            }
            MountSource::Made { superblock, source } => {
                self.mount_superblock(superblock, source, target, flags)
            }
            MountSource::Device { file_system, device, source, options } => {
                let read_only = flags.contains(MountFlags::READ_ONLY);
                let superblock = mount_device(file_system, device, read_only, options)?;
                // What is mounted there already is not mounted on itself; a bind may do that.
                let place = target.clone().onto_mounts();
                if Arc::ptr_eq(place.mount.superblock(), &superblock)
                    && Arc::ptr_eq(&place.dentry, place.mount.root())
                {
                    return Err(Error::Busy);
                }
                self.mount_superblock(superblock, source, target, flags)
            }
            MountSource::Bind { source, recursive } => self.bind(source, target, recursive),
            MountSource::Move { source } => self.move_mount(source, target),
        }
    }

    fn mount_superblock(
        self: &Arc<Self>,
        superblock: Arc<Superblock>,
        source: &[u8],
        target: &Path,
        flags: MountFlags,
    ) -> Result<()> {
        let mount = Self::mount_of(&superblock, source, flags)?;
        let mut change = Change::begin();
        change.made(&mount)?;
        self.attach(&mut change, &tree::only(&mount)?, target)?;
        change.commit()
    }

    /// A mount of a whole file system.
    pub(super) fn mount_of(
        superblock: &Arc<Superblock>,
        source: &[u8],
        flags: MountFlags,
    ) -> Result<Shared<Mount>> {
        let mut flags = flags;
        flags.set(
            MountFlags::NO_DEVICES,
            flags.contains(MountFlags::NO_DEVICES) || superblock.traits().no_devices,
        );
        let root = superblock.operations().root_for_caller(superblock)?;
        Mount::new(superblock.clone(), root, source, flags)
    }

    /// The target as it is now: somebody may have mounted on it meanwhile.
    fn check_target(&self, target: &Path, is_directory: bool) -> Result<Path> {
        let target = target.clone().onto_mounts();
        if !self.contains(&target.mount) {
            return Err(Error::Invalid);
        }
        if target.is_deleted() {
            return Err(Error::NotFound);
        }
        if (target.inode()?.kind == FileKind::Directory) != is_directory {
            return Err(Error::NotDirectory);
        }
        Ok(target)
    }

    /// Plans that a tree of mounts that are in no name space (the first is its top; the others are attached to each other already) comes to the target.
    fn attach(self: &Arc<Self>, change: &mut Change, tree: &[Shared<Mount>], target: &Path) -> Result<()> {
        let top = &tree[0];
        let target = self.check_target(target, top.root().existing()?.kind == FileKind::Directory)?;
        change.touch(self, tree.len())?;
        Self::propagate(change, tree, &target)?;
        for mount in tree {
            if self.user().is_some() {
                mount.set_flags(mount.flags() | policy::FORCED);
                mount.lock_flags(policy::FORCED);
            }
            change.arrive(self, mount)?;
        }
        change.place(top, &target.mount, &target.dentry)
    }

    /// What comes to a shared mount is shared, and comes to all that receive from there.
    fn propagate(change: &mut Change, tree: &[Shared<Mount>], target: &Path) -> Result<()> {
        if !target.mount.is_shared() {
            return Ok(());
        }
        for mount in tree {
            change.share(mount)?;
        }
        propagate::mount(change, tree, &target.mount, &target.dentry)
    }

    fn bind(self: &Arc<Self>, source: &Path, target: &Path, recursive: bool) -> Result<()> {
        let mut change = Change::begin();
        let copies = self.copy_to_bind(&mut change, source, recursive)?;
        self.attach(&mut change, &copies, target)?;
        change.commit()
    }

    /// Copies of what is at a place, peers of the originals.
    pub(super) fn copy_to_bind(
        &self,
        change: &mut Change,
        source: &Path,
        recursive: bool,
    ) -> Result<Vec<Shared<Mount>>> {
        let belongs = self.contains(&source.mount) || source.mount.superblock().traits().bound_from_nowhere;
        if !belongs || source.mount.relations().unbindable {
            return Err(Error::Invalid);
        }
        // Who may not see what is below a mount may not see it elsewhere.
        let hides = |child: &Shared<Mount>| {
            child.is_locked()
                && child.attachment_now().is_some_and(|(_, point)| point.is_below(&source.dentry))
        };
        if !recursive && source.mount.has_child(hides) {
            return Err(Error::Invalid);
        }
        let below = recursive.then_some(Copied::Bindable);
        let TreeCopy { originals, copies } = tree::copy(change, source, below)?;
        for (original, copy) in originals.iter().zip(&copies) {
            group::copy_relations(original, copy)?;
        }
        Ok(copies)
    }

    /// Moves a mount, also one that is attached nowhere yet.
    fn move_mount(self: &Arc<Self>, source: &Path, target: &Path) -> Result<()> {
        let mut change = Change::begin();
        let mount = &source.mount;
        let home = change.home_of(mount)?.ok_or(Error::Invalid)?;
        let detached = home.is_detached() && Shared::ptr_eq(&home.root_mount(), mount);
        if !source.is_mount_root() || !(self.contains(mount) || detached) || mount.is_locked() {
            return Err(Error::Invalid);
        }
        let old_parent = mount.attachment_now();
        if old_parent.is_none() != detached {
            return Err(Error::Invalid);
        }
        let is_directory = source.inode()?.kind == FileKind::Directory;
        let target = self.check_target(target, is_directory).map_err(|error| match error {
            Error::NotDirectory => Error::Invalid,
            other => other,
        })?;
        if old_parent.is_some_and(|(parent, _)| parent.is_shared()) {
            return Err(Error::Invalid);
        }
        let tree = tree::members(mount)?;
        if target.mount.is_shared() && tree.iter().any(|mount| mount.relations().unbindable) {
            return Err(Error::Invalid);
        }
        if tree.iter().any(|mount| Shared::ptr_eq(mount, &target.mount)) {
            return Err(Error::Loop);
        }
        change.touch(self, if detached { tree.len() } else { 0 })?;
        Self::propagate(&mut change, &tree, &target)?;
        if detached {
            for mount in &tree {
                change.transfer(self, mount)?;
            }
        }
        change.displace(mount)?;
        change.place(mount, &target.mount, &target.dentry)?;
        change.commit()
    }
}
