//! Changes below a file system that stands on others.
//!
//! They are made as calls make them, under the same locks and with the cache of entries and watchers told, but nobody is asked who may: that
//! was decided above. What they take is a directory's place and a name in it; mounts on the names are not looked at, as a file system has the
//! ones it stands on mounted for itself alone.

use alloc::sync::Arc;

use super::access_list;
use super::attribute::{allocate_inode, truncate_inode};
use super::create::{create_entry, link_entry};
use super::rename::rename_between;
use crate::access_list::{AccessList, ListKind};
use crate::attributes::FileKind;
use crate::dentry::Dentry;
use crate::flags::{AllocateMode, RenameFlags};
use crate::inode::{Inode, NewFile};
use crate::inotify::{self, EventMask};
use crate::mount::Path;
use crate::name::Name;
use crate::walk::find_entry_locked;
use crate::{Error, Result};

/// Runs `make` with the directory's lock held, if the name is absent.
fn with_absent(
    parent: &Path,
    name: &Name,
    make: impl FnOnce() -> Result<Arc<Dentry>>,
) -> Result<Arc<Dentry>> {
    parent.mount.writable()?;
    let directory = parent.inode()?;
    let _exclusive = directory.lock().write();
    if parent.dentry.is_dead() {
        return Err(Error::NotFound);
    }
    if find_entry_locked(&parent.dentry, name.as_bytes())?.is_some() {
        return Err(Error::Exists);
    }
    make()
}

/// Makes a file with exactly these attributes.
///
/// # Errors
/// `EEXIST` if there is one of that name; what the file system says.
pub fn create(parent: &Path, name: &Name, new: &NewFile<'_>) -> Result<Arc<Dentry>> {
    let made = with_absent(parent, name, || create_entry(parent, name, new, None))?;
    inotify::report_child(
        parent,
        name.as_bytes(),
        EventMask::CREATE,
        new.kind == FileKind::Directory,
        made.inode(),
    );
    Ok(made)
}

/// Makes a regular file without a name, which may be given one.
///
/// # Errors
/// What the file system says.
pub fn create_unnamed(parent: &Path, new: &NewFile<'_>) -> Result<Arc<Dentry>> {
    parent.mount.writable()?;
    let directory = parent.inode()?;
    let inode = directory.operations().create_unnamed(directory, new)?;
    access_list::show_new(&inode, new.access_lists)?;
    inode.set_linkable(true);
    Dentry::new_detached(b"#", inode)
}

/// Gives a file of the same file system another name.
///
/// # Errors
/// `EEXIST` if there is one of that name; what the file system says.
pub fn link(inode: &Arc<Inode>, parent: &Path, name: &Name) -> Result<Arc<Dentry>> {
    let linked = with_absent(parent, name, || {
        let _linked = inode.lock().write_nested(1);
        link_entry(parent, name, inode)
    })?;
    inotify::report_child(parent, name.as_bytes(), EventMask::CREATE, false, Some(inode));
    Ok(linked)
}

/// Removes a name; a directory must be empty.
///
/// # Errors
/// `ENOENT` if there is none; what the file system says.
pub fn remove(parent: &Path, name: &Name) -> Result<()> {
    parent.mount.writable()?;
    let directory = parent.inode()?;
    let name = name.as_bytes();
    let inode = {
        let _exclusive = directory.lock().write();
        let dentry = find_entry_locked(&parent.dentry, name)?.ok_or(Error::NotFound)?;
        let inode = dentry.existing()?.clone();
        let victim = inode.lock().write_nested(1);
        if inode.kind == FileKind::Directory {
            directory.operations().remove_directory(directory, name, &inode)?;
        } else {
            directory.operations().unlink(directory, name, &inode)?;
        }
        dentry.remove();
        drop(victim);
        inode
    };
    inotify::report_child(parent, name, EventMask::DELETE, inode.kind == FileKind::Directory, Some(&inode));
    inotify::report_unlinked(&inode);
    Ok(())
}

/// Renames, as `renameat2` with these flags; with [`RenameFlags::WHITEOUT`] that is what the old name is left to.
///
/// # Errors
/// Those of the call, but for permissions.
pub fn rename(
    old: (&Path, &Name),
    new: (&Path, &Name),
    flags: RenameFlags,
    whiteout: Option<&NewFile<'_>>,
) -> Result<()> {
    rename_between(old, new, flags, whiteout)
}

/// A file's access list as its file system keeps it.
///
/// # Errors
/// `EOPNOTSUPP` where there are none; what the file system says.
pub fn access_list(inode: &Arc<Inode>, kind: ListKind) -> Result<Option<AccessList>> {
    access_list::stored(inode, kind)
}

/// Sets or removes an access list that was checked, and the permission bits with it.
///
/// # Errors
/// `EOPNOTSUPP` where there are none; what the file system says.
pub fn set_access_list(
    inode: &Arc<Inode>,
    kind: ListKind,
    list: Option<&AccessList>,
    mode: Option<u32>,
) -> Result<()> {
    if !inode.may_have_lists() {
        return Err(Error::NotSupported);
    }
    let _exclusive = inode.lock().write();
    access_list::replace(inode, kind, list.map(AccessList::try_clone).transpose()?, mode)
}

/// Sets the size of a regular file.
///
/// # Errors
/// What the file system says.
pub fn truncate(inode: &Arc<Inode>, size: u64) -> Result<()> {
    truncate_inode(inode, size)
}

/// `fallocate` of a range that was checked.
///
/// # Errors
/// What the file system says.
pub fn allocate(inode: &Arc<Inode>, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
    let end = offset.checked_add(length).ok_or(Error::FileTooLarge)?;
    allocate_inode(inode, mode, offset, length, end)
}
