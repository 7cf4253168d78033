//! Inodes: 128 bytes, and more with `extra_isize`; what is behind that holds extended attributes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const INODE_BYTES_MIN: usize = 128;
pub(crate) const ROOT_INODE: u32 = 2;
/// Bytes of the part that says where the contents are, or holds a short symbolic link.
pub(crate) const MAP_BYTES: usize = 60;
pub(crate) const CHECKSUM_LOW_AT: usize = 0x7c;
pub(crate) const CHECKSUM_HIGH_AT: usize = 0x82;

/// The part that every inode has.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawInode {
    pub(crate) mode: U16,
    pub(crate) user_low: U16,
    pub(crate) size_low: U32,
    pub(crate) accessed: U32,
    pub(crate) changed: U32,
    pub(crate) modified: U32,
    pub(crate) deleted: U32,
    pub(crate) group_low: U16,
    pub(crate) links: U16,
    pub(crate) blocks_low: U32,
    pub(crate) flags: U32,
    pub(crate) version: U32,
    pub(crate) map: [u8; MAP_BYTES],
    pub(crate) generation: U32,
    pub(crate) attributes_low: U32,
    pub(crate) size_high: U32,
    pub(crate) fragment: U32,
    pub(crate) blocks_high: U16,
    pub(crate) attributes_high: U16,
    pub(crate) user_high: U16,
    pub(crate) group_high: U16,
    pub(crate) checksum_low: U16,
    pub(crate) reserved: U16,
}

/// What follows if the inode is larger; `extra_size` says how much of it is there.
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawInodeExtra {
    pub(crate) extra_size: U16,
    pub(crate) checksum_high: U16,
    pub(crate) changed: U32,
    pub(crate) modified: U32,
    pub(crate) accessed: U32,
    pub(crate) born_seconds: U32,
    pub(crate) born: U32,
    pub(crate) version_high: U32,
    pub(crate) project: U32,
}

const _: () = assert!(size_of::<RawInode>() == 128 && size_of::<RawInodeExtra>() == 32);

pub(crate) const FLAG_SYNC: u32 = 0x8;
pub(crate) const FLAG_IMMUTABLE: u32 = 0x10;
pub(crate) const FLAG_JOURNAL_DATA: u32 = 0x4000;
/// Changes of the directory last when they return.
pub(crate) const FLAG_SYNC_DIRECTORY: u32 = 0x1_0000;
/// Its subdirectories are spread as those of the root are.
pub(crate) const FLAG_TOP_DIRECTORY: u32 = 0x2_0000;
/// What is made in the directory belongs to its project, and nothing of another one is given a name there.
pub(crate) const FLAG_INHERIT_PROJECT: u32 = 0x2000_0000;
/// What a new file has from its directory: secure deletion, undeletion, compression or none, synchronous, no dump, no access time, journaled
/// contents, whole tails, a synchronous directory, direct access, the project.
pub(crate) const FLAGS_INHERITED: u32 = 0x7
    | FLAG_SYNC
    | 0x40
    | 0x80
    | 0x400
    | FLAG_JOURNAL_DATA
    | 0x8000
    | FLAG_SYNC_DIRECTORY
    | 0x200_0000
    | FLAG_INHERIT_PROJECT;
/// Of those, what regular files don't have.
pub(crate) const FLAGS_OF_DIRECTORIES: u32 = FLAG_SYNC_DIRECTORY | FLAG_TOP_DIRECTORY | FLAG_INHERIT_PROJECT;
/// And all that other files have: no dump, no access time.
pub(crate) const FLAGS_OF_OTHERS: u32 = 0x40 | 0x80;
pub(crate) const FLAG_INDEX: u32 = 0x1000;
pub(crate) const FLAG_HUGE_FILE: u32 = 0x4_0000;
pub(crate) const FLAG_EXTENTS: u32 = 0x8_0000;
pub(crate) const FLAG_ENCRYPTED: u32 = 0x800;
pub(crate) const FLAG_INLINE_DATA: u32 = 0x1000_0000;
