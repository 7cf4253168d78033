//! `rename`, `renameat2`.
//!
//! # Locking
//! A rename between directories takes the file system's rename lock: no directory's ancestors change meanwhile. Then
//! both directories are locked exclusively, an ancestor before its descendant, else in the order of their addresses;
//! then what is replaced.

use alloc::sync::Arc;

use sched::RwLockWriteGuard;

use crate::attributes::{DeviceNumber, FileKind};
use crate::credentials::Credentials;
use crate::dentry::{Dentry, Exchange, Relocation};
use crate::flags::{Access, LookupFlags, RenameFlags};
use crate::inode::{Inode, NewFile, Rename};
use crate::inotify;
use crate::mount::Path;
use crate::name::Name;
use crate::permission::{check_access, check_removal, inherit};
use crate::tree::access_list;
use crate::tree::create::check_known;
use crate::tree::remove::is_mount_point;
use crate::walk::{Last, LastName, PathContext, Walker, find_entry_locked};
use crate::{Error, Result};

/// One side of a rename.
struct Side<'a> {
    parent: &'a Path,
    directory: &'a Arc<Inode>,
    name: Name,
    trailing_slash: bool,
}

impl<'a> Side<'a> {
    fn new(parent: &'a Path, last: Last, error: Error) -> Result<Self> {
        let LastName::Name(name) = last.name else { return Err(error) };
        Ok(Self { parent, directory: parent.inode()?, name, trailing_slash: last.trailing_slash })
    }

    fn find(&self) -> Result<Option<Arc<Dentry>>> {
        find_entry_locked(&self.parent.dentry, self.name.as_bytes())
    }
}

/// Locks what is renamed and what it replaces: below their directories, and by address among each other.
fn lock_moved<'a>(
    moved: Option<&'a Arc<Inode>>,
    victim: Option<&'a Arc<Inode>>,
) -> (Option<RwLockWriteGuard<'a, ()>>, Option<RwLockWriteGuard<'a, ()>>) {
    let address = |inode: &Arc<Inode>| Arc::as_ptr(inode).cast::<()>();
    let victim_first = moved.zip(victim).is_some_and(|(moved, victim)| address(victim) < address(moved));
    let (first, second) = if victim_first { (victim, moved) } else { (moved, victim) };
    let first = first.map(|inode| inode.lock().write_nested(2));
    (first, second.map(|inode| inode.lock().write_nested(3)))
}

/// Locks two directories exclusively in the right order.
fn lock_both<'a>(
    first: &'a Side<'_>,
    second: &'a Side<'_>,
) -> (RwLockWriteGuard<'a, ()>, Option<RwLockWriteGuard<'a, ()>>) {
    if Arc::ptr_eq(first.directory, second.directory) {
        return (first.directory.lock().write(), None);
    }
    let second_above = first.parent.dentry.lies_in(&second.parent.dentry);
    let first_above = second.parent.dentry.lies_in(&first.parent.dentry);
    let first_is_lower =
        Arc::as_ptr(first.directory).cast::<()>() < Arc::as_ptr(second.directory).cast::<()>();
    if first_above || (!second_above && first_is_lower) {
        let one = first.directory.lock().write();
        (one, Some(second.directory.lock().write_nested(1)))
    } else {
        let two = second.directory.lock().write();
        (first.directory.lock().write_nested(1), Some(two))
    }
}

impl PathContext<'_> {
    /// Renames a file, replacing or exchanging what has the new name.
    pub fn rename(
        &self,
        old_start: &Path,
        old_path: &[u8],
        new_start: &Path,
        new_path: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        let alone = RenameFlags::NO_REPLACE | RenameFlags::WHITEOUT;
        if flags.contains(RenameFlags::EXCHANGE) && flags.intersects(alone)
            || RenameFlags::from_bits(flags.bits()).is_none()
        {
            return Err(Error::Invalid);
        }
        let mut old_walker = Walker::new(self, old_start, old_path, LookupFlags::empty())?;
        let old_last = old_walker.stop_at_parent()?;
        let mut new_walker = Walker::new(self, new_start, new_path, LookupFlags::empty())?;
        let new_last = new_walker.stop_at_parent()?;
        if !memory::per_cpu::Shared::ptr_eq(&old_walker.place().mount, &new_walker.place().mount) {
            return Err(Error::CrossDevice);
        }
        let new_error = if flags.contains(RenameFlags::NO_REPLACE) { Error::Exists } else { Error::Busy };
        let old = Side::new(old_walker.place(), old_last, Error::Busy)?;
        let new = Side::new(new_walker.place(), new_last, new_error)?;
        old.parent.mount.writable()?;
        let superblock = old.parent.mount.superblock();
        let crosses = !Arc::ptr_eq(old.directory, new.directory);
        let _tree = if crosses { Some(superblock.rename_lock().lock()) } else { None };
        let _locks = lock_both(&old, &new);
        if !flags.contains(RenameFlags::WHITEOUT) {
            return Self::rename_locked(self.credentials, &old, &new, flags, None);
        }
        // What is left: a device that is none, by which an overlay hides what lies below.
        let kind = FileKind::CharacterDevice;
        let (group, mode) = inherit(old.directory, kind, 0, self.credentials);
        let (lists, mode) = access_list::inherit(old.directory, kind, mode, self.umask)?;
        let (user, access_lists) = (self.credentials.user, lists.as_deref());
        check_known(old.parent, user, group)?;
        let special = DeviceNumber::default();
        let whiteout = NewFile { kind, mode, access_lists, user, group, special, target: &[] };
        Self::rename_locked(self.credentials, &old, &new, flags, Some(&whiteout))
    }

    fn rename_locked(
        credentials: &Credentials,
        old: &Side<'_>,
        new: &Side<'_>,
        flags: RenameFlags,
        whiteout: Option<&NewFile<'_>>,
    ) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        let source = old.find()?.ok_or(Error::NotFound)?;
        let target = new.find()?;
        if target.is_some() && flags.contains(RenameFlags::NO_REPLACE) {
            return Err(Error::Exists);
        }
        if target.is_none() && exchange {
            return Err(Error::NotFound);
        }
        if old.parent.dentry.is_dead() || new.parent.dentry.is_dead() {
            return Err(Error::NotFound);
        }
        let inode = source.existing()?.clone();
        let is_directory = |dentry: &Option<Arc<Dentry>>| {
            dentry
                .as_ref()
                .and_then(|dentry| dentry.inode())
                .is_some_and(|inode| inode.kind == FileKind::Directory)
        };
        let moves_directory = inode.kind == FileKind::Directory;
        if !moves_directory && (old.trailing_slash || (!exchange && new.trailing_slash)) {
            return Err(Error::NotDirectory);
        }
        if exchange && new.trailing_slash && !is_directory(&target) {
            return Err(Error::NotDirectory);
        }
        if new.parent.dentry.lies_in(&source) {
            return Err(Error::Invalid);
        }
        if target.as_ref().is_some_and(|target| old.parent.dentry.lies_in(target)) {
            return Err(if exchange { Error::Invalid } else { Error::NotEmpty });
        }
        let replaced = target.as_ref().map(|target| target.existing().cloned()).transpose()?;
        if replaced.as_ref().is_some_and(|replaced| Arc::ptr_eq(replaced, &inode)) {
            return Ok(());
        }
        Self::check_rename(credentials, old, new, &inode, replaced.as_ref(), exchange)?;
        if is_mount_point(old.parent, &source)
            || target.as_ref().is_some_and(|t| is_mount_point(new.parent, t))
        {
            return Err(Error::Busy);
        }
        let rename = Rename {
            old_directory: old.directory,
            old_name: old.name.as_bytes(),
            inode: &inode,
            new_directory: new.directory,
            new_name: &new.name,
            replaced: replaced.as_ref(),
            flags,
            whiteout,
        };
        // Nobody changes their attributes or gives them another name meanwhile; in a directory that loses its name nothing is made.
        let moved = (!moves_directory).then_some(&inode);
        let victim = replaced.as_ref().filter(|victim| !exchange || victim.kind != FileKind::Directory);
        let _locked = lock_moved(moved, victim);
        Self::commit(&rename, old, new, &source, target.as_ref())
    }

    /// Prepares the cache, lets the file system rename, and follows in the cache.
    fn commit(
        rename: &Rename<'_>,
        old: &Side<'_>,
        new: &Side<'_>,
        source: &Arc<Dentry>,
        target: Option<&Arc<Dentry>>,
    ) -> Result<()> {
        match target {
            Some(target) if rename.flags.contains(RenameFlags::EXCHANGE) => {
                let exchange = Exchange::prepare(source, target)?;
                old.directory.operations().rename(rename)?;
                exchange.commit();
            }
            _ => {
                let absent = match target {
                    Some(target) => Some(target.clone()),
                    None => cached_absent(new),
                };
                let relocation = Relocation::prepare(source, &new.parent.dentry, &new.name, absent.as_ref())?;
                old.directory.operations().rename(rename)?;
                relocation.commit();
            }
        }
        let is_directory = rename.inode.kind == FileKind::Directory;
        inotify::report_rename(
            (old.parent, old.name.as_bytes()),
            (new.parent, new.name.as_bytes()),
            rename.inode,
            is_directory,
        );
        if let Some(replaced) = rename.replaced
            && !rename.flags.contains(RenameFlags::EXCHANGE)
        {
            inotify::report_unlinked(replaced);
        }
        Ok(())
    }

    fn check_rename(
        credentials: &Credentials,
        old: &Side<'_>,
        new: &Side<'_>,
        inode: &Arc<Inode>,
        replaced: Option<&Arc<Inode>>,
        exchange: bool,
    ) -> Result<()> {
        check_removal(old.directory, inode, credentials)?;
        let is_directory = inode.kind == FileKind::Directory;
        match replaced {
            Some(replaced) => {
                check_removal(new.directory, replaced, credentials)?;
                let replaces_directory = replaced.kind == FileKind::Directory;
                if !exchange && is_directory && !replaces_directory {
                    return Err(Error::NotDirectory);
                }
                if !exchange && !is_directory && replaces_directory {
                    return Err(Error::IsDirectory);
                }
            }
            None => check_access(new.directory, Access::WRITE | Access::EXECUTE, credentials)?,
        }
        // A directory that changes its parent has its `..` written.
        if !Arc::ptr_eq(old.directory, new.directory) {
            if is_directory {
                check_access(inode, Access::WRITE, credentials)?;
            }
            if let Some(replaced) = replaced
                && exchange
                && replaced.kind == FileKind::Directory
            {
                check_access(replaced, Access::WRITE, credentials)?;
            }
        }
        Ok(())
    }
}

/// Renames below one mount without asking who may; `flags` as the call's, and what is left if they want a whiteout.
pub(super) fn rename_between(
    old: (&Path, &Name),
    new: (&Path, &Name),
    flags: RenameFlags,
    whiteout: Option<&NewFile<'_>>,
) -> Result<()> {
    let side =
        |(parent, name): (&'_ Path, &Name)| -> Result<_> { Ok((parent.inode()?.clone(), name.clone())) };
    let ((old_directory, old_name), (new_directory, new_name)) = (side(old)?, side(new)?);
    let old = Side { parent: old.0, directory: &old_directory, name: old_name, trailing_slash: false };
    let new = Side { parent: new.0, directory: &new_directory, name: new_name, trailing_slash: false };
    old.parent.mount.writable()?;
    let crosses = !Arc::ptr_eq(old.directory, new.directory);
    let _tree = if crosses { Some(old.parent.mount.superblock().rename_lock().lock()) } else { None };
    let _locks = lock_both(&old, &new);
    PathContext::rename_locked(&Credentials::root(), &old, &new, flags, whiteout)
}

/// The entry that says that the new name does not exist, if it is cached.
fn cached_absent(new: &Side<'_>) -> Option<Arc<Dentry>> {
    let guard = sync::rcu::read();
    let name = new.name.as_bytes();
    new.parent.dentry.cached_child(name, crate::name::hash_name(name), &guard).cloned()
}
