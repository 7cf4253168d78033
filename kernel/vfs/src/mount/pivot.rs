//! `pivot_root`: the mount at one place becomes the root of the name space.

use alloc::sync::Arc;

use memory::per_cpu::Shared;

use super::change::Change;
use super::namespace::MountNamespace;
use super::path::Path;
use super::point::Mount;
use crate::{Error, Result};

impl MountNamespace {
    /// The mount at `new_root` becomes the root of the name space, the old one moves to `put_old`.
    ///
    /// # Errors
    /// `EINVAL`: one of the places is not in the name space, or not where it must be, or events would propagate from there, or it is locked.
    /// `EBUSY`: one of them is on the old root. No memory.
    pub fn pivot_root(self: &Arc<Self>, new_root: &Path, put_old: &Path, process_root: &Path) -> Result<()> {
        let mut change = Change::begin();
        let old = process_root.mount.clone();
        if !self.contains(&new_root.mount) || !self.contains(&put_old.mount) || new_root.mount.is_locked() {
            return Err(Error::Invalid);
        }
        let parent = new_root.mount.attachment_now().map(|(parent, _)| parent);
        if put_old.mount.is_shared() || parent.is_some_and(|parent| parent.is_shared()) {
            return Err(Error::Invalid);
        }
        if Shared::ptr_eq(&new_root.mount, &old) || Shared::ptr_eq(&put_old.mount, &old) {
            return Err(Error::Busy);
        }
        if !new_root.is_mount_root()
            || !Mount::is_within(&put_old.mount, &new_root.mount)
            || !Shared::ptr_eq(&old, &self.root_mount())
        {
            return Err(Error::Invalid);
        }
        change.touch(self, 0)?;
        change.detach(&new_root.mount)?;
        let onto = put_old.clone().onto_mounts();
        change.place(&old, &onto.mount, &onto.dentry)?;
        change.set_root(self, &new_root.mount);
        change.commit()?;
        // What may not be taken from the name space is its root, not what was that.
        new_root.mount.set_locked(old.is_locked());
        old.set_locked(false);
        Ok(())
    }
}
