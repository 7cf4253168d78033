//! System V shared memory (shmget(2), shmop(2), shmctl(2)).
//!
//! - `segment`: a segment, its attachments, and when it goes;
//! - `calls`: the system calls;
//! - `limits`: `/proc/sys/kernel/shm*`;
//! - `report`: `/proc/sysvipc/shm`.

mod calls;
pub mod limits;
mod report;
pub(super) mod segment;

pub use calls::{shmat, shmctl, shmdt, shmget};
pub use report::write_report;
