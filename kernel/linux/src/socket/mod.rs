//! Sockets: so far connected pairs of local ones.

mod ancillary;
pub mod create;
pub mod message;
pub mod options;
