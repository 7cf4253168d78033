//! Directories, changed: names added, removed and pointed elsewhere, in plain and in indexed ones.

use crate::directory::{self, Found, NAME_MAX, block_at};
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
pub(crate) fn find(handle: &Handle<'_>, directory: &Inode, name: &[u8]) -> Result<Option<Found>> {
    match directory::locate(handle, directory, name) {
        Ok(found) => Ok(Some(found)),
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
        if let Some(room) = leaf::room_for(&system.geometry, &shared, new.name.len())? {
            drop(shared);
            return handle.add_entry(place, &room, new);
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

fn must_be_there(directory: &Inode, there: bool) -> Result<()> {
    if there { Ok(()) } else { Err(Error::Corrupted("a directory's entry", directory.number.into())) }
}

/// Removes a name that [`find`] found; the directory was not changed since.
pub(crate) fn remove(handle: &mut Handle<'_>, directory: &Inode, found: Found) -> Result<()> {
    let (place, _) = block_at(handle, directory, found.logical)?;
    handle.remove_entry(place, found.here, found.before)
}

/// Has a name that is there mean another file.
pub(crate) fn point(handle: &mut Handle<'_>, directory: &Inode, new: NewEntry<'_>) -> Result<()> {
    let logical = directory::locate(handle, directory, new.name)?.logical;
    let (place, _) = block_at(handle, directory, logical)?;
    let pointed = if logical == 0 && directory.flags & FLAG_INDEX != 0 {
        handle.point_in_root(place, new, |geometry, bytes| {
            leaf::seal_node(geometry, directory, bytes, HASH_ROOT_AT + 8)
        })?
    } else {
        handle.point_entry(place, new)?
    };
    must_be_there(directory, pointed)
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
