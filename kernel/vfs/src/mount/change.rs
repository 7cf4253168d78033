//! Changing what is mounted: flags, propagation, unmounting.
//!
//! Propagation types are kept and shown; events do not propagate between peers, since a single name space's peers are
//! all made by explicit binds. Shared mounts get a peer group of their own.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use crate::flags::{MountFlags, UnmountFlags};
use crate::{Error, Result, allocation};
use memory::per_cpu::Shared;

/// How mount events propagate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Not at all.
    Private,
    /// To and from the peers of this group.
    Shared(u64),
    /// From this group only.
    Slave(u64),
    /// Private, and not to be bound elsewhere.
    Unbindable,
}

static NEXT_GROUP: AtomicU64 = AtomicU64::new(1);

impl Propagation {
    /// Shared in a new peer group.
    pub fn new_shared() -> Self {
        Self::Shared(NEXT_GROUP.fetch_add(1, Ordering::Relaxed))
    }
}

/// Whose changes `mount --make-*` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Private,
    Shared,
    Slave,
    Unbindable,
}

impl MountNamespace {
    /// A mount and all mounts below it, parents first.
    pub(super) fn tree(top: &Shared<Mount>) -> Result<Vec<Shared<Mount>>> {
        let mut tree = Vec::new();
        allocation::push(&mut tree, top.clone())?;
        let mut next = 0;
        while next < tree.len() {
            let children = tree[next].children()?;
            allocation::reserve(&mut tree, children.len())?;
            tree.extend(children);
            next += 1;
        }
        Ok(tree)
    }

    /// A tree of one mount.
    pub(super) fn only(mount: Shared<Mount>) -> Result<Vec<Shared<Mount>>> {
        let mut tree = Vec::new();
        allocation::push(&mut tree, mount)?;
        Ok(tree)
    }

    /// Changes how a mount propagates (`MS_SHARED` and the like). `place` must be a mount's root.
    pub fn set_propagation(&self, place: &Path, wanted: Propagation, recursive: bool) -> Result<()> {
        let _changes = self.changes.lock();
        self.check_mount_root(place)?;
        let kind = match wanted {
            Propagation::Private => Kind::Private,
            Propagation::Shared(_) => Kind::Shared,
            Propagation::Slave(_) => Kind::Slave,
            Propagation::Unbindable => Kind::Unbindable,
        };
        let mounts = if recursive { Self::tree(&place.mount)? } else { Self::only(place.mount.clone())? };
        for mount in mounts {
            let mut propagation = mount.propagation.lock();
            *propagation = match (kind, *propagation) {
                (Kind::Private, _) => Propagation::Private,
                (Kind::Unbindable, _) => Propagation::Unbindable,
                (Kind::Shared, shared @ Propagation::Shared(_)) => shared,
                (Kind::Shared, _) => Propagation::new_shared(),
                (Kind::Slave, Propagation::Shared(group) | Propagation::Slave(group)) => {
                    Propagation::Slave(group)
                }
                (Kind::Slave, other) => other,
            };
        }
        Ok(())
    }

    /// Changes a mount's flags, and with `file_system` those of its file system (`MS_REMOUNT` without `MS_BIND`).
    pub fn remount(&self, place: &Path, flags: MountFlags, file_system: Option<&[u8]>) -> Result<()> {
        let _changes = self.changes.lock();
        self.check_mount_root(place)?;
        let mount = &place.mount;
        let read_only = flags.contains(MountFlags::READ_ONLY);
        if let Some(options) = file_system {
            // Also through other mounts of it: what they write could not be stored any more.
            let is_written = |other: &Shared<Mount>| {
                Arc::ptr_eq(other.superblock(), mount.superblock()) && other.writers() > 0
            };
            if read_only && Self::tree(&self.root_mount())?.iter().any(is_written) {
                return Err(Error::Busy);
            }
            if read_only != mount.superblock().read_only() {
                mount.superblock().operations().change_read_only(read_only)?;
            }
            mount.superblock().remount(options)?;
            mount.superblock().set_read_only(read_only);
        }
        if read_only {
            mount.set_read_only()?;
        }
        mount.set_flags(flags);
        self.changed();
        Ok(())
    }

    fn check_mount_root(&self, place: &Path) -> Result<()> {
        if !place.is_mount_root() || !self.contains(&place.mount) { Err(Error::Invalid) } else { Ok(()) }
    }

    /// Unmounts the mount that `place` is the root of; `process_root` can't be unmounted except lazily.
    pub fn unmount(&self, place: Path, flags: UnmountFlags, process_root: &Path) -> Result<()> {
        let _changes = self.changes.lock();
        self.check_mount_root(&place)?;
        let mount = place.mount.clone();
        let expires = flags.contains(UnmountFlags::EXPIRE);
        let forced = flags.intersects(UnmountFlags::FORCE | UnmountFlags::DETACH);
        if expires && (forced || Shared::ptr_eq(&mount, &process_root.mount)) {
            return Err(Error::Invalid);
        }
        if Shared::ptr_eq(&mount, &self.root_mount()) {
            return Err(if flags.contains(UnmountFlags::DETACH) { Error::Invalid } else { Error::Busy });
        }
        drop(place);
        if flags.contains(UnmountFlags::DETACH) {
            return self.unmount_tree(&mount);
        }
        if mount.has_children() || Self::in_use(&mount) {
            return Err(Error::Busy);
        }
        if flags.contains(UnmountFlags::EXPIRE) && !mount.expire() {
            Shared::spread(&mount);
            return Err(Error::WouldBlock);
        }
        self.unmount_tree(&mount)?;
        if mount.superblock().is_on_device() || mount.superblock().traits().stacked > 0 {
            let superblock = mount.superblock().clone();
            drop(mount);
            // What is left of the mount goes now. So it is here that the file system ends, and the device is free when the call returns.
            sync::rcu::barrier_expedited();
            superblock.finish();
            drop(superblock);
        }
        Ok(())
    }

    /// Whether somebody uses a mount. Its references are counted in one place from here on, also if it is not in use.
    ///
    /// References of an idle attached mount: the parent's child list, the name space's list, and the caller's. Older
    /// child lists and attachments of mounts that were on it may hold more until they are dropped after a grace
    /// period: then waiting for that decides.
    fn in_use(mount: &Shared<Mount>) -> bool {
        const REFERENCES_WHEN_IDLE: usize = 3;
        Shared::gather(mount);
        if Shared::count(mount) <= REFERENCES_WHEN_IDLE {
            return false;
        }
        sync::rcu::barrier_expedited();
        let in_use = Shared::count(mount) > REFERENCES_WHEN_IDLE;
        if in_use {
            Shared::spread(mount);
        }
        in_use
    }

    /// Detaches a mount and everything mounted below it.
    fn unmount_tree(&self, top: &Shared<Mount>) -> Result<()> {
        let tree = Self::tree(top)?;
        for mount in tree.iter().rev() {
            Mount::detach(mount)?;
            self.remove(mount);
        }
        Shared::gather_all(&tree);
        self.changed();
        Ok(())
    }
}
