//! Advisory locks on files: record locks of processes (POSIX) and of open files (OFD), and whole-file locks (`flock`).

mod account;
mod chunks;
mod deadlock;
mod flock;
mod index;
mod record;
mod state;

pub use account::LockAccount;
pub use flock::FlockKind;
pub use record::{LockKind, LockOwner, RecordDescription, RecordRequest};
pub use state::FileLocks;
