//! Requests that wait for the device, and who hands them to its driver.
//!
//! # Another scheduler
//! A lane's scheduler can be replaced at any moment. The new one gets what comes from then on; what the old one has goes first, in its order, and
//! when that is all gone so is the old one. So nothing has to be moved or waited for, no memory is needed for what waits, and a device that does
//! not answer holds up no change. What the driver has is no business of either: a scheduler knows only what waits.
//!
//! A lane that is *closed* takes nothing any more; what it has goes to the driver as before. Lane 0 is never closed.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use sync::SpinLock;

use crate::one_runner::OneRunner;
use crate::request::Request;
use crate::scheduler::Scheduler;
use crate::{Error, Result};

pub(crate) struct Lane {
    pub(crate) waiting: SpinLock<Waiting>,
    /// Who hands requests of this lane to the driver.
    pub(crate) runner: OneRunner,
}

pub(crate) struct Waiting {
    /// A request that the device had no room for. One runs the lane, so there is one at most.
    returned: Option<Request>,
    /// Requests that the driver had begun and could not carry out: they go before others.
    again: VecDeque<Request>,
    /// Former schedulers that still have requests, the oldest first.
    former: VecDeque<Box<dyn Scheduler>>,
    pub(crate) scheduler: Box<dyn Scheduler>,
    pub(crate) closed: bool,
}

impl Lane {
    pub(crate) fn new(scheduler: Box<dyn Scheduler>) -> Self {
        let (again, former) = (VecDeque::new(), VecDeque::new());
        let waiting = Waiting { returned: None, again, former, scheduler, closed: false };
        Self { waiting: SpinLock::new(waiting), runner: OneRunner::new() }
    }

    /// Gives what comes from now on to this scheduler.
    ///
    /// # Errors
    /// No memory; then nothing has changed.
    pub(crate) fn replace(&self, scheduler: Box<dyn Scheduler>) -> Result<()> {
        let mut waiting = self.waiting.lock();
        waiting.former.try_reserve(1).map_err(|_| Error::OutOfMemory)?;
        let former = core::mem::replace(&mut waiting.scheduler, scheduler);
        waiting.former.push_back(former);
        Ok(())
    }

    /// The next request.
    pub(crate) fn take(&self, now_ns: u64) -> Option<Request> {
        self.waiting.lock().take(now_ns)
    }

    /// The device had no room for the request that was taken last.
    pub(crate) fn take_back(&self, request: Request) {
        let before = self.waiting.lock().returned.replace(request);
        debug_assert!(before.is_none(), "who runs a lane gives back what it took before it takes another");
    }

    /// The device was given the request, and has to be given it again.
    ///
    /// # Errors
    /// The request, when there is no memory for the list.
    pub(crate) fn put_back(&self, request: Request) -> core::result::Result<(), Request> {
        let mut waiting = self.waiting.lock();
        if waiting.again.try_reserve(1).is_err() {
            return Err(request);
        }
        waiting.again.push_back(request);
        Ok(())
    }
}

impl Waiting {
    fn take(&mut self, now_ns: u64) -> Option<Request> {
        if let Some(request) = self.returned.take().or_else(|| self.again.pop_front()) {
            return Some(request);
        }
        while let Some(former) = self.former.front_mut() {
            if let Some(request) = former.next(now_ns) {
                return Some(request);
            }
            self.former.pop_front();
        }
        self.scheduler.next(now_ns)
    }
}
