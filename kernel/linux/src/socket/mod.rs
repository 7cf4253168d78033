//! Sockets: so far connected pairs of local ones, and netlink for events of devices.

mod ancillary;
pub mod create;
pub mod message;
mod netlink;
pub mod options;
