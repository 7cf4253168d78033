//! 9P2000.L: files that a server outside of the machine has.
//!
//! | module | what it decides |
//! |---|---|
//! | [`wire`] | messages as bytes |
//! | [`transport`] | what carries messages, by the name that `mount` gives |
//! | [`stream`] | messages over files that a program has opened |
//! | [`client`] | requests under way: tags, waiting, giving up |
//! | `fid` | the numbers by which the server knows files |
//! | `options` | what `mount -o` says |
//! | [`mounted`] | the file system |
//!
//! # What is believed of a server
//! What it says of its files, and nothing else: see [`wire::reply`]. A reply that is malformed, of another kind than its request, longer than it may be or about
//! something else fails that request with `EIO`. Nothing is allocated by a number that a server sent. A server that does not answer keeps waiting who asked it,
//! until that one is killed; one that is gone fails all with `EIO`.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod client;
mod fid;
pub mod mounted;
mod options;
pub mod stream;
pub mod transport;
pub mod wire;

pub use client::set_killed;
