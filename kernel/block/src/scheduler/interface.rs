//! What an I/O scheduler implements.

use crate::driver::Limits;
use crate::request::Request;
use crate::{Bio, Result};

/// A number that root may change, in `/sys/block/DEVICE/queue/iosched`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The name of its file.
    pub name: &'static str,
    /// What it is now.
    pub value: u32,
    /// What it may be at most.
    pub max: u32,
}

/// Holds requests until the device has room for them. Called under the queue's lock; never sleeps.
pub trait Scheduler: Send {
    /// The name under `/sys/block/DEVICE/queue/scheduler`.
    fn name(&self) -> &'static str;

    /// Makes room for one more request: after this, [`insert`](Self::insert) of one request needs no memory.
    ///
    /// # Errors
    /// No memory.
    fn reserve(&mut self) -> Result<()>;

    /// Takes a request, perhaps into one that it already has: then true.
    fn insert(&mut self, request: Request, limits: &Limits) -> bool;

    /// The next request.
    fn next(&mut self, now_ns: u64) -> Option<Request>;

    /// Whether there is none.
    fn is_empty(&self) -> bool;

    /// What root may change.
    fn settings(&mut self) -> &mut [Setting] {
        &mut []
    }

    /// A request has ended: schedulers that measure service learn here.
    fn completed(&mut self, owner: u64, sectors: u64, now_ns: u64) {
        let _ = (owner, sectors, now_ns);
    }

    /// What a bio's submitter is accounted by; schedulers that share out a device by task or group say whom.
    fn owner(&self, bio: &Bio) -> u64 {
        let _ = bio;
        0
    }
}
