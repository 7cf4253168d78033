//! The journal (jbd2, versions 1 to 3 of its tags). Big-endian.

use zerocopy::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const JOURNAL_MAGIC: u32 = 0xc03b_3998;

/// The head of every block of the journal that is not a copy.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawJournalHeader {
    pub(crate) magic: U32,
    pub(crate) kind: U32,
    pub(crate) sequence: U32,
}

pub(crate) const KIND_DESCRIPTOR: u32 = 1;
pub(crate) const KIND_COMMIT: u32 = 2;
pub(crate) const KIND_SUPERBLOCK_V1: u32 = 3;
pub(crate) const KIND_SUPERBLOCK_V2: u32 = 4;
pub(crate) const KIND_REVOKE: u32 = 5;

/// The journal's first block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawJournalSuperblock {
    pub(crate) header: RawJournalHeader,
    pub(crate) block_size: U32,
    pub(crate) blocks: U32,
    pub(crate) first: U32,
    pub(crate) sequence: U32,
    pub(crate) start: U32,
    pub(crate) error: U32,
    pub(crate) compatible: U32,
    pub(crate) incompatible: U32,
    pub(crate) read_only_compatible: U32,
    pub(crate) uuid: [u8; 16],
    pub(crate) users: U32,
    pub(crate) dynamic_superblock: U32,
    pub(crate) transaction_max: U32,
    pub(crate) data_max: U32,
    pub(crate) checksum_type: u8,
    pub(crate) padding_a: [u8; 3],
    pub(crate) fast_commit_blocks: U32,
    pub(crate) head: U32,
    pub(crate) padding_b: [U32; 40],
    pub(crate) checksum: U32,
    pub(crate) user_ids: [u8; 768],
}

const _: () = assert!(size_of::<RawJournalSuperblock>() == 1024);

pub(crate) const FEATURE_REVOKE: u32 = 1;
pub(crate) const FEATURE_64BIT: u32 = 2;
pub(crate) const FEATURE_ASYNC_COMMIT: u32 = 4;
pub(crate) const FEATURE_CHECKSUM_V2: u32 = 8;
pub(crate) const FEATURE_CHECKSUM_V3: u32 = 16;
pub(crate) const FEATURE_FAST_COMMIT: u32 = 32;

/// A descriptor's tag with checksums of version 3.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawTag3 {
    pub(crate) block: U32,
    pub(crate) flags: U32,
    pub(crate) block_high: U32,
    pub(crate) checksum: U32,
}

/// A tag of the older kind: the high half of the number follows with 64 bits, and two bytes with checksums of version 2.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawTag {
    pub(crate) block: U32,
    pub(crate) checksum: U16,
    pub(crate) flags: U16,
}

pub(crate) const TAG_ESCAPED: u32 = 1;
pub(crate) const TAG_SAME_UUID: u32 = 2;
pub(crate) const TAG_LAST: u32 = 8;

/// Where a commit block has its checksum (of the whole block), with versions 2 and 3.
pub(crate) const COMMIT_CHECKSUM_AT: usize = 16;
