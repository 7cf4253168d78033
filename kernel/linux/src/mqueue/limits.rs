//! How many queues there may be, and how large: `/proc/sys/fs/mqueue`, and RLIMIT_MSGQUEUE.

use core::sync::atomic::{AtomicU64, Ordering};

use vfs::Capabilities;

use crate::credentials::account::QueueBytes;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::process::limits::Resource;
use crate::process::process::Process;

/// What the settings can be set to, least and most.
pub const QUEUES_RANGE: (u64, u64) = (0, i32::MAX as u64);
/// Likewise for messages in a queue, and the most that whoever has CAP_SYS_RESOURCE may ask for.
pub const MESSAGES_RANGE: (u64, u64) = (1, 65_536);
/// Likewise for bytes of a message.
pub const BYTES_RANGE: (u64, u64) = (128, 16 << 20);

/// What Linux counts for a message that a queue has room for, beside its bytes.
const MESSAGE_COST: u64 = 48;
const PRIORITY_COST: u64 = 48;
const PRIORITIES: u64 = 32_768;

/// Those of a name space. Relaxed, all of them: a change counts for queues made later.
pub struct Limits {
    /// Queues.
    pub queues: AtomicU64,
    /// Messages in a queue.
    pub messages: AtomicU64,
    /// Bytes of a message.
    pub bytes: AtomicU64,
    /// Messages in a queue that is made without a wish.
    pub usual_messages: AtomicU64,
    /// Bytes of a message there.
    pub usual_bytes: AtomicU64,
}

impl Limits {
    pub(crate) const fn new() -> Self {
        Self {
            queues: AtomicU64::new(256),
            messages: AtomicU64::new(10),
            bytes: AtomicU64::new(8192),
            usual_messages: AtomicU64::new(10),
            usual_bytes: AtomicU64::new(8192),
        }
    }
}

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Size {
    /// Messages.
    pub(super) messages: u64,
    /// Bytes of each.
    pub(super) bytes: u64,
}

impl Size {
    /// That of a new queue: what is wished, if the caller may have that.
    ///
    /// # Errors
    /// EINVAL.
    pub(super) fn of_new(
        limits: &Limits,
        credentials: &Credentials,
        wished: Option<(i64, i64)>,
    ) -> Result<Self, Errno> {
        let limit = |limit: &AtomicU64| limit.load(Ordering::Relaxed);
        let Some((messages, bytes)) = wished else {
            return Ok(Self {
                messages: limit(&limits.usual_messages).min(limit(&limits.messages)),
                bytes: limit(&limits.usual_bytes).min(limit(&limits.bytes)),
            });
        };
        let (most_messages, most_bytes) = match credentials.has(Capabilities::SYS_RESOURCE) {
            true => (MESSAGES_RANGE.1, BYTES_RANGE.1),
            false => (limit(&limits.messages), limit(&limits.bytes)),
        };
        let within =
            |value: i64, most: u64| u64::try_from(value).ok().filter(|value| (1..=most).contains(value));
        let messages = within(messages, most_messages).ok_or(Errno::EINVAL)?;
        let bytes = within(bytes, most_bytes).ok_or(Errno::EINVAL)?;
        Ok(Self { messages, bytes })
    }

    /// Counts a queue of the size for the caller's user.
    ///
    /// # Errors
    /// EMFILE.
    pub(super) fn claim(self, process: &Process, credentials: &Credentials) -> Result<QueueBytes, Errno> {
        let bytes =
            self.messages * (MESSAGE_COST + self.bytes) + self.messages.min(PRIORITIES) * PRIORITY_COST;
        let limit = process.limit(Resource::MessageQueue);
        QueueBytes::claim(&credentials.account, bytes, limit).ok_or(Errno::EMFILE)
    }
}
