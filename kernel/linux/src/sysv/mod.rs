//! System V interprocess communication: objects that programs find by keys and use by ids.
//!
//! An object lives until somebody removes it, whoever made it and whether or not a process has it in use. What all kinds have in common is
//! here: ids and keys (`registry`), owners and modes (`permissions`), threads that wait (`waiting`). They are in name spaces (`space`).
//!
//! * `shm`: shared memory
//! * `message`: queues of messages
//! * `semaphore`: sets of semaphores

pub mod message;
pub mod permissions;
pub mod registry;
pub mod semaphore;
pub mod shm;
pub mod space;
pub(crate) mod waiting;

use crate::abi::NANOSECONDS;
use crate::process::table::Pid;

/// Seconds since 1970, for what is noted with an object.
fn now() -> u64 {
    crate::time::clock::realtime_ns() / NANOSECONDS
}

/// The calling process, for what is noted with an object.
fn caller() -> Pid {
    crate::terminal::calling_thread().map_or(0, |thread| thread.process().pid())
}
