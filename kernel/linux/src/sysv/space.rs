//! A name space of System V objects and POSIX message queues (ipc_namespaces(7)): its objects of each kind, and its limits.
//!
//! When nobody is in it any more, its objects go; a segment that somebody has attached stays until it is detached.

use super::message::{self, queue::Queue};
use super::registry::Registry;
use super::semaphore::{self, set::Set};
use super::shm::{self, segment::Segment};
use vfs::UserSpace;
use vfs::user_space::Owner;

use crate::mqueue;
use crate::name_space::First;

/// The number of the first one.
const FIRST: u64 = 4_026_531_839;

/// A name space.
pub struct IpcSpace {
    number: u64,
    owner: Owner,
    pub(super) segments: Registry<Segment>,
    pub(crate) memory_limits: shm::limits::Limits,
    pub(super) queues: Registry<Queue>,
    pub(crate) message_limits: message::limits::Limits,
    pub(super) sets: Registry<Set>,
    pub(crate) semaphore_limits: semaphore::limits::Limits,
    pub(crate) queues_by_name: mqueue::file_system::QueueTree,
    pub(crate) queue_limits: mqueue::limits::Limits,
}

impl First for IpcSpace {
    fn first() -> &'static Self {
        static SPACE: IpcSpace = IpcSpace::new(FIRST, Owner::FIRST, (0, 0));
        &SPACE
    }
}

impl IpcSpace {
    /// An empty one with the usual limits. `maker`: the user and the group that make it.
    pub(crate) const fn new(number: u64, owner: Owner, maker: (u32, u32)) -> Self {
        Self {
            number,
            owner,
            segments: Registry::new(),
            memory_limits: shm::limits::Limits::new(),
            queues: Registry::new(),
            message_limits: message::limits::Limits::new(),
            sets: Registry::new(),
            semaphore_limits: semaphore::limits::Limits::new(),
            queues_by_name: mqueue::file_system::QueueTree::new(maker),
            queue_limits: mqueue::limits::Limits::new(),
        }
    }

    /// The name space of users that it belongs to.
    pub(crate) fn owner(&self) -> &UserSpace {
        self.owner.space()
    }

    /// Its number.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}
