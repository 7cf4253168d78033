//! `unlink`, `rmdir`.

use alloc::sync::Arc;

use sync::rcu;

use crate::attributes::FileKind;
use crate::dentry::Dentry;
use crate::flags::LookupFlags;
use crate::inotify::{self, EventMask};
use crate::mount::Path;
use crate::permission::check_removal;
use crate::walk::{LastName, PathContext, Walker, find_entry_locked};
use crate::{Error, Result};

/// Whether something is mounted on the entry, seen through `mount`.
pub(super) fn is_mount_point(parent: &Path, dentry: &Arc<Dentry>) -> bool {
    let guard = rcu::read();
    parent.mount.mounted_on(dentry, &guard).is_some()
}

impl PathContext<'_> {
    /// `unlink`.
    pub fn unlink(&self, start: &Path, path: &[u8]) -> Result<()> {
        let mut walker = Walker::new(self, start, path, LookupFlags::empty())?;
        let last = walker.stop_at_parent()?;
        let LastName::Name(name) = last.name else { return Err(Error::IsDirectory) };
        let parent = walker.place();
        parent.mount.writable()?;
        let directory = parent.inode()?;
        let (inode, dentry) = {
            let _exclusive = directory.lock().write();
            let dentry = find_entry_locked(&parent.dentry, name.as_bytes())?.ok_or(Error::NotFound)?;
            let inode = dentry.existing()?.clone();
            if last.trailing_slash {
                let is_directory = inode.kind == FileKind::Directory;
                return Err(if is_directory { Error::IsDirectory } else { Error::NotDirectory });
            }
            check_removal(directory, &inode, self.credentials)?;
            if inode.kind == FileKind::Directory {
                return Err(Error::IsDirectory);
            }
            if is_mount_point(parent, &dentry) {
                return Err(Error::Busy);
            }
            {
                // It is given no other name meanwhile.
                let _victim = inode.lock().write_nested(1);
                directory.operations().unlink(directory, name.as_bytes(), &inode)?;
            }
            dentry.remove();
            (inode, dentry)
        };
        inotify::report_child(parent, name.as_bytes(), EventMask::DELETE, false, Some(&inode));
        inotify::report_unlinked(&inode);
        // The last reference frees the file's pages: outside of the directory's lock.
        drop((dentry, inode));
        Ok(())
    }

    /// `rmdir`.
    pub fn remove_directory(&self, start: &Path, path: &[u8]) -> Result<()> {
        let mut walker = Walker::new(self, start, path, LookupFlags::empty())?;
        let last = walker.stop_at_parent()?;
        let name = match last.name {
            LastName::Name(name) => name,
            LastName::Current => return Err(Error::Invalid),
            LastName::Parent => return Err(Error::NotEmpty),
            LastName::Root => return Err(Error::Busy),
        };
        let parent = walker.place();
        parent.mount.writable()?;
        let directory = parent.inode()?;
        let inode = {
            let _exclusive = directory.lock().write();
            let dentry = find_entry_locked(&parent.dentry, name.as_bytes())?.ok_or(Error::NotFound)?;
            let inode = dentry.existing()?.clone();
            check_removal(directory, &inode, self.credentials)?;
            if inode.kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            if is_mount_point(parent, &dentry) {
                return Err(Error::Busy);
            }
            let _victim = inode.lock().write_nested(1);
            directory.operations().remove_directory(directory, name.as_bytes(), &inode)?;
            dentry.remove();
            inode.clone()
        };
        inotify::report_child(parent, name.as_bytes(), EventMask::DELETE, true, Some(&inode));
        inotify::report_unlinked(&inode);
        Ok(())
    }
}
