//! Requests that wait for the device, and who hands them to its driver.
//!
//! # Another scheduler
//! A lane's scheduler can be replaced at any moment. The new one gets what comes from then on; what the old one has goes first, in its order, and
//! when that is all gone so is the old one. So nothing has to be moved or waited for, no memory is needed for what waits, and a device that does
//! not answer holds up no change. Who wants to hear of the ends of requests has a number, which goes with those that it gives to the driver: so each
//! hears of its own as long as it is there, and never of another's.
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
    /// Former schedulers that still have requests, the oldest first, with their numbers.
    former: VecDeque<(u64, Box<dyn Scheduler>)>,
    pub(crate) scheduler: Box<dyn Scheduler>,
    /// The scheduler's; each has one more than the one before.
    number: u64,
    pub(crate) closed: bool,
}

impl Lane {
    pub(crate) fn new(scheduler: Box<dyn Scheduler>) -> Self {
        let (again, former) = (VecDeque::new(), VecDeque::new());
        let waiting = Waiting { returned: None, again, former, scheduler, number: 1, closed: false };
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
        let number = waiting.number;
        waiting.former.push_back((number, former));
        waiting.number += 1;
        Ok(())
    }

    /// A request has ended: the scheduler that gave it, if it is still there, hears of it.
    pub(crate) fn completed(&self, request: &Request, now_ns: u64) {
        let mut waiting = self.waiting.lock();
        let number = request.given_by;
        if number == waiting.number {
            waiting.scheduler.completed(request, now_ns);
        } else if let Some((_, former)) = waiting.former.iter_mut().find(|former| former.0 == number) {
            former.completed(request, now_ns);
        }
    }

    /// The next request; when `now_ns` is `u64::MAX`, any.
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
        while let Some((number, former)) = self.former.front_mut() {
            let next = next_of(&mut **former, *number, now_ns);
            if next.is_some() || !former.is_empty() {
                return next;
            }
            self.former.pop_front();
        }
        next_of(&mut *self.scheduler, self.number, now_ns)
    }
}

/// The next request of a scheduler, marked if that wants to hear of its end.
fn next_of(scheduler: &mut dyn Scheduler, number: u64, now_ns: u64) -> Option<Request> {
    let mut request = scheduler.next(now_ns)?;
    request.given_by = if scheduler.wants_completions() { number } else { 0 };
    Some(request)
}
