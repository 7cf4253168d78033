//! Attaching mounts: new ones, binds, moves, copies of a name space.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::change::Propagation;
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use crate::attributes::FileKind;
use crate::flags::MountFlags;
use crate::superblock::{FileSystemType, Superblock, mount_device};
use crate::user_space::Owner;
use crate::{Error, Result, allocation};
use block::registry::BlockDevice;
use memory::per_cpu::Shared;

/// Mounts that one name space may hold (`/proc/sys/fs/mount-max` of Linux has the same number).
const MOUNT_MAX: usize = 100_000;

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
    pub fn mount(&self, what: MountSource<'_>, target: &Path, flags: MountFlags) -> Result<()> {
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
        &self,
        superblock: Arc<Superblock>,
        source: &[u8],
        target: &Path,
        flags: MountFlags,
    ) -> Result<()> {
        let mut flags = flags;
        flags.set(
            MountFlags::NO_DEVICES,
            flags.contains(MountFlags::NO_DEVICES) || superblock.traits().no_devices,
        );
        let mount = Mount::new(superblock.clone(), superblock.root().clone(), source, flags)?;
        let _changes = self.changes.lock();
        self.attach_tree(Self::only(mount)?, target)
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

    /// Attaches a tree of detached mounts (the first is its top; the others are attached to each other already).
    fn attach_tree(&self, tree: Vec<Shared<Mount>>, target: &Path) -> Result<()> {
        let top = &tree[0];
        let target = self.check_target(target, top.root().existing()?.kind == FileKind::Directory)?;
        if self.mount_count() + tree.len() > MOUNT_MAX {
            return Err(Error::NoSpace);
        }
        self.reserve(tree.len())?;
        Mount::attach(top, &target.mount, &target.dentry)?;
        for mount in &tree {
            self.add(mount);
        }
        self.changed();
        Ok(())
    }

    /// A detached copy of a mount that shows `root`.
    fn copy_mount(mount: &Shared<Mount>, root: &Path) -> Result<Shared<Mount>> {
        let copy =
            Mount::new(mount.superblock().clone(), Arc::clone(&root.dentry), &mount.source(), mount.flags())?;
        let propagation = *mount.propagation.lock();
        *copy.propagation.lock() = propagation;
        Ok(copy)
    }

    /// Copies the mounts below `source` (below its entry, when it is not the mount's root) onto `copy`.
    fn copy_below(source: &Path, copy: &Shared<Mount>, tree: &mut Vec<Shared<Mount>>) -> Result<()> {
        let mut pairs = Vec::new();
        allocation::push(&mut pairs, (source.mount.clone(), copy.clone()))?;
        let mut next = 0;
        while next < pairs.len() {
            let (original, parent_copy) = pairs[next].clone();
            for child in original.children()? {
                let point = {
                    let guard = sync::rcu::read();
                    child.attached_at(&guard).map(|(_, point)| point.clone())
                };
                let Some(point) = point else { continue };
                let outside = next == 0 && !point.is_below(&source.dentry);
                if outside || *child.propagation.lock() == Propagation::Unbindable {
                    continue;
                }
                let child_copy = Self::copy_mount(&child, &Path::root_of(&child))?;
                Mount::attach(&child_copy, &parent_copy, &point)?;
                allocation::push(tree, child_copy.clone())?;
                allocation::push(&mut pairs, (child, child_copy))?;
            }
            next += 1;
        }
        Ok(())
    }

    fn bind(&self, source: &Path, target: &Path, recursive: bool) -> Result<()> {
        let _changes = self.changes.lock();
        if !self.contains(&source.mount) || *source.mount.propagation.lock() == Propagation::Unbindable {
            return Err(Error::Invalid);
        }
        let copy = Self::copy_mount(&source.mount, source)?;
        let mut tree = Vec::new();
        allocation::push(&mut tree, copy.clone())?;
        let outcome = if recursive { Self::copy_below(source, &copy, &mut tree) } else { Ok(()) };
        outcome.and_then(|()| self.attach_tree(tree.clone(), target)).inspect_err(|_| {
            // Copies refer to each other as parent and child until they are detached.
            for mount in tree.iter().rev() {
                let _ = Mount::detach(mount);
            }
        })
    }

    fn move_mount(&self, source: &Path, target: &Path) -> Result<()> {
        let _changes = self.changes.lock();
        let mount = &source.mount;
        if !source.is_mount_root() || !self.contains(mount) || Shared::ptr_eq(mount, &self.root_mount()) {
            return Err(Error::Invalid);
        }
        let target = self.check_target(target, source.inode()?.kind == FileKind::Directory)?;
        if Self::is_within(&target.mount, mount) {
            return Err(Error::Loop);
        }
        let (old_parent, old_point) = {
            let guard = sync::rcu::read();
            let (parent, point) = mount.attached_at(&guard).ok_or(Error::Invalid)?;
            (parent.clone(), point.clone())
        };
        if matches!(*old_parent.propagation.lock(), Propagation::Shared(_)) {
            return Err(Error::Invalid);
        }
        Mount::detach(mount)?;
        if let Err(error) = Mount::attach(mount, &target.mount, &target.dentry) {
            Mount::attach(mount, &old_parent, &old_point)?;
            return Err(error);
        }
        self.changed();
        Ok(())
    }

    /// Whether `mount` is `top` or below it.
    fn is_within(mount: &Shared<Mount>, top: &Shared<Mount>) -> bool {
        let guard = sync::rcu::read();
        let mut current = mount;
        loop {
            if Shared::ptr_eq(current, top) {
                return true;
            }
            match current.attached_at(&guard) {
                Some((parent, _)) => current = parent,
                None => return false,
            }
        }
    }

    /// A copy of the name space (`CLONE_NEWNS`), and the places that correspond to `places` in it.
    pub fn copy(&self, places: &mut [&mut Path], owner: Owner) -> Result<Arc<Self>> {
        let _changes = self.changes.lock();
        let root = self.root_mount();
        let root_path = Path::root_of(&root);
        let copy = Self::copy_mount(&root, &root_path)?;
        let mut tree = Vec::new();
        let mut originals = Vec::new();
        allocation::push(&mut tree, copy.clone())?;
        Self::copy_below(&root_path, &copy, &mut tree)?;
        for mount in Self::tree(&root)? {
            if *mount.propagation.lock() != Propagation::Unbindable || Shared::ptr_eq(&mount, &root) {
                allocation::push(&mut originals, mount)?;
            }
        }
        let namespace = Self::owned(copy, owner)?;
        namespace.reserve(tree.len())?;
        for mount in &tree[1..] {
            namespace.add(mount);
        }
        for place in places {
            let index = originals.iter().position(|mount| Shared::ptr_eq(mount, &place.mount));
            if let Some(mount) = index.and_then(|index| tree.get(index)) {
                place.mount = mount.clone();
            }
        }
        Ok(namespace)
    }

    /// `pivot_root`: the mount at `new_root` becomes the root of the name space, the old one moves to `put_old`.
    pub fn pivot_root(&self, new_root: &Path, put_old: &Path, process_root: &Path) -> Result<()> {
        let _changes = self.changes.lock();
        let old = process_root.mount.clone();
        if !self.contains(&new_root.mount) || !self.contains(&put_old.mount) || !new_root.is_mount_root() {
            return Err(Error::Invalid);
        }
        if Shared::ptr_eq(&new_root.mount, &old) || Shared::ptr_eq(&put_old.mount, &old) {
            return Err(Error::Busy);
        }
        if !Self::is_within(&put_old.mount, &new_root.mount) || !Shared::ptr_eq(&old, &self.root_mount()) {
            return Err(Error::Invalid);
        }
        Mount::detach(&new_root.mount)?;
        Mount::attach(&old, &put_old.mount, &put_old.dentry)?;
        self.set_root(new_root.mount.clone());
        self.changed();
        Ok(())
    }
}

impl Drop for MountNamespace {
    fn drop(&mut self) {
        // Mounts refer to their parents and children: take the tree apart, leaves first.
        let Ok(tree) = Self::tree(&self.root_mount()) else { return };
        for mount in tree.iter().rev() {
            let _ = Mount::detach(mount);
            self.remove(mount);
        }
        Shared::gather_all(&tree);
    }
}
