//! `/proc`: the system and its processes as files.
//!
//! The root holds fixed entries ([`add`], [`add_at`]), filled by whoever has something to show, and a directory for each
//! process, supplied by a [`ProcessSource`] that the personality sets. Everything else is
//! [`vfs::generated`]'s. There is one instance, shared by all mounts, and one for each mount made in another name space of process numbers.
//!
//! # Positions in the root
//! Fixed entries come first, in the order in which they were added; processes follow by ascending number, at positions
//! above 2³², so that listing is stable while processes come and go.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod root;
mod static_tree;

pub use root::{PROCFS, ProcFs, ProcessSource, forget_process, set_process_source};
pub use static_tree::{add, add_at, add_text, directory, fill_also, fill_later};
