//! Images: the root file system of a guest, from whatever form it comes in to an initramfs.
//!
//! * [`tree`]: a root file system in memory, with all names kept inside its root
//! * [`directory`], [`tarball`], [`cpio_reader`]: where trees come from
//! * [`default_image`]: the tree that is used when the user names no image
//! * [`cpio_writer`], [`initramfs`]: where trees go
//!
//! Nothing of an image is ever unpacked onto the host's file system.

mod content;
mod cpio_reader;
mod cpio_writer;
mod default_image;
mod directory;
#[cfg(test)]
mod hostile;
mod initramfs;
mod source;
mod tarball;
mod tree;
mod users;

pub(crate) use content::Content;
pub(crate) use initramfs::{Initramfs, RunRequest};
pub(crate) use source::open;
pub(crate) use tree::{Attributes, Kind, Node, Tree};
pub(crate) use users::UserId;
