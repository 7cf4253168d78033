//! Group descriptors: 32 bytes, or 64 and more with the feature `64bit`.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const DESCRIPTOR_BYTES_MIN: usize = 32;
pub(crate) const DESCRIPTOR_CHECKSUM_AT: usize = 0x1e;

/// The first half.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawGroup {
    pub(crate) block_bitmap: U32,
    pub(crate) inode_bitmap: U32,
    pub(crate) inode_table: U32,
    pub(crate) free_blocks: U16,
    pub(crate) free_inodes: U16,
    pub(crate) directories: U16,
    pub(crate) flags: U16,
    pub(crate) exclude_bitmap: U32,
    pub(crate) block_bitmap_checksum: U16,
    pub(crate) inode_bitmap_checksum: U16,
    pub(crate) unused_inodes: U16,
    pub(crate) checksum: U16,
}

/// The second half, with `64bit`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawGroupHigh {
    pub(crate) block_bitmap: U32,
    pub(crate) inode_bitmap: U32,
    pub(crate) inode_table: U32,
    pub(crate) free_blocks: U16,
    pub(crate) free_inodes: U16,
    pub(crate) directories: U16,
    pub(crate) unused_inodes: U16,
    pub(crate) exclude_bitmap: U32,
    pub(crate) block_bitmap_checksum: U16,
    pub(crate) inode_bitmap_checksum: U16,
    pub(crate) reserved: U32,
}

const _: () = assert!(size_of::<RawGroup>() == 32 && size_of::<RawGroupHigh>() == 32);
