//! How much there may be in queues: `/proc/sys/kernel/msgmax`, `msgmnb`, `msgmni`.

use core::sync::atomic::AtomicU64;

use crate::sysv::registry::PLACES_MAX;

const BYTES_DEFAULT: u64 = 8192;
const CAPACITY_DEFAULT: u64 = 16384;
const QUEUES_DEFAULT: u64 = 32000;

/// What the limit on queues can be set to at most.
pub const QUEUES_MOST: u64 = PLACES_MAX as u64;
/// What the others can be set to at most.
pub const BYTES_MOST: u64 = i32::MAX as u64;

/// Those of a name space. Relaxed, all of them: a change counts for messages and queues made later.
pub struct Limits {
    /// Bytes of a message.
    pub bytes_max: AtomicU64,
    /// Bytes in a new queue.
    pub capacity: AtomicU64,
    /// Queues.
    pub queues_max: AtomicU64,
    /// What is in all queues: reported only.
    pub(super) messages: AtomicU64,
    pub(super) bytes: AtomicU64,
}

impl Limits {
    pub(in crate::sysv) const fn new() -> Self {
        Self {
            bytes_max: AtomicU64::new(BYTES_DEFAULT),
            capacity: AtomicU64::new(CAPACITY_DEFAULT),
            queues_max: AtomicU64::new(QUEUES_DEFAULT),
            messages: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        }
    }
}
