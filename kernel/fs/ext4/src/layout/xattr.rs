//! Extended attributes: a header, entries that grow upwards, values that grow downwards from the end.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const XATTR_MAGIC: u32 = 0xea02_0000;
/// The header in a block of its own.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawXattrHeader {
    pub(crate) magic: U32,
    pub(crate) references: U32,
    pub(crate) blocks: U32,
    pub(crate) hash: U32,
    pub(crate) checksum: U32,
    pub(crate) reserved: [U32; 3],
}

pub(crate) const XATTR_CHECKSUM_AT: usize = 16;

/// The head of an entry, before its name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawXattrEntry {
    pub(crate) name_length: u8,
    pub(crate) prefix: u8,
    pub(crate) value_offset: U16,
    pub(crate) value_inode: U32,
    pub(crate) value_length: U32,
    pub(crate) hash: U32,
}
