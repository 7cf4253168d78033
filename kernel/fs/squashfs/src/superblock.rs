//! The superblock: where everything is.

use crate::{Error, Result};

/// Bytes of it.
pub(crate) const BYTES: usize = 96;

const MAGIC: u32 = 0x7371_7368;
/// What a table's place is if there is none.
const NONE: u64 = u64::MAX;
/// How blocks are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Gzip,
    Lz4,
    Xz,
    Zstd,
}

impl Compression {
    fn of_number(number: u16) -> Result<Self> {
        Ok(match number {
            1 => Self::Gzip,
            4 => Self::Xz,
            5 => Self::Lz4,
            6 => Self::Zstd,
            number => {
                let name = match number {
                    2 => "the compression lzma",
                    3 => "the compression lzo",
                    _ => "the compression",
                };
                return Err(Error::Unsupported(name, number.into()));
            }
        })
    }
}
/// The largest block of a file.
const BLOCK_LOG_MAX: u16 = 20;
const BLOCK_LOG_MIN: u16 = 12;

/// Numbers of an image, little end first.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// See the theory of this file.
#[derive(Clone, Debug)]
pub(crate) struct Superblock {
    pub(crate) inodes: u32,
    pub(crate) compression: Compression,
    /// Bytes of a file's block: a power of two.
    pub(crate) block_bytes: u32,
    pub(crate) fragments: u32,
    pub(crate) owners: u16,
    /// Where the root's inode is.
    pub(crate) root: u64,
    /// Bytes of the image.
    pub(crate) bytes: u64,
    pub(crate) owner_table: u64,
    pub(crate) attribute_table: Option<u64>,
    pub(crate) inode_table: u64,
    pub(crate) directory_table: u64,
    pub(crate) fragment_table: u64,
}

impl Superblock {
    /// # Errors
    /// No image, one of a version or compression that is not known, or one that is larger than the device.
    pub(crate) fn parse(bytes: &[u8], device_bytes: u64) -> Result<Self> {
        if bytes.len() < BYTES || u32_at(bytes, 0) != MAGIC {
            return Err(Error::NotSquash);
        }
        let (major, minor) = (u16_at(bytes, 28), u16_at(bytes, 30));
        if major != 4 || minor != 0 {
            return Err(Error::Unsupported("the version of the format", major.into()));
        }
        let compression = Compression::of_number(u16_at(bytes, 20))?;
        let (block_bytes, log) = (u32_at(bytes, 12), u16_at(bytes, 22));
        if !(BLOCK_LOG_MIN..=BLOCK_LOG_MAX).contains(&log) || block_bytes != 1 << log {
            return Err(Error::Corrupted("the size of blocks", block_bytes.into()));
        }
        let table = u64_at(bytes, 56);
        let this = Self {
            inodes: u32_at(bytes, 4),
            compression,
            block_bytes,
            fragments: u32_at(bytes, 16),
            owners: u16_at(bytes, 26),
            root: u64_at(bytes, 32),
            bytes: u64_at(bytes, 40),
            owner_table: u64_at(bytes, 48),
            attribute_table: (table != NONE).then_some(table),
            inode_table: u64_at(bytes, 64),
            directory_table: u64_at(bytes, 72),
            fragment_table: u64_at(bytes, 80),
        };
        if this.bytes < BYTES as u64 || this.bytes > device_bytes {
            return Err(Error::Corrupted("the size of the image", this.bytes));
        }
        let inside = |place: u64| place >= BYTES as u64 && place < this.bytes;
        let tables = [this.inode_table, this.directory_table, this.owner_table];
        let fragments = if this.fragments > 0 { Some(this.fragment_table) } else { None };
        if !tables.into_iter().chain(this.attribute_table).chain(fragments).all(inside) {
            return Err(Error::Corrupted("the place of a table", this.inode_table));
        }
        Ok(this)
    }
}
