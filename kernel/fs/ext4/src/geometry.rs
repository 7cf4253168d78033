//! What the superblock says, checked: every number used as a size or a place later is known to be sane from here on.
//!
//! # Features
//! An unknown *incompatible* feature means that the structures can't be understood: refused, with its name. An unknown
//! *read-only compatible* one means that they can't be kept right: mounted read-only, with its name in the log.

use alloc::sync::Arc;

use zerocopy::FromBytes;

use block::checksum::crc32c;
use memory::fallible;

use crate::layout::{
    DESCRIPTOR_BYTES_MIN, FLAG_UNSIGNED_HASH, INODE_BYTES_MIN, MAGIC, RawSuperblock, SUPERBLOCK_BYTES,
};
use crate::{Error, Result};

/// Incompatible features, by bit.
pub(crate) mod incompatible {
    pub(crate) const FILE_TYPE: u32 = 0x2;
    pub(crate) const RECOVER: u32 = 0x4;
    pub(crate) const META_GROUPS: u32 = 0x10;
    pub(crate) const EXTENTS: u32 = 0x40;
    pub(crate) const BITS_64: u32 = 0x80;
    pub(crate) const FLEX_GROUPS: u32 = 0x200;
    pub(crate) const CHECKSUM_SEED: u32 = 0x2000;
    pub(crate) const LARGE_DIRECTORIES: u32 = 0x4000;
    pub(crate) const KNOWN: u32 = FILE_TYPE
        | RECOVER
        | META_GROUPS
        | EXTENTS
        | BITS_64
        | FLEX_GROUPS
        | CHECKSUM_SEED
        | LARGE_DIRECTORIES;
}

/// Read-only compatible features, by bit.
pub(crate) mod read_only_compatible {
    pub(crate) const HUGE_FILE: u32 = 0x8;
    pub(crate) const GROUP_CHECKSUM: u32 = 0x10;
    pub(crate) const LARGE_FILE: u32 = 0x2;
    /// Bitmaps of clusters, not of blocks: only to be read.
    pub(crate) const CLUSTERS: u32 = 0x200;
    pub(crate) const MANY_SUBDIRECTORIES: u32 = 0x20;
    pub(crate) const METADATA_CHECKSUM: u32 = 0x400;
    /// Files belong to projects. What those have is not counted: that is what `quota` is for.
    pub(crate) const PROJECTS: u32 = 0x2000;
    /// Sparse superblocks, large and huge files, group checksums, many subdirectories, large inodes, metadata checksums, projects.
    pub(crate) const KNOWN: u32 =
        0x1 | 0x2 | HUGE_FILE | GROUP_CHECKSUM | 0x20 | 0x40 | METADATA_CHECKSUM | PROJECTS;
}

/// Compatible features, by bit.
pub(crate) mod compatible {
    pub(crate) const INDEXED_DIRECTORIES: u32 = 0x20;
    pub(crate) const JOURNAL: u32 = 0x4;
    pub(crate) const SPARSE_SUPERBLOCKS_2: u32 = 0x200;
}

/// The names that `dumpe2fs` uses.
const INCOMPATIBLE_NAMES: [(u32, &str); 18] = [
    (0x1, "compression"),
    (0x2, "filetype"),
    (0x4, "needs_recovery"),
    (0x8, "journal_dev"),
    (0x10, "meta_bg"),
    (0x40, "extent"),
    (0x80, "64bit"),
    (0x100, "mmp"),
    (0x200, "flex_bg"),
    (0x400, "ea_inode"),
    (0x1000, "dirdata"),
    (0x2000, "metadata_csum_seed"),
    (0x4000, "large_dir"),
    (0x8000, "inline_data"),
    (0x1_0000, "encrypt"),
    (0x2_0000, "casefold"),
    (0x20, "FEATURE_I5"),
    (0x800, "FEATURE_I11"),
];

const READ_ONLY_NAMES: [(u32, &str); 9] = [
    (0x4, "btree_dir"),
    (0x80, "snapshot"),
    (0x100, "quota"),
    (0x200, "bigalloc"),
    (0x800, "replica"),
    (0x1000, "read-only"),
    (0x2000, "project"),
    (0x4000, "shared_blocks"),
    (0x8000, "verity"),
];

fn name_of(names: &[(u32, &'static str)], bit: u32) -> &'static str {
    names.iter().find(|(known, _)| *known == bit).map_or("of unknown name", |(_, name)| name)
}

const fn lowest_bit(bits: u32) -> u32 {
    bits & bits.wrapping_neg()
}

/// See the theory of this file.
#[derive(Clone)]
pub(crate) struct Geometry {
    /// Apart: it is a kilobyte, and this is passed by value.
    pub(crate) raw: Arc<RawSuperblock>,
    pub(crate) block_bytes: usize,
    pub(crate) blocks: u64,
    pub(crate) first_data_block: u64,
    pub(crate) blocks_per_group: u64,
    pub(crate) inodes: u32,
    pub(crate) inodes_per_group: u32,
    pub(crate) inode_bytes: usize,
    pub(crate) groups: u32,
    pub(crate) descriptor_bytes: usize,
    /// What all checksums of metadata begin with.
    pub(crate) seed: u32,
}

/// The largest cluster has 512 MiB.
const LOG_CLUSTER_MAX: u32 = 19;

impl Geometry {
    /// Checks a superblock. `device_bytes` is the size of what it was found on.
    pub(crate) fn parse(bytes: &[u8], device_bytes: u64) -> Result<Self> {
        match Self::parse_torn(bytes, device_bytes)? {
            (geometry, true) => Ok(geometry),
            (_, false) => Err(Error::Corrupted("the superblock's checksum", 0)),
        }
    }

    /// The same but for the checksum; whether it is right. A disk with sectors smaller than a superblock may have halves of two when power fails.
    pub(crate) fn parse_torn(bytes: &[u8], device_bytes: u64) -> Result<(Self, bool)> {
        let raw = copy_of(&bytes[..SUPERBLOCK_BYTES])?;
        if raw.magic.get() != MAGIC {
            return Err(Error::NotExt);
        }
        check_features(&raw)?;
        let metadata_checksum = raw.read_only_compatible.get() & read_only_compatible::METADATA_CHECKSUM != 0;
        let is_whole = !metadata_checksum
            || raw.checksum_type == 1 && crc32c(!0, &bytes[..SUPERBLOCK_BYTES - 4]) == raw.checksum.get();
        let seed = if raw.incompatible.get() & incompatible::CHECKSUM_SEED != 0 {
            raw.checksum_seed.get()
        } else {
            crc32c(!0, &raw.uuid)
        };
        let log_block_size = raw.log_block_size.get();
        if log_block_size > 6 {
            return Err(Error::Corrupted("the block size", log_block_size.into()));
        }
        let block_bytes = 1024usize << log_block_size;
        let wide = raw.incompatible.get() & incompatible::BITS_64 != 0;
        let high = if wide { u64::from(raw.blocks_count_high.get()) << 32 } else { 0 };
        let blocks = high | u64::from(raw.blocks_count_low.get());
        let geometry = Self {
            block_bytes,
            blocks,
            first_data_block: raw.first_data_block.get().into(),
            blocks_per_group: raw.blocks_per_group.get().into(),
            inodes: raw.inodes_count.get(),
            inodes_per_group: raw.inodes_per_group.get(),
            inode_bytes: if raw.revision.get() == 0 { INODE_BYTES_MIN } else { raw.inode_size.get().into() },
            groups: 0,
            descriptor_bytes: if wide { raw.descriptor_size.get().into() } else { DESCRIPTOR_BYTES_MIN },
            seed,
            raw,
        };
        Ok((geometry.checked(device_bytes)?, is_whole))
    }

    /// Whether blocks are of the same size, and structures where the other says.
    pub(crate) fn is_laid_out_as(&self, other: &Self) -> bool {
        let numbers = |of: &Self| {
            [
                of.block_bytes as u64,
                of.blocks,
                of.first_data_block,
                of.blocks_per_group,
                of.inodes.into(),
                of.inodes_per_group.into(),
                of.inode_bytes as u64,
                of.descriptor_bytes as u64,
                of.seed.into(),
            ]
        };
        numbers(self) == numbers(other)
    }

    fn checked(mut self, device_bytes: u64) -> Result<Self> {
        let bits = self.block_bytes as u64 * 8;
        let in_group = |value: u64| (1..=bits).contains(&value);
        let clusters = self.has_read_only_compatible(read_only_compatible::CLUSTERS);
        let (log_block, log_cluster) = (self.raw.log_block_size.get(), self.raw.log_cluster_size.get());
        if log_cluster < log_block || log_cluster > LOG_CLUSTER_MAX || !clusters && log_cluster != log_block {
            return Err(Error::Corrupted("the size of clusters", log_cluster.into()));
        }
        // A bitmap has a bit for each cluster, which is a block where there are none.
        if !in_group(self.blocks_per_group >> (log_cluster - log_block))
            || !in_group(self.inodes_per_group.into())
        {
            return Err(Error::Corrupted("the size of groups", self.blocks_per_group));
        }
        let first = u64::from(self.block_bytes == 1024);
        if !(self.first_data_block == first || clusters && self.first_data_block == 0)
            || self.blocks <= self.first_data_block
            || self.blocks > device_bytes / self.block_bytes as u64
        {
            return Err(Error::Corrupted("the number of blocks", self.blocks));
        }
        let groups = (self.blocks - self.first_data_block).div_ceil(self.blocks_per_group);
        self.groups = u32::try_from(groups).map_err(|_| Error::Corrupted("the number of groups", groups))?;
        if u64::from(self.inodes) != groups * u64::from(self.inodes_per_group) {
            return Err(Error::Corrupted("the number of inodes", self.inodes.into()));
        }
        let sound_inode = self.inode_bytes.is_power_of_two()
            && (INODE_BYTES_MIN..=self.block_bytes).contains(&self.inode_bytes);
        if !sound_inode {
            return Err(Error::Corrupted("the size of inodes", self.inode_bytes as u64));
        }
        let descriptor = self.descriptor_bytes;
        if !descriptor.is_power_of_two() || !(DESCRIPTOR_BYTES_MIN..=1024).contains(&descriptor) {
            return Err(Error::Corrupted("the size of group descriptors", descriptor as u64));
        }
        Ok(self)
    }

    pub(crate) fn has_incompatible(&self, feature: u32) -> bool {
        self.raw.incompatible.get() & feature != 0
    }

    pub(crate) fn has_read_only_compatible(&self, feature: u32) -> bool {
        self.raw.read_only_compatible.get() & feature != 0
    }

    pub(crate) fn has_compatible(&self, feature: u32) -> bool {
        self.raw.compatible.get() & feature != 0
    }

    pub(crate) fn metadata_checksum(&self) -> bool {
        self.has_read_only_compatible(read_only_compatible::METADATA_CHECKSUM)
    }

    /// Whether group descriptors have checksums; only then may they say that bitmaps are not there.
    pub(crate) fn has_group_checksums(&self) -> bool {
        self.metadata_checksum() || self.has_read_only_compatible(read_only_compatible::GROUP_CHECKSUM)
    }

    /// The first block of a group.
    pub(crate) fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * self.blocks_per_group
    }

    /// Blocks of a group: the last one may be shorter.
    pub(crate) fn group_blocks(&self, group: u32) -> u32 {
        (self.blocks - self.group_start(group)).min(self.blocks_per_group) as u32
    }

    /// The group that a block is in.
    pub(crate) fn group_of(&self, block: u64) -> u32 {
        ((block - self.first_data_block) / self.blocks_per_group) as u32
    }

    /// Blocks at a group's beginning with copies of superblock and descriptors.
    pub(crate) fn base_blocks(&self, group: u32) -> u32 {
        let per_block = self.descriptors_per_block();
        let has_superblock = u32::from(self.has_superblock(group));
        let first_meta = self.raw.first_meta_group.get();
        let meta_groups = self.has_incompatible(incompatible::META_GROUPS);
        if meta_groups && group / per_block >= first_meta {
            let place = group % per_block;
            return has_superblock + u32::from(place <= 1 || place == per_block - 1);
        }
        let all = self.groups.div_ceil(per_block);
        let descriptors = if meta_groups { all.min(first_meta) } else { all };
        has_superblock * (1 + descriptors + u32::from(self.raw.reserved_descriptor_blocks.get()))
    }

    /// The first inode that is not the file system's own.
    pub(crate) fn first_inode(&self) -> u32 {
        if self.raw.revision.get() == 0 { 11 } else { self.raw.first_inode.get().max(11) }
    }

    /// Blocks that only the superuser may use.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        let wide = self.has_incompatible(incompatible::BITS_64);
        let high = if wide { u64::from(self.raw.reserved_blocks_high.get()) << 32 } else { 0 };
        high | u64::from(self.raw.reserved_blocks_low.get())
    }

    /// Blocks of a group's inode table.
    pub(crate) fn inode_table_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_bytes as u64).div_ceil(self.block_bytes as u64)
    }

    /// The first feature because of which it can't be written.
    pub(crate) fn read_only_because(&self) -> Option<(&'static str, u32)> {
        let unknown = self.raw.read_only_compatible.get() & !read_only_compatible::KNOWN;
        let bit = lowest_bit(unknown);
        (bit != 0)
            .then(|| (if bit == 0x1_0000 { "orphan_present" } else { name_of(&READ_ONLY_NAMES, bit) }, bit))
    }

    /// Whether `count` blocks from `block` on are inside, and not before the first one.
    pub(crate) fn contains(&self, block: u64, count: u64) -> bool {
        block >= self.first_data_block.max(1)
            && block.checked_add(count).is_some_and(|end| end <= self.blocks)
    }

    /// Names are hashed with bytes that have no sign.
    pub(crate) fn unsigned_hash(&self) -> bool {
        self.raw.flags.get() & FLAG_UNSIGNED_HASH != 0
    }

    pub(crate) fn descriptors_per_block(&self) -> u32 {
        (self.block_bytes / self.descriptor_bytes) as u32
    }

    /// Whether a group has copies of superblock and descriptors.
    pub(crate) fn has_superblock(&self, group: u32) -> bool {
        if self.has_compatible(compatible::SPARSE_SUPERBLOCKS_2)
            || self.raw.read_only_compatible.get() & 1 == 0
        {
            return true;
        }
        let power_of = |base: u32| {
            let mut power = base;
            while power < group {
                power = power.saturating_mul(base);
            }
            power == group
        };
        group <= 1 || power_of(3) || power_of(5) || power_of(7)
    }

    /// The block with a group's descriptor.
    pub(crate) fn descriptor_block(&self, group: u32) -> u64 {
        let index = u64::from(group / self.descriptors_per_block());
        let meta = self.has_incompatible(incompatible::META_GROUPS)
            && index >= u64::from(self.raw.first_meta_group.get());
        if !meta {
            return self.first_data_block + 1 + index;
        }
        let first_group = index as u32 * self.descriptors_per_block();
        let start = self.first_data_block + u64::from(first_group) * self.blocks_per_group;
        start + u64::from(self.has_superblock(first_group))
    }
}

/// Has a frame of its own for what it copies.
#[inline(never)]
fn copy_of(bytes: &[u8]) -> Result<Arc<RawSuperblock>> {
    let raw = RawSuperblock::read_from_bytes(bytes).map_err(|_| Error::Corrupted("superblock", 0))?;
    Ok(fallible::try_arc(raw)?)
}

fn check_features(raw: &RawSuperblock) -> Result<()> {
    let unknown = raw.incompatible.get() & !incompatible::KNOWN;
    if unknown != 0 {
        let bit = lowest_bit(unknown);
        let name = name_of(&INCOMPATIBLE_NAMES, bit);
        log::error!("ext4: the feature {name} ({bit:#x}) is not supported: not mounted");
        return Err(Error::UnknownFeature(name, bit));
    }
    Ok(())
}
