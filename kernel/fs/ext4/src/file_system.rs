//! A mounted file system: the way from a name to bytes.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;

use block::{SECTOR_BYTES, Volume};
use memory::fallible;

use crate::blocks;
use crate::cache::Cache;
use crate::directory::{self, Entry};
use crate::geometry::{Geometry, incompatible};
use crate::inode::{Inode, Kind};
use crate::layout::{MAP_BYTES, ROOT_INODE, SUPERBLOCK_AT, SUPERBLOCK_BYTES};
use crate::map::{self, Run};
use crate::{Error, Result, journal, xattr};

/// Longest symbolic link.
const LINK_MAX: u64 = 4095;

/// See the theory of this file.
pub struct FileSystem {
    pub(crate) geometry: Geometry,
    pub(crate) cache: Cache,
    /// Where each group has its inodes; 0: nobody has asked yet. Empty while the journal is replayed.
    pub(crate) inode_tables: Vec<AtomicU64>,
    transactions_replayed: u32,
}

/// The largest value of the superblock's field that says that it has a copy of the journal's inode.
const JOURNAL_BLOCKS_KEPT: u8 = 1;

/// What `statfs` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Bytes of a block.
    pub block_bytes: usize,
    /// Blocks, without those of the file system's own structures.
    pub blocks: u64,
    /// Free ones.
    pub blocks_free: u64,
    /// Free ones for everybody.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free ones.
    pub inodes_free: u64,
}

impl FileSystem {
    /// Mounts what is on the volume, for reading. What the journal holds is replayed in memory: the volume stays as it is.
    ///
    /// # Errors
    /// No file system of this family, one with features that are not known, or a damaged one.
    pub fn mount(volume: &Volume) -> Result<Self> {
        let device_bytes = volume.sectors().saturating_mul(SECTOR_BYTES as u64);
        if device_bytes < (SUPERBLOCK_AT + SUPERBLOCK_BYTES) as u64 {
            return Err(Error::NotExt);
        }
        let (geometry, is_whole) = Self::read_superblock(volume, device_bytes)?;
        // The log may have the one that was being written home when power failed.
        if !is_whole && !geometry.has_incompatible(incompatible::RECOVER) {
            return Err(Error::Corrupted("the superblock's checksum", 0));
        }
        let cache = Cache::new(volume.clone(), geometry.block_bytes);
        let mut system = Self { geometry, cache, inode_tables: Vec::new(), transactions_replayed: 0 };
        if let Some((name, bit)) = system.geometry.read_only_because() {
            log::warn!("ext4: the feature {name} ({bit:#x}) is not supported: only to be read");
        }
        if system.geometry.has_incompatible(incompatible::RECOVER) {
            system.recover(device_bytes)?;
        }
        let groups = system.geometry.groups as usize;
        let mut inode_tables = fallible::try_vec(groups)?;
        inode_tables.resize_with(groups, AtomicU64::default);
        system.inode_tables = inode_tables;
        Ok(system)
    }

    fn read_superblock(volume: &Volume, device_bytes: u64) -> Result<(Geometry, bool)> {
        // Devices with blocks of 4 KiB can't be read from the second KiB on.
        let unit =
            (volume.queue().limits().logical_block_bytes as usize).max(SUPERBLOCK_AT + SUPERBLOCK_BYTES);
        let bytes = volume.read(0, unit)?;
        Geometry::parse_torn(&bytes[SUPERBLOCK_AT..], device_bytes)
    }

    fn recover(&mut self, device_bytes: u64) -> Result<()> {
        let replayed = journal::replay(self)?;
        log::info!("ext4: {replayed} transactions replayed in memory");
        self.transactions_replayed = replayed;
        // The superblock may have been among them.
        let (block, at) = self.superblock_place();
        let bytes = self.cache.get(block, |_| Ok(()))?;
        let replayed = Geometry::parse(&bytes[at..], device_bytes)?;
        if !replayed.is_laid_out_as(&self.geometry) {
            return Err(Error::Corrupted("the superblock in the journal", 0));
        }
        self.geometry = replayed;
        Ok(())
    }

    /// The block with the superblock, and where in it that is.
    pub(crate) fn superblock_place(&self) -> (u64, usize) {
        if self.geometry.block_bytes == SUPERBLOCK_AT { (1, 0) } else { (0, SUPERBLOCK_AT) }
    }

    /// How many transactions the journal held at the mount.
    pub fn transactions_replayed(&self) -> u32 {
        self.transactions_replayed
    }

    /// Calls `each` with number and newest contents of all blocks that the journal held, in no order: what has to be written home
    /// before the journal may be emptied. `each` runs under a spin lock.
    pub fn for_each_replayed(&self, each: impl FnMut(u64, &[u8])) {
        self.cache.for_each_pinned(each);
    }

    /// Why it could only be mounted for reading, whatever this crate learns: the name of an unknown feature.
    pub fn read_only_because(&self) -> Option<&'static str> {
        self.geometry.read_only_because().map(|(name, _)| name)
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> usize {
        self.geometry.block_bytes
    }

    /// Whether blocks may belong to a file: they are inside, and not where superblock and first descriptors are.
    pub(crate) fn is_data(&self, block: u64, count: u64) -> bool {
        let geometry = &self.geometry;
        let first =
            geometry.first_data_block + u64::from(geometry.base_blocks(0).min(geometry.group_blocks(0)));
        count > 0 && block >= first && geometry.contains(block, count)
    }

    /// The user and the group that may use the blocks that are kept for the superuser.
    pub fn reserved_for(&self) -> (u32, u32) {
        let raw = &self.geometry.raw;
        (raw.reserved_user.get().into(), raw.reserved_group.get().into())
    }

    /// Reads an inode.
    pub fn inode(&self, number: u32) -> Result<Inode> {
        blocks::inode(self, number)
    }

    /// The same without asking the disk, and without sleeping: `None` where its block is not in the cache.
    pub fn inode_at_hand(&self, number: u32) -> Option<Inode> {
        // An error is told who asks the disk.
        blocks::inode(&blocks::AtHand(self), number).ok()
    }

    /// Lets go of at most so many blocks of metadata that the disk has as they are here; returns how many. Never sleeps.
    pub fn drop_clean(&self, most: usize) -> usize {
        self.cache.drop_clean(most)
    }

    /// Whether there can be a file's inode of this number, used or not.
    pub fn may_be_file(&self, number: u32) -> bool {
        (self.geometry.first_inode()..=self.geometry.inodes).contains(&number)
    }

    /// The root directory.
    pub fn root(&self) -> Result<Inode> {
        let root = self.inode(ROOT_INODE)?;
        if root.kind != Kind::Directory { Err(Error::Corrupted("the root directory", 2)) } else { Ok(root) }
    }

    /// Finds a name in a directory.
    pub fn lookup(&self, directory: &Inode, name: &[u8]) -> Result<Inode> {
        Self::require(directory, Kind::Directory, Error::NotDirectory)?;
        let number = directory::locate(self, directory, name)?.inode;
        let first = self.geometry.raw.first_inode.get();
        if number != ROOT_INODE && self.geometry.raw.revision.get() > 0 && number < first {
            return Err(Error::Corrupted("an entry's inode", number.into()));
        }
        let own = matches!(name, b"." | b"..");
        if !own && (number == directory.number || number == ROOT_INODE) {
            return Err(Error::Corrupted("a directory within itself", number.into()));
        }
        let inode = self.inode(number)?;
        if inode.links == 0 {
            return Err(Error::Corrupted("an entry's inode is free", number.into()));
        }
        Ok(inode)
    }

    /// Lists a directory from a position (0 at first): calls `each` with an entry and the position behind it until it says
    /// no. Returns where to go on.
    pub fn list(
        &self,
        directory: &Inode,
        position: u64,
        each: impl FnMut(Entry<'_>, u64) -> bool,
    ) -> Result<u64> {
        Self::require(directory, Kind::Directory, Error::NotDirectory)?;
        directory::list(self, directory, position, each)
    }

    fn require(inode: &Inode, kind: Kind, error: Error) -> Result<()> {
        if inode.kind == kind { Ok(()) } else { Err(error) }
    }

    /// Where a file's blocks are, from `logical` on, as far as they are neighbours and `wanted`.
    pub fn map(&self, inode: &Inode, logical: u64, wanted: u64) -> Result<Run> {
        if !matches!(inode.kind, Kind::Regular | Kind::Directory | Kind::Link) {
            return Err(Error::WrongKind);
        }
        map::map(self, inode, logical, wanted.max(1))
    }

    /// Reads a file from `offset` on; returns how many bytes there were.
    pub fn read(&self, inode: &Inode, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let block_bytes = self.geometry.block_bytes;
        let left = inode.size.saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        let buffer = &mut buffer[..length];
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let inside = (at % block_bytes as u64) as usize;
            let wanted = (inside + length - done).div_ceil(block_bytes);
            let run = self.map(inode, at / block_bytes as u64, wanted as u64)?;
            let count = usize::try_from(run.count).unwrap_or(usize::MAX).min(wanted).min(RUN_BLOCKS_MAX);
            let bytes = (count * block_bytes - inside).min(length - done);
            let part = &mut buffer[done..done + bytes];
            match run.place {
                None => part.fill(0),
                Some(place) => {
                    let read = self.cache.read_run(place, count)?;
                    part.copy_from_slice(&read[inside..inside + bytes]);
                }
            }
            done += bytes;
        }
        Ok(length)
    }

    /// Where a symbolic link leads to.
    pub fn link_target(&self, inode: &Inode) -> Result<Vec<u8>> {
        Self::require(inode, Kind::Link, Error::WrongKind)?;
        if inode.size == 0 || inode.size > LINK_MAX {
            return Err(Error::Corrupted("a symbolic link's length", inode.number.into()));
        }
        let length = inode.size as usize;
        // Short ones are in the inode, unless old tools put them elsewhere: then it has blocks besides the attributes'.
        let attribute_blocks = if inode.attributes == 0 { 0 } else { self.geometry.block_bytes as u64 / 512 };
        if length < MAP_BYTES && inode.blocks <= attribute_blocks && !inode.has_extents() {
            return Ok(fallible::try_copy(&inode.map[..length])?);
        }
        // It is one block, changed like metadata: the cache may have it before the disk does.
        let damaged = Error::Corrupted("a symbolic link's block", inode.number.into());
        let place = map::map(self, inode, 0, 1)?.place.ok_or(damaged.clone())?;
        let block = self.cache.get(place, |_| Ok(()))?;
        Ok(fallible::try_copy(block.get(..length).ok_or(damaged)?)?)
    }

    /// Copies an extended attribute's value into `buffer`, nothing if that is empty, and returns its length.
    pub fn attribute(&self, inode: &Inode, name: &[u8], buffer: &mut [u8]) -> Result<usize> {
        xattr::get(self, inode, name, buffer)
    }

    /// Calls `each` with the names of all extended attributes.
    pub fn for_each_attribute(&self, inode: &Inode, each: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        xattr::list(self, inode, each)
    }

    /// What `statfs` shows.
    pub fn status(&self) -> Status {
        let raw = &self.geometry.raw;
        let wide = self.geometry.has_incompatible(incompatible::BITS_64);
        let join = |high: u32, low: u32| u64::from(if wide { high } else { 0 }) << 32 | u64::from(low);
        let reserved = join(raw.reserved_blocks_high.get(), raw.reserved_blocks_low.get());
        let free = join(raw.free_blocks_high.get(), raw.free_blocks_low.get()).min(self.geometry.blocks);
        Status {
            block_bytes: self.geometry.block_bytes,
            blocks: self.geometry.blocks.saturating_sub(self.overhead()),
            blocks_free: free,
            blocks_available: free.saturating_sub(reserved),
            inodes: self.geometry.inodes.into(),
            inodes_free: raw.free_inodes.get().min(self.geometry.inodes).into(),
        }
    }

    /// Blocks of a journal inside, by what the superblock has of its inode.
    fn journal_blocks(&self) -> u64 {
        let raw = &self.geometry.raw;
        if raw.journal_inode.get() == 0 || raw.journal_backup_type > JOURNAL_BLOCKS_KEPT {
            return 0;
        }
        let [high, low] = [15, 16].map(|index: usize| u64::from(raw.journal_blocks[index].get()));
        // It is only told to programs: a damaged one may say anything.
        ((high << 32 | low) / self.geometry.block_bytes as u64).min(self.geometry.blocks)
    }

    /// Blocks of bitmaps, inode tables, copies of the superblock with its descriptors, and the journal.
    fn overhead(&self) -> u64 {
        let geometry = &self.geometry;
        let table_bytes = u64::from(geometry.inodes_per_group) * geometry.inode_bytes as u64;
        let table = table_bytes.div_ceil(geometry.block_bytes as u64);
        let descriptors = u64::from(geometry.groups.div_ceil(geometry.descriptors_per_block()));
        let reserved = u64::from(geometry.raw.reserved_descriptor_blocks.get());
        let copies = (0..geometry.groups).filter(|group| geometry.has_superblock(*group)).count() as u64;
        geometry.first_data_block
            + u64::from(geometry.groups) * (table + 2)
            + copies * (1 + descriptors + reserved)
            + self.journal_blocks()
    }
}

/// Blocks read at once: what they are copied from must be allocated.
const RUN_BLOCKS_MAX: usize = 64;
