//! Handles of files: the inode's number, and the generation that tells those apart who had it one after the other.

use alloc::sync::Arc;

use vfs::dentry::Dentry;
use vfs::handle::{FileHandle, Handles};
use vfs::superblock::Superblock;
use vfs::{Error, Inode, Result};

use super::changes::node_of;
use super::instance::{Operations, error_of};
use crate::Kind;
use crate::layout::ROOT_INODE;

/// `FILEID_INO32_GEN`: number and generation.
const KIND: i32 = 1;
const BYTES: usize = 8;

impl Handles for Operations {
    fn encode(&self, inode: &Arc<Inode>, _entry: Option<&Arc<Dentry>>) -> Result<FileHandle> {
        let stored = node_of(inode)?.stored()?;
        let mut bytes = [0; BYTES];
        bytes[..4].copy_from_slice(&stored.number.to_ne_bytes());
        bytes[4..].copy_from_slice(&stored.generation.to_ne_bytes());
        FileHandle::new(KIND, &bytes)
    }

    fn decode(&self, superblock: &Superblock, handle: &FileHandle) -> Result<Arc<Inode>> {
        let bytes: &[u8; BYTES] = handle.as_bytes().try_into().map_err(|_| Error::Stale)?;
        let word = |at: usize| bytes[at..].first_chunk().map_or(0, |word| u32::from_ne_bytes(*word));
        let (number, generation) = (word(0), word(4));
        let instance = self.instance();
        if handle.kind() != KIND {
            return Err(Error::Stale);
        }
        let cleanings = instance.cleanings();
        let found = self.stored_with(number)?;
        if found.generation != generation {
            return Err(Error::Stale);
        }
        instance.inode(superblock.root().existing()?, found, cleanings)
    }

    fn parent(&self, file: &Arc<Inode>) -> Result<Option<Arc<Inode>>> {
        let stored = node_of(file)?.stored()?;
        if stored.links == 0 {
            return Ok(None);
        }
        let cleanings = self.instance().cleanings();
        let found = if stored.kind == Kind::Directory {
            self.instance().system().lookup(&stored, b"..").map_err(error_of)?
        } else {
            let Some(number) = file.noted_parent() else { return Ok(None) };
            self.stored_with(u32::try_from(number).map_err(|_| Error::Stale)?)?
        };
        if found.kind != Kind::Directory {
            return Ok(None);
        }
        self.instance().inode(file, found, cleanings).map(Some)
    }
}

impl Operations {
    /// The inode of a number that may be made up, or of a file that is gone.
    fn stored_with(&self, number: u32) -> Result<crate::Inode> {
        let system = self.instance().system();
        if number != ROOT_INODE && !system.may_be_file(number) {
            return Err(Error::Stale);
        }
        // Whoever made it up may mean an inode that nobody has: that is no damage.
        let found = system.inode(number).map_err(|error| match error {
            crate::Error::Corrupted(..) => Error::Stale,
            other => error_of(other),
        })?;
        if found.links == 0 { Err(Error::Stale) } else { Ok(found) }
    }
}
