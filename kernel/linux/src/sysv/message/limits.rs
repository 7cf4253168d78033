//! How much there may be in queues: `/proc/sys/kernel/msgmax`, `msgmnb`, `msgmni`.

use core::sync::atomic::AtomicU64;

use crate::sysv::registry::PLACES_MAX;

const BYTES_DEFAULT: u64 = 8192;
const CAPACITY_DEFAULT: u64 = 16384;
const QUEUES_DEFAULT: u64 = 32000;

// Relaxed, all of them: a change counts for messages and queues made later.
/// Bytes of a message.
pub static BYTES_MAX: AtomicU64 = AtomicU64::new(BYTES_DEFAULT);
/// Bytes in a new queue.
pub static CAPACITY: AtomicU64 = AtomicU64::new(CAPACITY_DEFAULT);
/// Queues.
pub static QUEUES_MAX: AtomicU64 = AtomicU64::new(QUEUES_DEFAULT);

/// What [`QUEUES_MAX`] can be set to at most.
pub const QUEUES_MOST: u64 = PLACES_MAX as u64;
/// What the others can be set to at most.
pub const BYTES_MOST: u64 = i32::MAX as u64;
