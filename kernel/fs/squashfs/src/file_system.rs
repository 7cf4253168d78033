//! An image on a volume.

use alloc::vec::Vec;

use block::{SECTOR_BYTES, Volume};

use crate::contents::{self, FileMap};
use crate::directory::{self, Entry};
use crate::inode::{Inode, Kind};
use crate::store::{Store, read_bytes};
use crate::superblock::{self, Superblock};
use crate::{Error, Result, tables, xattr};

/// See the theory of this file.
pub struct FileSystem {
    pub(crate) superblock: Superblock,
    pub(crate) store: Store,
    /// Users and groups by their numbers in inodes.
    pub(crate) owners: Vec<u32>,
}

impl FileSystem {
    /// Looks at what is on a volume.
    ///
    /// # Errors
    /// No image, one that can't be read, or a damaged one.
    pub fn mount(volume: &Volume) -> Result<Self> {
        let device_bytes = volume.sectors().saturating_mul(SECTOR_BYTES as u64);
        if device_bytes < superblock::BYTES as u64 {
            return Err(Error::NotSquash);
        }
        let superblock = Superblock::parse(&read_bytes(volume, 0, superblock::BYTES)?, device_bytes)?;
        let store = Store::new(volume, &superblock)?;
        let mut system = Self { superblock, store, owners: Vec::new() };
        system.owners = tables::owners(&system)?;
        Ok(system)
    }

    /// Bytes of a file's block.
    pub fn block_bytes(&self) -> u32 {
        self.superblock.block_bytes
    }

    /// Bytes of the image, and how many inodes it has.
    pub fn size(&self) -> (u64, u32) {
        (self.superblock.bytes, self.superblock.inodes)
    }

    /// The root directory.
    pub fn root(&self) -> Result<Inode> {
        let root = self.inode(self.superblock.root)?;
        if root.kind == Kind::Directory { Ok(root) } else { Err(Error::Corrupted("the root directory", 0)) }
    }

    /// The inode at a place.
    pub fn inode(&self, reference: u64) -> Result<Inode> {
        Inode::read(self, reference)
    }

    /// Finds a name in a directory.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Inode> {
        self.inode(directory::lookup(self, directory, name)?)
    }

    /// Lists a directory from a position (0, or one that an entry named) until `each` says no.
    pub fn list(&self, directory: &Inode, position: u64, each: impl FnMut(&Entry<'_>) -> bool) -> Result<()> {
        directory::list(self, directory, position, each)
    }

    /// Where a symbolic link leads to.
    pub fn link_target(&self, link: &Inode) -> Result<Vec<u8>> {
        directory::target(self, link)
    }

    /// Reads a regular file; returns how much there was.
    pub fn read(&self, file: &Inode, map: &FileMap, offset: u64, out: &mut [u8]) -> Result<usize> {
        contents::read(self, file, map, offset, out)
    }

    /// Calls `each` with the names of a file's extended attributes.
    pub fn for_each_attribute(&self, file: &Inode, each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        xattr::names(self, file, each)
    }

    /// Copies an attribute's value into `buffer`, unless that is empty; returns its length.
    pub fn attribute(&self, file: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        xattr::value(self, file, name, buffer)
    }
}
