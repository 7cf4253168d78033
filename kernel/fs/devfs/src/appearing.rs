//! Nodes of character devices that come and go while the machine runs. (Disks have theirs by their registry.)
//!
//! What is there is kept in a list too, for a tree that is first mounted later. `CHANGING` is held while the list and the tree change.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use sched::Mutex;
use vfs::attributes::{DeviceNumber, FileKind};
use vfs::inode::{Inode, NewFile};
use vfs::name::Name;
use vfs::superblock::Superblock;
use vfs::{Error, Result, allocation};

use crate::file_system::DEVICE_TREE;

/// A node, or a symbolic link.
pub struct Entry {
    /// The directory in `/dev` that it is in, made if there is none.
    pub directory: Option<&'static str>,
    /// Its name there.
    pub name: String,
    /// Character device or symbolic link.
    pub kind: FileKind,
    /// Permission bits.
    pub mode: u32,
    /// Which device.
    pub number: DeviceNumber,
    /// Where a symbolic link leads to.
    pub target: String,
}

static CHANGING: Mutex<Vec<Entry>> = Mutex::named("appearing devices", Vec::new());

/// Adds a node; sleeps. What can't be made is logged.
pub fn add(entry: Entry) {
    let mut entries = CHANGING.lock();
    if let Some(superblock) = DEVICE_TREE.instance() {
        enter(&superblock, &entry);
    }
    if allocation::reserve(&mut entries, 1).is_ok() {
        entries.push(entry);
    }
}

/// The names of all that are there, for tests of who adds them.
#[cfg(not(target_os = "none"))]
pub fn names() -> Vec<String> {
    CHANGING.lock().iter().map(|entry| entry.name.clone()).collect()
}

/// Takes a node away, if there is such a one; sleeps.
pub fn remove(directory: Option<&'static str>, name: &str) {
    let mut entries = CHANGING.lock();
    let is_it = |entry: &Entry| entry.directory == directory && entry.name == name;
    let Some(at) = entries.iter().position(is_it) else { return };
    let entry = entries.swap_remove(at);
    if let Some(superblock) = DEVICE_TREE.instance()
        && let Err(error) = leave(&superblock, &entry)
    {
        log::warn!("/dev/{name} stays: {error}");
    }
}

/// Enters all there are into a tree that is new.
pub(crate) fn enter_all(superblock: &Arc<Superblock>) {
    CHANGING.lock().iter().for_each(|entry| enter(superblock, entry));
}

/// The directory of an entry, made if it is to be and there is none.
fn directory(superblock: &Arc<Superblock>, entry: &Entry, make: bool) -> Result<Arc<Inode>> {
    let root = superblock.root().existing()?;
    let Some(name) = entry.directory else { return Ok(root.clone()) };
    let _exclusive = root.lock().write();
    match root.operations().lookup(root, name.as_bytes()) {
        Err(Error::NotFound) if make => {
            let new = NewFile {
                kind: FileKind::Directory,
                mode: 0o755,
                access_lists: None,
                user: 0,
                group: 0,
                special: DeviceNumber::default(),
                target: &[],
            };
            root.operations().create(root, &Name::new(name.as_bytes())?, &new)
        }
        found => found,
    }
}

/// Has names looked up again that somebody may have been told do not exist, or do.
fn forget(superblock: &Arc<Superblock>, entry: &Entry) {
    vfs::dentry::forget_child(superblock.root(), entry.directory.unwrap_or(&entry.name).as_bytes());
}

fn enter(superblock: &Arc<Superblock>, entry: &Entry) {
    let make = || {
        let parent = directory(superblock, entry, true)?;
        let Entry { kind, mode, number, .. } = *entry;
        let new = NewFile {
            kind,
            mode,
            access_lists: None,
            user: 0,
            group: 0,
            special: number,
            target: entry.target.as_bytes(),
        };
        let _exclusive = parent.lock().write();
        parent.operations().create(&parent, &Name::new(entry.name.as_bytes())?, &new).map(|_| ())
    };
    match make() {
        Ok(()) => forget(superblock, entry),
        Err(Error::Exists) => {}
        Err(error) => log::warn!("no /dev/{}: {error}", entry.name),
    }
}

fn leave(superblock: &Arc<Superblock>, entry: &Entry) -> Result<()> {
    let parent = match directory(superblock, entry, false) {
        Err(Error::NotFound) => return Ok(()),
        parent => parent?,
    };
    let name = entry.name.as_bytes();
    {
        let _exclusive = parent.lock().write();
        let inode = match parent.operations().lookup(&parent, name) {
            Err(Error::NotFound) => return Ok(()),
            inode => inode?,
        };
        // A program may have put something else there.
        if inode.kind != entry.kind || inode.special != entry.number {
            return Ok(());
        }
        parent.operations().unlink(&parent, name, &inode)?;
    }
    forget(superblock, entry);
    Ok(())
}
