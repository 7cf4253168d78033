//! POSIX message queues (mq_overview(7)): objects with names and descriptors, each with so many messages of so many bytes at most.
//!
//! - `queue`: messages in the order of their priorities, and who waits;
//! - `notice`: a process that is told of a message in an empty queue;
//! - `names`: the queues of a name space by name, and their inodes;
//! - `file_system`: the directory that shows them;
//! - `file`: an open queue;
//! - `calls`: the system calls;
//! - `limits`: `/proc/sys/fs/mqueue`, and what queues count for their user.

mod calls;
mod file;
pub(crate) mod file_system;
pub mod limits;
mod names;
mod notice;
mod queue;

pub use calls::{mq_getsetattr, mq_notify, mq_open, mq_timedreceive, mq_timedsend, mq_unlink};
pub use file_system::MQUEUE;
