//! Directories, changed: names added, removed and pointed elsewhere, in plain and in indexed ones.

use memory::fallible;

use crate::directory::{self, NAME_MAX, block_at};
use crate::directory_block::{self as leaf, NewEntry};
use crate::geometry::compatible;
use crate::handle::Handle;
use crate::index;
use crate::inode::{Inode, Kind};
use crate::layout::{FLAG_INDEX, HASH_ROOT_AT};
use crate::{Error, Result};

/// Fails for names that no file can have.
pub(crate) fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if matches!(name, b"" | b"." | b"..") || name.iter().any(|byte| matches!(byte, 0 | b'/')) {
        return Err(Error::Exists);
    }
    Ok(())
}

/// The file of that name, if there is one.
pub(crate) fn find(handle: &Handle<'_>, directory: &Inode, name: &[u8]) -> Result<Option<u32>> {
    match directory::locate(handle, directory, name) {
        Ok((number, _)) => Ok(Some(number)),
        Err(Error::NotFound) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Adds a name that is not there. The directory's inode changes with it and is stored by the caller.
pub(crate) fn add(handle: &mut Handle<'_>, directory: &mut Inode, new: NewEntry<'_>) -> Result<()> {
    if directory.flags & FLAG_INDEX != 0 {
        return index::insert(handle, directory, new);
    }
    let system = handle.system();
    let blocks = directory.size / system.geometry.block_bytes as u64;
    // The last block first: that is where there is room in a directory that grows.
    for logical in (0..blocks).rev() {
        let (place, shared) = block_at(handle, directory, logical)?;
        let mut bytes = fallible::try_copy(&shared)?;
        if leaf::insert(&system.geometry, &mut bytes, new)? {
            leaf::seal(&system.geometry, directory, &mut bytes);
            return handle.put(place, bytes);
        }
    }
    let indexed = system.geometry.has_compatible(compatible::INDEXED_DIRECTORIES);
    if blocks == 1 && indexed {
        index::make(handle, directory)?;
        return index::insert(handle, directory, new);
    }
    let mut bytes = handle.empty_block()?;
    leaf::pack(&system.geometry, &mut bytes, &[new]);
    leaf::seal(&system.geometry, directory, &mut bytes);
    handle.append_block(directory, bytes)?;
    Ok(())
}

/// Changes the block that has a name.
fn change(
    handle: &mut Handle<'_>,
    directory: &Inode,
    name: &[u8],
    with: impl FnOnce(&mut [u8]) -> Result<bool>,
) -> Result<()> {
    let system = handle.system();
    let (_, logical) = directory::locate(handle, directory, name)?;
    let (place, shared) = block_at(handle, directory, logical)?;
    let mut bytes = fallible::try_copy(&shared)?;
    if !with(&mut bytes)? {
        return Err(Error::Corrupted("a directory's entry", directory.number.into()));
    }
    if logical == 0 && directory.flags & FLAG_INDEX != 0 {
        leaf::seal_node(&system.geometry, directory, &mut bytes, HASH_ROOT_AT + 8);
    } else {
        leaf::seal(&system.geometry, directory, &mut bytes);
    }
    handle.put(place, bytes)
}

/// Removes a name.
pub(crate) fn remove(handle: &mut Handle<'_>, directory: &Inode, name: &[u8]) -> Result<()> {
    let system = handle.system();
    change(handle, directory, name, |bytes| leaf::remove(&system.geometry, bytes, name))
}

/// Has a name that is there mean another file.
pub(crate) fn point(handle: &mut Handle<'_>, directory: &Inode, new: NewEntry<'_>) -> Result<()> {
    let system = handle.system();
    change(handle, directory, new.name, |bytes| leaf::point(&system.geometry, bytes, new))
}

/// Gives a new directory its first block, with `.` and `..`.
pub(crate) fn begin(handle: &mut Handle<'_>, directory: &mut Inode, parent: u32) -> Result<()> {
    let system = handle.system();
    let mut bytes = handle.empty_block()?;
    let entry = |name, inode| NewEntry { name, inode, kind: Kind::Directory };
    leaf::pack(&system.geometry, &mut bytes, &[entry(b".", directory.number), entry(b"..", parent)]);
    leaf::seal(&system.geometry, directory, &mut bytes);
    handle.append_block(directory, bytes)?;
    Ok(())
}

/// Whether there is nothing but `.` and `..`.
pub(crate) fn is_empty(handle: &Handle<'_>, directory: &Inode) -> Result<bool> {
    let mut empty = true;
    directory::list(handle, directory, 0, |entry, _| {
        empty = matches!(entry.name, b"." | b"..");
        empty
    })?;
    Ok(empty)
}

/// Fails for a directory that has been removed.
pub(crate) fn check_alive(handle: &Handle<'_>, number: u32) -> Result<Inode> {
    let directory = handle.inode(number)?;
    if directory.kind != Kind::Directory {
        return Err(Error::NotDirectory);
    }
    if directory.links == 0 {
        return Err(Error::NotFound);
    }
    Ok(directory)
}
