//! System V message queues (msgget(2), msgop(2), msgctl(2)).
//!
//! - `selection`: which message a receiver takes;
//! - `queue`: a queue, who waits at it, and when it goes;
//! - `transfer`: sending and receiving;
//! - `calls`: the system calls;
//! - `limits`: `/proc/sys/kernel/msg*`;
//! - `report`: `/proc/sysvipc/msg`.

mod calls;
pub mod limits;
pub(super) mod queue;
mod report;
mod selection;
mod transfer;

pub use calls::{msgctl, msgget, msgrcv, msgsnd};
pub use report::write_report;
