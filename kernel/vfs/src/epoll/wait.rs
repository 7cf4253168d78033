//! `epoll_wait`: reporting what is ready.

use alloc::sync::Arc;

use super::Epoll;
use super::item::{EpollFlags, EpollItem};
use crate::poll::PollEvents;
use crate::{Error, Result};

impl Epoll {
    /// Waits until something is ready, the deadline (nanoseconds of the monotonic clock; `Some(0)`: do not wait) has
    /// passed, or a signal arrives. `report` gets at most `maximum` events and their data; an event that it
    /// refuses stays queued. Returns the number of events reported.
    ///
    /// # Errors
    /// [`Error::Interrupted`]; the error of `report` when it refuses the first event.
    pub fn wait(
        &self,
        maximum: usize,
        deadline_ns: Option<u64>,
        mut report: impl FnMut(PollEvents, u64) -> Result<()>,
    ) -> Result<usize> {
        loop {
            let count = self.collect(maximum, &mut report)?;
            if count > 0 || deadline_ns == Some(0) {
                return Ok(count);
            }
            match crate::wait::until(&self.waiters, deadline_ns, || self.has_ready()) {
                Ok(()) => {}
                Err(Error::TimedOut) => return self.collect(maximum, &mut report),
                Err(error) => return Err(error),
            }
        }
    }

    fn collect(&self, maximum: usize, report: &mut impl FnMut(PollEvents, u64) -> Result<()>) -> Result<usize> {
        let mut count = 0;
        // Items queued again while this runs are for the next call.
        let mut candidates = self.ready.lock().len();
        while count < maximum && candidates > 0 {
            candidates -= 1;
            let Some(item) = self.take_ready() else { break };
            let ready = Self::ask(&item);
            if ready.is_empty() {
                continue;
            }
            let (flags, data) = item.interest();
            if let Err(error) = report(ready, data) {
                item.queue();
                return if count > 0 { Ok(count) } else { Err(error) };
            }
            count += 1;
            if flags.contains(EpollFlags::ONE_SHOT) {
                item.disable();
            } else if !flags.contains(EpollFlags::EDGE) {
                item.queue();
            }
        }
        Ok(count)
    }

    fn take_ready(&self) -> Option<Arc<EpollItem>> {
        let item = self.ready.lock().pop_front()?;
        item.dequeued();
        Some(item)
    }

    /// What is ready of an item now, as far as it is wanted.
    fn ask(item: &EpollItem) -> PollEvents {
        match item.file() {
            Some(file) => file.poll(None) & item.wanted(),
            None => PollEvents::empty(),
        }
    }

    /// Whether a wait would report something: drops hints that have become false.
    pub(super) fn any_ready_now(&self) -> bool {
        let mut candidates = self.ready.lock().len();
        while candidates > 0 {
            candidates -= 1;
            let Some(item) = self.take_ready() else { return false };
            if !Self::ask(&item).is_empty() {
                item.queue();
                return true;
            }
        }
        false
    }
}
