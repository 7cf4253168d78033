//! What is on the disk, byte for byte. All numbers are little-endian, but for the journal's, which are big-endian.

mod directory;
mod extent;
mod group;
mod inode;
mod journal;
mod superblock;
mod xattr;

pub(crate) use directory::*;
pub(crate) use extent::*;
pub(crate) use group::*;
pub(crate) use inode::*;
pub(crate) use journal::*;
pub(crate) use superblock::*;
pub(crate) use xattr::*;
