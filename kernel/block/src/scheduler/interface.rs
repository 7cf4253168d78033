//! What an I/O scheduler implements.

use crate::Result;
use crate::driver::Limits;
use crate::request::Request;

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

    /// The next request. None: there is none, or it is not its turn before one that the driver has [ends](Self::completed). When `now_ns` is
    /// `u64::MAX` the device is gone: nothing is held back.
    fn next(&mut self, now_ns: u64) -> Option<Request>;

    /// Whether there is none.
    fn is_empty(&self) -> bool;

    /// What root may change.
    fn settings(&mut self) -> &mut [Setting] {
        &mut []
    }

    /// Whether it wants to hear of the ends of requests; always the same.
    fn wants_completions(&self) -> bool {
        false
    }

    /// A request that came from [`next`](Self::next) has ended, however it did; called once for each, if that is wanted. Whose it was and how
    /// much each got, [`Request::shares`] says. The queue runs again afterwards, so `next` may have held something back until now.
    fn completed(&mut self, request: &Request, now_ns: u64) {
        let _ = (request, now_ns);
    }
}
