//! Flags of files, and the projects they belong to: what an inode on the disk has of them, and what may be set.
//!
//! The disk's flags are those that programs see ([`FileFlags`]), and some that only the file system may change: how blocks are found, whether a directory
//! has an index. `chattr` reads all, changes some and sets all, so what is shown and may not be set is left as it is without a word.
//!
//! # Immutable files
//! What a program has opened before, or mapped, may no longer change the file either. The flag is on the disk first: from then on no page becomes dirty.
//! Pages that are dirty are written back, which takes the permission to store to them from all who have them mapped.
//!
//! # What can't be set
//! Journaling of contents, which there is not; blocks found otherwise than they are, which would move all of them.

use memory::file_cache::MAX_FILE_BYTES;
use vfs::file_flags::{FileFlags, FileSettings};
use vfs::inode::Inode;
use vfs::{Error, FileKind, Result};

use super::instance::{error_of, now, show_flags};
use super::node::Node;
use crate::geometry::read_only_compatible::PROJECTS;
use crate::inode::Inode as StoredInode;
use crate::layout::{
    FLAG_EXTENTS, FLAG_IMMUTABLE, FLAG_INDEX, FLAG_INHERIT_PROJECT, FLAG_JOURNAL_DATA, FLAG_SYNC_DIRECTORY,
    FLAG_TOP_DIRECTORY, FLAGS_OF_DIRECTORIES,
};

/// Flags that can be set: secure deletion, undeletion, compression, synchronous, immutable, append-only, no dump, no access time, whole tails, directories'
/// own, extents, blocks behind the end, direct access, projects.
const SETTABLE: u32 = 0xff
    | FLAG_JOURNAL_DATA
    | 0x8000
    | FLAG_SYNC_DIRECTORY
    | FLAG_TOP_DIRECTORY
    | FLAG_EXTENTS
    | 0x40_0000
    | 0x200_0000
    | FLAG_INHERIT_PROJECT;
/// Those that are only shown: of compression, encryption, the index of a directory, hashes of contents, contents in the inode.
const SHOWN: u32 = SETTABLE | 0x100 | 0x200 | 0x400 | 0x800 | FLAG_INDEX | 0x10_0000 | 0x1000_0000;
/// What `statx` says of: compression, immutable, append-only, no dump, encryption, hashes.
pub(super) const ATTRIBUTES: u32 = 0x4 | 0x10 | 0x20 | 0x40 | 0x800 | 0x10_0000;

/// What a regular file's or directory's inode has.
fn settings_of(stored: &StoredInode, kind: FileKind) -> Result<FileSettings> {
    let shown = match kind {
        FileKind::Directory => SHOWN,
        FileKind::Regular => SHOWN & !FLAGS_OF_DIRECTORIES,
        _ => return Err(Error::NotTerminal),
    };
    Ok(FileSettings {
        flags: FileFlags::from_bits_retain(stored.flags & shown),
        project: stored.project,
        has_more: false,
    })
}

/// The flags that an inode gets; `EOPNOTSUPP` and `EPERM` for what it can't have.
fn flags_for(stored: &StoredInode, kind: FileKind, wanted: &FileSettings) -> Result<u32> {
    let flags = wanted.flags.bits();
    if flags & !SHOWN != 0 || kind != FileKind::Directory && flags & SETTABLE & FLAGS_OF_DIRECTORIES != 0 {
        return Err(Error::NotSupported);
    }
    let differs = (stored.flags ^ flags) & SETTABLE;
    if stored.flags & flags & FLAG_IMMUTABLE != 0 && (differs != 0 || stored.project != wanted.project) {
        return Err(Error::NotPermitted);
    }
    if differs & (FLAG_EXTENTS | FLAG_JOURNAL_DATA) != 0 {
        return Err(Error::NotSupported);
    }
    Ok(stored.flags & !SETTABLE | flags & SETTABLE)
}

impl Node {
    pub(super) fn flags_and_project(&self, kind: FileKind) -> Result<FileSettings> {
        settings_of(&self.stored()?, kind)
    }

    pub(super) fn set_flags_and_project(&self, inode: &Inode, wanted: &FileSettings) -> Result<()> {
        let (writer, stored) = (self.instance.writer()?, self.stored()?);
        let flags = flags_for(&stored, inode.kind, wanted)?;
        if stored.project != wanted.project {
            if !self.instance.system().geometry.has_read_only_compatible(PROJECTS) {
                return Err(Error::NotSupported);
            }
            if !stored.has_project_field() {
                return Err(Error::Overflow);
            }
        }
        let now = now();
        let changed = writer.set_attributes(self.file.number, |stored| {
            stored.flags = flags;
            stored.project = wanted.project;
            stored.changed = now;
        });
        changed.map_err(error_of)?;
        // Before pages are written back: a page that becomes dirty meanwhile was allowed before.
        show_flags(inode, flags);
        if let Some(cache) = &self.cache
            && flags & !stored.flags & FLAG_IMMUTABLE != 0
        {
            cache.write_back(0, MAX_FILE_BYTES.div_ceil(machine::address::PAGE_SIZE as u64))?;
        }
        Ok(())
    }

    /// Whether a program may change the contents of the file, whatever it may do with its descriptor.
    pub(super) fn check_writable(inode: &Inode) -> Result<()> {
        if inode.file_flags().contains(FileFlags::IMMUTABLE) { Err(Error::NotPermitted) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_file_layer_are_the_disks() {
        assert_eq!(FileFlags::IMMUTABLE.bits(), FLAG_IMMUTABLE);
        assert_eq!(FileFlags::INHERIT_PROJECT.bits(), FLAG_INHERIT_PROJECT);
        assert_eq!(FileFlags::DIRECTORY_SYNCHRONOUS.bits(), FLAG_SYNC_DIRECTORY);
        assert_eq!(ATTRIBUTES & FileFlags::SHOWN.bits(), FileFlags::SHOWN.bits());
    }
}
