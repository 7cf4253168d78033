//! What an I/O scheduler implements.

use crate::driver::Limits;
use crate::request::Request;
use crate::{Bio, Result};

/// Holds requests until the device has room for them. Called under the queue's lock; never sleeps.
pub trait Scheduler: Send {
    /// The name under `/sys/block/DEVICE/queue/scheduler`.
    fn name(&self) -> &'static str;

    /// Makes room for one more request, before the queue's lock is taken away from allocation: after this, [`insert`](Self::insert) of
    /// one request needs no memory.
    ///
    /// # Errors
    /// No memory.
    fn reserve(&mut self) -> Result<()>;

    /// Takes a request, perhaps into one that it already has: then true.
    fn insert(&mut self, request: Request, limits: &Limits) -> bool;

    /// A request that the device had no room for comes back, to be the next.
    fn put_back(&mut self, request: Request);

    /// The next request.
    fn next(&mut self, now_ns: u64) -> Option<Request>;

    /// Whether there is none.
    fn is_empty(&self) -> bool;

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
