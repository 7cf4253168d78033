//! Images: the root file system of a guest, from whatever form it comes in to an initramfs.
//!
//! * [`tree`]: a root file system in memory, with all names kept inside its root
//! * [`directory`], [`tarball`], [`cpio_reader`]: where trees come from
//! * [`file_system`]: images that the guest reads itself
//! * [`oci`]: images in layers, as container tools have them
//! * [`default_image`]: the tree that is used when the user names no image
//! * [`cpio_writer`], [`initramfs`], [`tar_writer`]: where trees go
//!
//! Nothing of an image is ever unpacked onto the host's file system.

mod content;
mod cpio_reader;
mod cpio_writer;
mod default_image;
mod directory;
mod file_system;
#[cfg(test)]
mod hostile;
mod initramfs;
pub(crate) mod oci;
mod source;
pub(crate) mod tar_writer;
mod tarball;
mod tree;
mod users;

pub(crate) use content::{Content, Section};
pub(crate) use file_system::FileSystem;
pub(crate) use initramfs::{Initramfs, RunRequest};
pub(crate) use source::{Image, Source, open, source};
pub(crate) use tree::{Attributes, Kind, Node, Tree};
pub(crate) use users::{UserId, accounts};
