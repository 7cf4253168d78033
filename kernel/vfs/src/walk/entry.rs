//! Finding an entry in a directory: in the cache, else in the file system.

use alloc::sync::Arc;

use sync::rcu;

use crate::dentry::{Dentry, DentryFlags};
use crate::inode::Inode;
use crate::name::{NAME_MAX, hash_name};
use crate::{Error, Result};

/// The cached entry, if there is one that can be believed.
fn cached(parent: &Arc<Dentry>, directory: &Inode, name: &[u8]) -> Option<Arc<Dentry>> {
    let entry = {
        let guard = rcu::read();
        parent.cached_child(name, hash_name(name), &guard)?.clone()
    };
    if !entry.still_hashed() {
        return None;
    }
    entry.mark_referenced();
    if parent.flags().contains(DentryFlags::VOLATILE)
        && let Some(inode) = entry.inode()
        && !directory.operations().still_valid(directory, name, inode)
    {
        entry.forget();
        return None;
    }
    Some(entry)
}

/// Asks the file system. The directory's lock is held, shared or exclusive.
fn ask(parent: &Arc<Dentry>, directory: &Arc<Inode>, name: &[u8]) -> Result<Option<Arc<Dentry>>> {
    match directory.operations().lookup(directory, name) {
        Ok(inode) => Dentry::enter(parent, name, Some(inode)).map(Some),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The entry of a name in a directory. Fails with `ENOENT` when there is none. Without a cached entry it takes the
/// directory's lock shared and asks the file system; that a name is absent is remembered.
pub fn find_entry(parent: &Arc<Dentry>, name: &[u8]) -> Result<Arc<Dentry>> {
    let directory = parent.existing()?;
    let found = match cached(parent, directory, name) {
        Some(entry) => Some(entry),
        None if name.len() > NAME_MAX => return Err(Error::NameTooLong),
        None => {
            let _shared = directory.lock().read();
            match cached(parent, directory, name) {
                Some(entry) => Some(entry),
                None => match ask(parent, directory, name)? {
                    Some(entry) => Some(entry),
                    None => {
                        if !parent.flags().contains(DentryFlags::NO_NEGATIVE) {
                            Dentry::enter(parent, name, None)?;
                        }
                        None
                    }
                },
            }
        }
    };
    match found {
        Some(entry) if entry.inode().is_some() => Ok(entry),
        _ => Err(Error::NotFound),
    }
}

/// As [`find_entry`] for who holds the directory's lock exclusively: `None` when there is no such name.
pub(crate) fn find_entry_locked(parent: &Arc<Dentry>, name: &[u8]) -> Result<Option<Arc<Dentry>>> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    let directory = parent.existing()?;
    match cached(parent, directory, name) {
        Some(entry) if entry.inode().is_some() => Ok(Some(entry)),
        Some(_) => Ok(None),
        None => ask(parent, directory, name),
    }
}

/// Enters a file that was just created; the entry that said it was absent goes. The directory's lock is held
/// exclusively.
pub(crate) fn enter_created(parent: &Arc<Dentry>, name: &[u8], inode: Arc<Inode>) -> Result<Arc<Dentry>> {
    let absent = {
        let guard = rcu::read();
        parent.cached_child(name, hash_name(name), &guard).cloned()
    };
    if let Some(absent) = absent {
        debug_assert!(absent.inode().is_none(), "created over an existing name");
        absent.unhash();
    }
    Dentry::enter(parent, name, Some(inode))
}
