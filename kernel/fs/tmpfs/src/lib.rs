//! Files in memory.
//!
//! | module | what |
//! |---|---|
//! | [`file_system`] | the type, an instance and its limits |
//! | `directory` | names: a hash table over a list in order of creation |
//! | `node` | files, directories, links, nodes |
//! | `huge_file_system`, `huge_file` | `hugetlbfs`: the same names, and files of huge pages |
//! | `extended` | extended attributes |
//! | `handles` | handles of files |
//! | [`archive`] | unpacking the boot archive |
//! | [`memory_file`] | `memfd_create` and seals |
//!
//! Bytes of regular files are in a [`memory::file_cache::FileCache`], which is all the storage there is.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
mod directory;
mod extended;
pub mod file_system;
mod handles;
mod huge_file;
mod huge_file_system;
pub mod memory_file;
mod node;
#[cfg(test)]
mod tests;

pub use file_system::{RAMFS, TMPFS, TmpFs, new_instance};
pub use huge_file_system::HUGETLBFS;
