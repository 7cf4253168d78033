//! Device nodes: the memory devices (`null`, `zero`, `full`, `random`, `urandom`, `kmsg`) and the tree that
//! shows up on `/dev`.
//!
//! | module | what it decides |
//! |---|---|
//! | `memory_devices` | what the devices of major 1 do |
//! | `messages` | the kernel log as a device |
//! | [`nodes`] | which nodes there are: drivers add theirs at start-up |
//! | [`appearing`] | nodes of devices that come and go |
//! | `file_system` | `devtmpfs`: one tree for all its mounts, with a node for each entry of that list |
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod appearing;
mod file_system;
mod memory_devices;
mod messages;
pub mod nodes;

pub use file_system::DeviceTree;
pub use memory_devices::RandomSource;
pub use messages::{administers_log, is_log_restricted, poll_message, restrict_log, wait_for_message};

/// Registers the memory devices, their nodes and the file system type. Once, at start-up.
pub fn register(random: RandomSource) {
    memory_devices::register(random);
    messages::listen();
    vfs::superblock::register_file_system(&file_system::DEVICE_TREE);
    file_system::follow_disks();
}
