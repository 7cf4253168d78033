//! What `/proc` shows: a directory for each process, and the state of the system.
//!
//! `process` is the directory of a process, `entries` its files, `maps` those about its memory, `descriptors` those about
//! its open files, `system` the files in the root.

mod descriptors;
mod entries;
mod maps;
mod mounts;
mod process;
mod system;

pub use system::register;
