//! Files whose bytes are on a block device: the device itself, and the files of file systems on it.
//!
//! | module | what it decides |
//! |---|---|
//! | [`mod@file`] | what an open file of this kind does: reading with read-ahead, writing, `O_DIRECT`, syncing, advice |
//! | `read_ahead` | how far an open file is read ahead |
//! | [`transfer`] | runs of pages become bios |
//! | [`flusher`] | when dirty pages are written, and how fast programs may make pages dirty |
//! | [`device`] | the pages of a block device, and opening its node |
//! | [`shrink`] | which clean pages go when memory is short |

pub mod device;
pub mod file;
pub mod flusher;
mod read_ahead;
pub mod shrink;
pub mod transfer;

pub use device::{DeviceFiles, open_device};
pub use file::{Advice, DiskFile, Home};

/// Lets memory reclaim take clean pages. Once, at start-up.
pub(crate) fn initialize() {
    shrink::initialize();
}
