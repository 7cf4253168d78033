//! Trees whose contents are computed: the framework behind `procfs`, `sysfs` and `debugfs`.
//!
//! A tree is made of [`Node`]s. A directory is either a [`StaticDirectory`], filled at start-up (and later, by whoever
//! has something to show), or anything that implements [`Directory`], such as the processes of the system. A file is
//! anything that implements [`File`]; two closures do ([`text_file`], [`knob`]). A link leads to a text or jumps to a
//! place.
//!
//! # Reading
//! What a file shows is computed when it is read at position 0 and kept for that open file: reading in pieces sees one
//! state, and seeking back to the beginning sees a new one. Long texts of many pieces are made part by part instead ([`PartedFile`]).
//!
//! # Identity
//! Inodes are made by lookup and live as long as the entry cache or a user holds them; each lookup makes a new one from
//! the same node. Numbers come from the nodes, so that they are stable. The file system is *volatile*: a cached entry
//! is believed only after [`Directory::still_valid`] said so.

mod directory;
mod file;
mod inode;
mod parts;
mod path_tree;
mod tree;

pub use directory::{Directory, StaticDirectory};
pub use file::{File, GeneratedFile, knob, text_file};
pub use inode::{Body, Link, Node};
pub use parts::{PART_BYTES, PartedFile, Parts};
pub use path_tree::PathTree;
pub use tree::{TRAITS, TreeFileSystem, new_superblock, next_number};
