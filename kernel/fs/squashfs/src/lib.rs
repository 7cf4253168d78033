//! The file system `squashfs`, version 4.0: a compressed image that is only read.
//!
//! [`FileSystem`] reads an image on a volume; `mounted` is what the file layer mounts.
//!
//! | module | what it is |
//! |---|---|
//! | `superblock` | where everything is, and which features are known |
//! | `store` | bytes of the device; blocks of metadata and of data, uncompressed, in caches with a bound |
//! | `inflate` | the compressions that are known, into memory of a given size |
//! | `cursor` | reading metadata, which goes on from block to block |
//! | `tables` | owners, fragments, extended attributes |
//! | `inode`, `directory`, `contents`, `xattr` | the parts of a file |
//!
//! An image may say anything: every number is checked before it is a place or a size, every loop has an end, memory is allocated fallibly and
//! what is uncompressed never exceeds what the format allows.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod contents;
mod cursor;
mod directory;
mod error;
mod file_system;
mod inflate;
mod inode;
pub mod mounted;
mod store;
mod superblock;
mod tables;
mod xattr;

pub use contents::FileMap;
pub use directory::Entry;
pub use error::{Error, Result};
pub use file_system::FileSystem;
pub use inode::{Inode, Kind};
