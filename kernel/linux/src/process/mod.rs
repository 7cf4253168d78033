//! Processes, their threads, groups and sessions, and the table that finds them by number.

pub mod family;
pub mod group;
pub mod init;
pub mod limits;
pub mod process;
pub mod table;
pub mod thread;
