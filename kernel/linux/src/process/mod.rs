//! Processes, their threads, groups and sessions, and the table that finds them by number.

pub mod exercise;
pub mod family;
pub mod group;
pub mod init;
pub mod limits;
mod numbers;
pub(crate) mod pid_space;
#[allow(clippy::module_inception, reason = "the folder is about processes and all that surrounds one")]
pub mod process;
mod ranges;
pub mod table;
pub mod thread;
pub(crate) mod transfers;
