//! ext2, ext3 and ext4, for reading: structures with their checksums, extents and indirect blocks, indexed directories, extended attributes, and
//! the journal's replay.
//!
//! [`FileSystem::mount`] checks what the superblock says; [`FileSystem::inode`], [`lookup`](FileSystem::lookup),
//! [`list`](FileSystem::list), [`map`](FileSystem::map) and [`read`](FileSystem::read) do the rest. All of them
//! take `&self`, hold no lock while they work, and may sleep for the disk.
//!
//! # What an image can do
//! Nothing but fail: every number is checked before it is used as a place or size, every loop has a bound, memory is
//! allocated fallibly, and checksums are verified where the image has them. What is wrong is named in [`Error::Corrupted`].
//!
//! # Writing
//! [`recover`] brings what the journal holds to the disk, and [`LogWriter`] commits sets of changed blocks to the journal; what
//! changes blocks (allocation, directories, extents) is not there yet. See the book's page for the way.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod cache;
mod directory;
mod error;
mod file_system;
mod geometry;
mod group;
mod hash;
mod inode;
mod journal;
mod layout;
mod log_writer;
mod map;
mod recovery;
mod xattr;

pub use directory::{Entry, NAME_MAX};
pub use error::{Error, Result};
pub use file_system::{FileSystem, Status};
pub use inode::{Inode, Kind, Time};
pub use log_writer::LogWriter;
pub use map::Run;
pub use recovery::recover;
