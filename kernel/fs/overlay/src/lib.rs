//! The file system `overlay`: one tree made of several that lie on each other, as Linux has it.
//!
//! A *layer* is a directory of another file system. The *upper* one takes all changes, the *lower* ones are only read; without an upper layer
//! nothing can be changed. A name means what the uppermost layer says that has it; directories of one name are *merged*.
//!
//! | on the upper layer | means |
//! |---|---|
//! | a character device 0:0, a *whiteout* | the name does not exist, whatever the layers below say |
//! | a directory with the attribute `trusted.overlay.opaque` of value `y` | it hides those below instead of being merged with them |
//!
//! What is about to be changed and lies below is *copied up* first (`copy_up`): made in the work directory, which is on the upper layer's file system, and
//! moved to its place by one rename. A crash leaves something in the work directory at worst, which the next mount removes.
//!
//! # The parts
//! | module | what it is |
//! |---|---|
//! | `options`, `mount` | what a mount asks for, and making an instance |
//! | `instance` | the layers, the inodes in memory, identities |
//! | `node` | an inode: which files of the layers it stands for |
//! | `copy_up` | making a lower file an upper one |
//! | `change`, `relocate`, `work` | names: making and removing them, renaming; the work directory and whiteouts |
//! | `listing` | reading merged directories |
//! | `regular` | open files |
//! | `attributes` | extended attributes |
//!
//! # Locks
//! The file layer holds the locks of an overlay's inodes, which are a class of their own and come first. Then a node's `copying`, one at a time; then
//! those of the layers' directories and files, taken by [`vfs::tree::layer`].
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod attributes;
mod change;
mod copy_up;
mod instance;
mod listing;
mod mount;
mod node;
mod options;
mod regular;
mod relocate;
#[cfg(test)]
mod tests;
mod work;

pub use mount::OVERLAY;
