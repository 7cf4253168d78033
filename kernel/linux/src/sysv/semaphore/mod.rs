//! System V semaphores (semget(2), semop(2), semctl(2)).
//!
//! - `operation`: operations on several semaphores, all at once or none;
//! - `set`: a set, who waits at it, and when it goes;
//! - `undo`: what is taken back when a process ends (SEM_UNDO);
//! - `calls`: semget, semop, semtimedop; `control`: semctl;
//! - `limits`: `/proc/sys/kernel/sem`;
//! - `report`: `/proc/sysvipc/sem`.

mod calls;
mod control;
pub mod limits;
mod operation;
mod report;
pub(super) mod set;
pub mod undo;

pub use calls::{semget, semop, semtimedop};
pub use control::semctl;
pub use report::write_report;
