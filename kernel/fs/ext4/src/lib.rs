//! ext2, ext3 and ext4: structures with their checksums, extents and indirect blocks, indexed directories, extended attributes, and
//! the journal.
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
//! [`Writer::mount`] recovers what the journal holds and goes on from there: see the theory of `writer`, `handle` and `contents`, and
//! the book's page.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod allocate;
mod allocate_inode;
mod bitmap;
mod blocks;
mod cache;
mod contents;
mod data;
mod deletion;
mod directory;
mod directory_block;
mod directory_change;
mod error;
mod extent_shift;
mod extent_tree;
mod file_system;
mod geometry;
mod group;
mod handle;
mod hash;
mod index;
mod indirect_tree;
mod inode;
mod inode_store;
mod journal;
mod layout;
mod log_writer;
mod map;
mod map_change;
pub mod mounted;
mod names;
mod orphan;
mod promise;
mod recovery;
mod running;
mod spare;
mod superblock;
mod trim;
mod writer;
mod xattr;
mod xattr_change;

pub use contents::Written;
pub use data::Destination;
pub use directory::{Entry, NAME_MAX};
pub use error::{Error, Result};
pub use file_system::{FileSystem, Status};
pub use inode::{Inode, Kind, Time};
pub use log_writer::LogWriter;
pub use map::Run;
pub use names::{Move, NewFile};
pub use recovery::recover;
pub use writer::Writer;
pub use xattr_change::SetAttribute;
