//! A place: a mount and an entry in it; and how it is written as a path.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::{Kept, Shared};
use sync::rcu;

use super::point::Mount;
use crate::dentry::{Dentry, DentryFlags};
use crate::inode::Inode;
use crate::name::PATH_MAX;
use crate::{Error, Result, allocation};

/// A place in the tree. Cloning takes one atomic increment (the entry) and a plain one (an attached mount); of an entry that many
/// processors use, two plain ones.
#[derive(Clone)]
pub struct Path {
    /// The mount.
    pub mount: Shared<Mount>,
    /// The entry in it.
    pub dentry: Kept<Dentry>,
}

/// What stands before a path that was written from the inside out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathPrefix {
    /// The path begins at the given root.
    Reachable,
    /// It begins at another root: `getcwd` shows `(unreachable)`.
    Unreachable,
}

/// Restarts of writing a path because of concurrent renames, before a possibly torn one is taken.
const RENAME_RETRIES: usize = 8;

impl Path {
    /// The place (mount, entry).
    #[inline]
    pub fn new(mount: Shared<Mount>, dentry: impl Into<Kept<Dentry>>) -> Self {
        Self { mount, dentry: dentry.into() }
    }

    /// The root of a mount.
    pub fn root_of(mount: &Shared<Mount>) -> Self {
        Self::new(mount.clone(), mount.root().clone())
    }

    /// The file. Fails with `ENOENT` for a negative entry.
    #[inline]
    pub fn inode(&self) -> Result<&Arc<Inode>> {
        self.dentry.existing()
    }

    /// Whether both are the same place.
    #[inline]
    pub fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.dentry, &other.dentry) && Shared::ptr_eq(&self.mount, &other.mount)
    }

    /// Whether it is the root of its mount.
    #[inline]
    pub fn is_mount_root(&self) -> bool {
        Arc::ptr_eq(&self.dentry, self.mount.root())
    }

    /// Steps onto whatever is mounted here, and on that, and so on.
    pub fn onto_mounts(mut self) -> Self {
        while self.dentry.flags().contains(DentryFlags::MOUNT_POINT) {
            let guard = rcu::read();
            let Some(mount) = self.mount.mounted_on(&self.dentry, &guard).cloned() else { break };
            drop(guard);
            self = Self::root_of(&mount);
        }
        self
    }

    /// Appends the path as the [calling program](crate::caller) sees it, ` (deleted)` behind it when its name is gone; the kernel's own
    /// threads see it from the root of its mount.
    ///
    /// # Errors
    /// Those of [`write_to`](Self::write_to).
    pub fn write_as_seen(&self, out: &mut Vec<u8>) -> Result<()> {
        let root = crate::caller::root().unwrap_or_else(|| Self::root_of(&self.mount));
        self.write_to(&root, true, out).map(|_| ())
    }

    /// Appends the path from `root` to here, beginning with `/`. A removed file's path is followed by ` (deleted)`
    /// when `mark_deleted`. Fails with `ENAMETOOLONG` beyond 4096 bytes.
    pub fn write_to(&self, root: &Path, mark_deleted: bool, out: &mut Vec<u8>) -> Result<PathPrefix> {
        // Names come last one first: they are collected at the end of a buffer.
        let mut buffer = allocation::filled(0u8, PATH_MAX)?;
        let mut prefix = PathPrefix::Reachable;
        let mut start = PATH_MAX;
        for _ in 0..RENAME_RETRIES {
            let renames = Dentry::rename_count();
            (start, prefix) = self.collect(root, &mut buffer)?;
            if Dentry::rename_count() == renames {
                break;
            }
        }
        let text = if start == PATH_MAX { b"/" } else { &buffer[start..] };
        let suffix: &[u8] = if mark_deleted && self.is_deleted() { b" (deleted)" } else { b"" };
        allocation::reserve(out, text.len() + suffix.len())?;
        out.extend_from_slice(text);
        out.extend_from_slice(suffix);
        Ok(prefix)
    }

    /// Whether its name was removed.
    pub fn is_deleted(&self) -> bool {
        self.dentry.flags().contains(DentryFlags::DELETED)
    }

    /// Whether it is `root` or below it.
    pub(super) fn is_seen_from(&self, root: &Path) -> bool {
        let guard = rcu::read();
        let (mut mount, mut dentry): (_, &Arc<Dentry>) = (&self.mount, &self.dentry);
        loop {
            if Shared::ptr_eq(mount, &root.mount) {
                return dentry.is_below(&root.dentry);
            }
            match mount.attached_at(&guard) {
                Some((parent, point)) => (mount, dentry) = (parent, point),
                None => return false,
            }
        }
    }

    fn collect(&self, root: &Path, buffer: &mut [u8]) -> Result<(usize, PathPrefix)> {
        let guard = rcu::read();
        let mut start = buffer.len();
        let (mut mount, mut dentry): (_, &Arc<Dentry>) = (&self.mount, &self.dentry);
        loop {
            if Arc::ptr_eq(dentry, &root.dentry) && Shared::ptr_eq(mount, &root.mount) {
                return Ok((start, PathPrefix::Reachable));
            }
            if Arc::ptr_eq(dentry, mount.root()) {
                match mount.attached_at(&guard) {
                    Some((parent, point)) => (mount, dentry) = (parent, point),
                    None => return Ok((start, PathPrefix::Unreachable)),
                }
                continue;
            }
            // Name and parent of the same moment.
            let (name, parent) = dentry.name_and_parent_under(&guard);
            let Some(new_start) = start.checked_sub(name.len() + 1) else { return Err(Error::NameTooLong) };
            buffer[new_start] = b'/';
            buffer[new_start + 1..start].copy_from_slice(name);
            start = new_start;
            match parent {
                Some(parent) => dentry = parent,
                None => return Ok((start, PathPrefix::Unreachable)),
            }
        }
    }
}

impl core::fmt::Debug for Path {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.dentry
            .with_name(|name| write!(formatter, "{}:{:?}", self.mount.id(), core::str::from_utf8(name)))
    }
}
