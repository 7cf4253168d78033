//! Opening files by their handles.
//!
//! A handle says which file, not where it is. Directories must have their place in the tree, since others are found from there: it is looked for upwards, from parent
//! to parent, and walked down again. So is that of other files, from the directory they were found in last; they are opened without one if they
//! are no longer there.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Shared;

use crate::attributes::FileKind;
use crate::dentry::{Dentry, DentryFlags};
use crate::file::OpenFile;
use crate::flags::OpenFlags;
use crate::handle::{FileHandle, Handles};
use crate::inode::{DirectorySink, FIRST_POSITION, Inode};
use crate::mount::{Mount, Path};
use crate::name::Name;
use crate::superblock::Superblock;
use crate::walk::{PathContext, find_entry};
use crate::{Error, Result, allocation};

/// Directories above each other that are gone through: as many as a path can name.
const DEPTH_MAX: usize = 2048;

impl PathContext<'_> {
    /// `open_by_handle_at`: by who may read and search all directories.
    pub fn open_by_handle(
        &self,
        mount: &Shared<Mount>,
        handle: &FileHandle,
        flags: OpenFlags,
    ) -> Result<Arc<OpenFile>> {
        let superblock = mount.superblock();
        let handles = superblock.operations().handles().ok_or(Error::Stale)?;
        let inode = handles.decode(superblock, handle)?;
        let place = Path::new(mount.clone(), entry_of(superblock, handles, inode)?);
        if flags.contains(OpenFlags::DIRECTORY) && place.inode()?.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        if flags.contains(OpenFlags::PATH) {
            return OpenFile::at_path(place, flags, None, None);
        }
        self.open_existing(place, flags)
    }
}

/// An entry that leads to an inode.
fn entry_of(superblock: &Superblock, handles: &dyn Handles, inode: Arc<Inode>) -> Result<Arc<Dentry>> {
    if Arc::ptr_eq(superblock.root().existing()?, &inode) {
        return Ok(superblock.root().clone());
    }
    let known = handles.entry(&inode);
    if let Some(entry) = known.filter(|entry| !entry.flags().contains(DentryFlags::UNHASHED)) {
        return Ok(entry);
    }
    match connect(superblock, handles, &inode) {
        Err(error) if error != Error::OutOfMemory && inode.kind != FileKind::Directory => {
            Dentry::new_detached(b"", inode)
        }
        found => found,
    }
}

/// The entry of a file by its parents.
fn connect(superblock: &Superblock, handles: &dyn Handles, file: &Arc<Inode>) -> Result<Arc<Dentry>> {
    let root = superblock.root();
    let mut names = Vec::new();
    let mut current = file.clone();
    while !Arc::ptr_eq(root.existing()?, &current) {
        if names.len() >= DEPTH_MAX {
            return Err(Error::Stale);
        }
        let parent = handles.parent(&current)?.ok_or(Error::Stale)?;
        allocation::push(&mut names, name_in(&parent, current.number)?)?;
        current = parent;
    }
    let mut entry = root.clone();
    for name in names.iter().rev() {
        entry = find_entry(&entry, name.as_bytes())?;
    }
    // Another one has its name by now.
    if Arc::ptr_eq(entry.existing()?, file) { Ok(entry) } else { Err(Error::Stale) }
}

/// Looks for an inode's name.
struct Search {
    number: u64,
    found: Option<Result<Name>>,
}

impl DirectorySink for Search {
    fn entry(&mut self, name: &[u8], inode: u64, _kind: FileKind, _next: u64) -> bool {
        if inode == self.number && !matches!(name, b"." | b"..") {
            self.found = Some(Name::new(name));
        }
        self.found.is_none()
    }
}

/// The name that a file has in a directory.
fn name_in(parent: &Arc<Inode>, number: u64) -> Result<Name> {
    let mut search = Search { number, found: None };
    let mut position = FIRST_POSITION;
    let _shared = parent.lock().read();
    loop {
        let next = parent.operations().read_directory(parent, position, &mut search)?;
        if let Some(found) = search.found {
            return found;
        }
        if next == position {
            return Err(Error::Stale);
        }
        position = next;
    }
}
