//! Sockets: local ones, and netlink for events of devices and questions about links.

mod ancillary;
pub mod create;
mod filter;
mod local;
pub mod message;
mod netlink;
pub mod options;
pub(crate) mod submitted;
