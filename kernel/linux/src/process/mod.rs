//! Processes, their threads, groups and sessions, and the table that finds them by number.

pub mod family;
pub mod group;
pub mod init;
pub mod limits;
#[allow(clippy::module_inception, reason = "the folder is about processes and all that surrounds one")]
pub mod process;
pub mod table;
pub mod thread;
pub(crate) mod transfers;
