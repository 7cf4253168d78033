//! Sockets.
//!
//! So far [`unix`]: local sockets; and [`netlink`]: events of devices, and questions about links. [`bpf`] has filters of both. A socket is an open file whose operations are one of this
//! crate's types; the personality finds it with [`vfs::OpenFile::object`] and calls what `read` and `write` can't say.
#![cfg_attr(target_os = "none", no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod bpf;
pub mod link;
pub mod netlink;
pub mod unix;
