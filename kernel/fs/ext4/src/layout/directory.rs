//! Directory entries, the tail with a block's checksum, and nodes of hash trees.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const ENTRY_HEAD_BYTES: usize = 8;
pub(crate) const DIRECTORY_TAIL_BYTES: usize = 12;
/// The tail's stand-in for a kind of file.
pub(crate) const DIRECTORY_TAIL_KIND: u8 = 0xde;

/// The head of an entry, before its name.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawEntry {
    pub(crate) inode: U32,
    pub(crate) length: U16,
    pub(crate) name_length: u8,
    /// The kind of file, or the high byte of the name's length in old file systems.
    pub(crate) kind: u8,
}

/// What the first block of a hashed directory has behind the entries `.` and `..`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHashRoot {
    pub(crate) reserved: U32,
    pub(crate) version: u8,
    pub(crate) info_length: u8,
    pub(crate) levels: u8,
    pub(crate) unused: u8,
}

/// Where it is.
pub(crate) const HASH_ROOT_AT: usize = 24;
/// Where the entries of a node that is not the root are.
pub(crate) const HASH_NODE_AT: usize = 8;

/// An entry of a hash tree's node. The first one's hash is the node's limit and count.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawHashEntry {
    pub(crate) hash: U32,
    pub(crate) block: U32,
}
