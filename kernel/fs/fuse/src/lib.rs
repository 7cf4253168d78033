//! File systems that programs make (FUSE).
//!
//! | module | what it decides |
//! |---|---|
//! | [`wire`] | messages as bytes |
//! | [`connection`] | requests under way: order, waiting, giving up, the end |
//! | [`device`] | `/dev/fuse`, where the server reads requests and writes replies |
//! | `options` | what `mount -o` says |
//! | [`mounted`] | the file system |
//! | [`control`] | `fusectl`: connections as directories |
//!
//! # Who reaches the server
//! Its mounter, by all of his ids, unless the mount says `allow_other`. Everybody else is refused with `EACCES` before anything is sent: a server that never
//! answers keeps nobody else waiting (specs/private-namespaces.md rule 16).
//!
//! # What is believed of a server
//! What it says of its files, and nothing else. A reply of another length than it should have, with a kind of file that there is none of, or a size that no file
//! has, fails its request with `EIO`. Nothing is allocated by a number that a server sent. A server that does not answer keeps who asked it until that one is
//! killed; one that has ended fails all with `ENOTCONN`.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod connection;
pub mod control;
pub mod device;
pub mod mounted;
mod options;
pub mod wire;

/// Registers the device and the types of file systems. Once, at start-up.
pub fn register() {
    device::register();
    mounted::register();
    control::register();
}
