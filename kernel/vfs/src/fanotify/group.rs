//! A group: what marks and askers refer to.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use sched::WaitQueue;
use sync::SpinLock;

use super::event::{About, Event};
use super::mask::{FanMask, GroupFlags};
use super::question::Question;
use crate::flags::OpenFlags;
use crate::poll::{PollEvents, PollList};
use crate::watch_account::{WatchAccount, fanotify_settings};
use crate::{Error, Result, allocation, wait};

/// Events behind the last one that an event is compared with before it is queued.
const MERGE_STEPS: usize = 128;

/// Under the group's lock.
pub(super) struct Queue {
    events: VecDeque<Box<Event>>,
    /// The event that says that others were lost, while it does not wait itself.
    overflow: Option<Box<Event>>,
    /// Questions that a reader has, by the descriptors that he got with them.
    handed_out: Vec<(i32, Arc<Question>)>,
    is_closed: bool,
}

/// A group.
pub(super) struct Group {
    pub(super) flags: GroupFlags,
    /// How descriptors in events are opened.
    pub(super) file_flags: OpenFlags,
    pub(super) account: Arc<WatchAccount>,
    queue: SpinLock<Queue>,
    /// Events that wait, for those who look without the lock.
    number: AtomicUsize,
    pub(super) readers: WaitQueue,
    pub(super) pollers: PollList,
    answered: WaitQueue,
}

impl Group {
    pub(super) fn new(
        flags: GroupFlags,
        file_flags: OpenFlags,
        account: Arc<WatchAccount>,
    ) -> Result<Arc<Self>> {
        let overflow =
            Event { mask: FanMask::OVERFLOW, pid: 0, process: None, about: About::Nothing, question: None };
        let overflow = Some(allocation::boxed(overflow)?);
        let queue = Queue { events: VecDeque::new(), overflow, handed_out: Vec::new(), is_closed: false };
        allocation::arc(Self {
            flags,
            file_flags,
            account,
            queue: SpinLock::named("events for a group", queue),
            number: AtomicUsize::new(0),
            readers: WaitQueue::new(),
            pollers: PollList::new(),
            answered: WaitQueue::new(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.number.load(Ordering::Acquire) == 0
    }

    pub(super) fn waiting(&self) -> usize {
        self.number.load(Ordering::Acquire)
    }

    /// Queues an event, unless it is lost: then a question is allowed.
    pub(super) fn push(&self, event: Box<Event>) {
        let lost = {
            let mut queue = self.queue.lock();
            let merged =
                queue.events.iter_mut().rev().take(MERGE_STEPS).find(|known| known.merges_with(&event));
            if let Some(known) = merged {
                known.mask |= event.mask;
                return;
            }
            let limit = fanotify_settings::EVENTS_MAX.load(Ordering::Relaxed) as usize;
            let is_full = !self.flags.contains(GroupFlags::UNLIMITED_QUEUE) && queue.events.len() >= limit;
            // With room for the event that says that this one is lost.
            let has_room = queue.events.try_reserve(2).is_ok();
            if queue.is_closed {
                Some(event)
            } else if is_full || !has_room {
                if queue.events.len() < queue.events.capacity()
                    && let Some(overflow) = queue.overflow.take()
                {
                    queue.events.push_back(overflow);
                }
                Some(event)
            } else {
                queue.events.push_back(event);
                None
            }
            .inspect(|lost| {
                if let Some(question) = &lost.question {
                    question.allow();
                }
            })
        };
        self.count();
        self.readers.wake_one();
        self.pollers.notify(PollEvents::INPUT);
        drop(lost);
    }

    /// An event could not be made: the reader hears that some were lost.
    pub(super) fn lose(&self) {
        {
            let mut queue = self.queue.lock();
            if queue.events.len() == queue.events.capacity() || queue.is_closed {
                return;
            }
            let Some(overflow) = queue.overflow.take() else { return };
            queue.events.push_back(overflow);
        }
        self.count();
        self.readers.wake_one();
        self.pollers.notify(PollEvents::INPUT);
    }

    fn count(&self) {
        let queue = self.queue.lock();
        self.number.store(queue.events.len(), Ordering::Release);
    }

    /// Takes the first event if it takes no more bytes than there is room for.
    ///
    /// # Errors
    /// `EINVAL` if it takes more.
    pub(super) fn pop(&self, fits: impl FnOnce(&Event) -> bool) -> Result<Option<Box<Event>>> {
        let mut queue = self.queue.lock();
        match queue.events.front() {
            None => return Ok(None),
            Some(event) if !fits(event) => return Err(Error::Invalid),
            Some(_) => {}
        }
        let event = queue.events.pop_front();
        self.number.store(queue.events.len(), Ordering::Release);
        Ok(event)
    }

    /// What is no longer needed: the event of lost ones is kept for the next time.
    pub(super) fn put_back(&self, event: Box<Event>) {
        if event.mask.contains(FanMask::OVERFLOW) {
            self.queue.lock().overflow = Some(event);
        }
    }

    /// A reader is about to get a question with a descriptor.
    pub(super) fn hand_out(&self, descriptor: i32, question: &Arc<Question>) -> Result<()> {
        let mut queue = allocation::lock_with_room(|| self.queue.lock(), 1, |queue| &mut queue.handed_out)?;
        queue.handed_out.push((descriptor, question.clone()));
        Ok(())
    }

    /// He did not get it, or has answered: takes it back.
    pub(super) fn take_back(&self, descriptor: i32) -> Option<Arc<Question>> {
        let mut queue = self.queue.lock();
        let index = queue.handed_out.iter().position(|(known, _)| *known == descriptor)?;
        Some(queue.handed_out.swap_remove(index).1)
    }

    pub(super) fn wake_askers(&self) {
        self.answered.wake_all();
    }

    /// Waits for an answer; only the asker's death ends that earlier.
    pub(super) fn wait_for_answer(&self, question: &Arc<Question>) -> Result<()> {
        let waited = wait::killable(&self.answered, || question.answer().is_some());
        match question.answer() {
            Some(answer) => answer,
            None => {
                self.forget(question);
                waited
            }
        }
    }

    /// Nobody waits for the answer any more.
    fn forget(&self, question: &Arc<Question>) {
        let is_it = |known: &Arc<Question>| Arc::ptr_eq(known, question);
        let forgotten = {
            let mut queue = self.queue.lock();
            let index = queue.events.iter().position(|event| event.question.as_ref().is_some_and(is_it));
            index.and_then(|index| queue.events.remove(index))
        };
        self.count();
        drop(forgotten);
    }

    /// The descriptor is closed: all is allowed, and nothing queued any more.
    pub(super) fn close(&self) {
        let (events, handed_out) = {
            let mut queue = self.queue.lock();
            queue.is_closed = true;
            (core::mem::take(&mut queue.events), core::mem::take(&mut queue.handed_out))
        };
        self.count();
        let waiting = events.iter().filter_map(|event| event.question.as_ref());
        waiting.chain(handed_out.iter().map(|(_, question)| question)).for_each(|question| question.allow());
        self.wake_askers();
    }
}
