//! Nodes of extent trees: a header and entries of 12 bytes.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) const EXTENT_MAGIC: u16 = 0xf30a;
pub(crate) const EXTENT_ENTRY_BYTES: usize = 12;
/// Levels of a tree at most.
pub(crate) const EXTENT_DEPTH_MAX: u16 = 5;
/// Blocks of an initialised extent at most; beyond, it is unwritten and this is to be subtracted.
pub(crate) const EXTENT_LENGTH_MAX: u16 = 32768;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawExtentHeader {
    pub(crate) magic: U16,
    pub(crate) entries: U16,
    pub(crate) max: U16,
    pub(crate) depth: U16,
    pub(crate) generation: U32,
}

/// An entry of a leaf.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawExtent {
    pub(crate) logical: U32,
    pub(crate) length: U16,
    pub(crate) start_high: U16,
    pub(crate) start_low: U32,
}

/// An entry of an inner node.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct RawExtentIndex {
    pub(crate) logical: U32,
    pub(crate) child_low: U32,
    pub(crate) child_high: U16,
    pub(crate) unused: U16,
}
