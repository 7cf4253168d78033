//! Advisory locks on files: record locks of processes (POSIX) and of open files (OFD), whole-file locks (`flock`), and leases.

mod account;
mod chunks;
mod deadlock;
mod describe;
mod flock;
mod index;
pub mod lease;
mod record;
mod registry;
mod state;

pub use account::LockAccount;
pub use describe::{LockDescription, LockSort};
pub use flock::{FlockHolder, FlockKind};
pub use record::{LockKind, LockOwner, RecordDescription, RecordRequest};
pub use registry::for_each_file;
pub use state::FileLocks;
