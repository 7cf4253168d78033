//! Sockets: local ones, and netlink for events of devices.

mod ancillary;
pub mod create;
mod local;
pub mod message;
mod netlink;
pub mod options;
