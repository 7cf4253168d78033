//! Changing how a mount is seen: its flags, those of its file system, how events propagate from and to it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Shared;

use super::change::Change;
use super::group::{self, Propagation};
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use super::tree;
use crate::flags::MountFlags;
use crate::{Error, Result, allocation};

/// What is about times of access.
const ACCESS_TIME: MountFlags = MountFlags::NO_ACCESS_TIME
    .union(MountFlags::NO_DIRECTORY_ACCESS_TIME)
    .union(MountFlags::RELATIVE_ACCESS_TIME)
    .union(MountFlags::STRICT_ACCESS_TIME);

impl Mount {
    /// Whether its flags may become these.
    ///
    /// # Errors
    /// `EPERM` when one of them is locked.
    pub(super) fn check_flags(&self, flags: MountFlags) -> Result<()> {
        let locked = self.locked_flags();
        let kept = locked.difference(ACCESS_TIME);
        let times_change = (self.flags() & ACCESS_TIME) != (flags & ACCESS_TIME);
        if !flags.contains(kept) || locked.contains(MountFlags::NO_ACCESS_TIME) && times_change {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }
}

/// What `mount_setattr` asks for.
pub struct AttributeChange {
    /// Flags that are to be cleared first.
    pub clear: MountFlags,
    /// Flags that are to be set.
    pub set: MountFlags,
    /// How events are to propagate.
    pub propagation: Option<Propagation>,
    /// Also of all mounts below.
    pub recursive: bool,
}

/// Makes mounts read-only, all or none.
fn freeze(mounts: &[Shared<Mount>]) -> Result<()> {
    let mut before = Vec::new();
    allocation::reserve(&mut before, mounts.len())?;
    for mount in mounts {
        before.push(mount.flags());
        if let Err(error) = mount.set_read_only() {
            for (mount, flags) in mounts.iter().zip(before) {
                mount.set_flags(flags);
            }
            return Err(error);
        }
    }
    Ok(())
}

impl MountNamespace {
    /// Changes how a mount propagates (`MS_SHARED` and the like). `place` must be a mount's root.
    ///
    /// # Errors
    /// `EINVAL` if it is not. No memory.
    pub fn set_propagation(
        self: &Arc<Self>,
        place: &Path,
        wanted: Propagation,
        recursive: bool,
    ) -> Result<()> {
        let mut change = Change::begin();
        self.check_mount_root(place)?;
        let mounts = if recursive { tree::members(&place.mount)? } else { tree::only(&place.mount)? };
        if wanted == Propagation::Shared {
            for mount in &mounts {
                change.share(mount)?;
            }
            return change.commit();
        }
        mounts.iter().try_for_each(|mount| group::change(mount, wanted))
    }

    /// Changes a mount's flags, and with `file_system` those of its file system (`MS_REMOUNT` without `MS_BIND`).
    ///
    /// # Errors
    /// `EINVAL`: it is not a mount's root. `EPERM`: a flag is locked. `EBUSY`: it is to be read only, and is written. Those of the file system.
    pub fn remount(
        self: &Arc<Self>,
        place: &Path,
        flags: MountFlags,
        file_system: Option<&[u8]>,
    ) -> Result<()> {
        self.check_mount_root(place)?;
        let mount = &place.mount;
        mount.check_flags(flags)?;
        let read_only = flags.contains(MountFlags::READ_ONLY);
        if let Some(options) = file_system {
            // Also through other mounts of it: what they write could not be stored any more.
            let is_written = |other: &Shared<Mount>| {
                Arc::ptr_eq(other.superblock(), mount.superblock())
                    && (other.writers() > 0 || other.has_writing_companion())
            };
            if read_only && self.all_mounts()?.iter().any(is_written) {
                return Err(Error::Busy);
            }
            if read_only != mount.superblock().read_only() {
                mount.superblock().operations().change_read_only(read_only)?;
            }
            mount.superblock().remount(options)?;
            mount.superblock().set_read_only(read_only);
        }
        let mut change = Change::begin();
        self.check_mount_root(place)?;
        mount.check_flags(flags)?;
        if read_only {
            mount.set_read_only()?;
        }
        mount.set_flags(flags);
        change.touch(self, 0)?;
        change.commit()
    }

    /// `mount_setattr`: changes flags, and how events propagate, of a mount or of all below it too; of all or of none.
    ///
    /// # Errors
    /// `EINVAL`: it is not a mount's root. `EPERM`: a flag is locked. `EBUSY`: it is to be read only, and is written. No memory.
    pub fn set_attributes(self: &Arc<Self>, place: &Path, wanted: &AttributeChange) -> Result<()> {
        let mut home = None;
        let mut change = Change::begin();
        self.check_changeable(place, &mut home)?;
        let mounts = if wanted.recursive { tree::members(&place.mount)? } else { tree::only(&place.mount)? };
        let new_flags = |mount: &Mount| mount.flags().difference(wanted.clear) | wanted.set;
        for mount in &mounts {
            mount.check_flags(new_flags(mount))?;
        }
        if wanted.propagation == Some(Propagation::Shared) {
            mounts.iter().try_for_each(|mount| change.share(mount))?;
        }
        let freezes = wanted.set.contains(MountFlags::READ_ONLY);
        if freezes {
            freeze(&mounts)?;
        }
        for mount in &mounts {
            mount.set_flags(new_flags(mount));
        }
        if let Some(propagation) = wanted.propagation.filter(|wanted| *wanted != Propagation::Shared) {
            mounts.iter().try_for_each(|mount| group::change(mount, propagation))?;
        }
        change.touch(self, 0)?;
        change.commit()
    }

    pub(super) fn check_mount_root(&self, place: &Path) -> Result<()> {
        if !place.is_mount_root() || !self.contains(&place.mount) { Err(Error::Invalid) } else { Ok(()) }
    }
}
