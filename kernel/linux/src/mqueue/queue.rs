//! A queue: messages in the order of their priorities, those of one priority in the order in which they came.
//!
//! A message that somebody waits for goes to whoever has waited longest, past the queue; and when a message is taken from a full queue, that of the sender
//! that has waited longest takes its place. So nobody who comes later is served earlier, and who is woken has what he waited for.

use alloc::collections::{BinaryHeap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;

use sched::WaitError;
use vfs::{PollEvents, PollList};

use super::limits::Size;
use super::notice::{Notice, Sender};
use crate::credentials::account::QueueBytes;
use crate::errno::Errno;
use crate::process::process::Process;
use crate::sysv::waiting::Waiting;

/// A message.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) priority: u32,
    pub(super) text: Vec<u8>,
}

/// A message in a queue, the greater the earlier it is taken.
struct Queued {
    message: Message,
    number: u64,
}

impl Ord for Queued {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |queued: &Self| (queued.message.priority, core::cmp::Reverse(queued.number));
        rank(self).cmp(&rank(other))
    }
}

impl PartialOrd for Queued {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Queued {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Queued {}

struct WaitingSender {
    waiting: Arc<Waiting<()>>,
    message: Message,
}

/// What is in a queue, and who waits.
#[derive(Default)]
struct State {
    messages: BinaryHeap<Queued>,
    bytes: u64,
    /// Counts messages.
    next: u64,
    receivers: VecDeque<Arc<Waiting<Message>>>,
    senders: VecDeque<WaitingSender>,
    notice: Option<Notice>,
}

impl State {
    /// Puts a message in; room was reserved.
    fn put(&mut self, message: Message) {
        self.bytes += message.text.len() as u64;
        self.messages.push(Queued { message, number: self.next });
        self.next += 1;
    }

    fn take(&mut self) -> Option<Message> {
        let message = self.messages.pop()?.message;
        self.bytes -= message.text.len() as u64;
        Some(message)
    }
}

/// How long to wait.
#[derive(Clone, Copy)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Until then, in nanoseconds since boot; or for ever.
    Until(Option<u64>),
}

/// A queue.
pub(super) struct Queue {
    pub(super) size: Size,
    state: sched::Mutex<State>,
    pub(super) pollers: PollList,
    _counted: QueueBytes,
}

/// What `read` of a queue's file tells.
pub(super) struct Status {
    pub(super) messages: usize,
    pub(super) bytes: u64,
    /// `sigev_notify`, the signal, and who is told.
    pub(super) notice: Option<(i32, u32, u32)>,
}

fn waiting<T>() -> Result<Arc<Waiting<T>>, Errno> {
    memory::fallible::try_arc(Waiting::new()).map_err(|_| Errno::ENOMEM)
}

fn errno_of(error: WaitError) -> Errno {
    match error {
        WaitError::Interrupted => Errno::ERESTARTSYS,
        WaitError::TimedOut => Errno::ETIMEDOUT,
    }
}

impl Queue {
    pub(super) fn new(size: Size, counted: QueueBytes) -> Result<Arc<Self>, Errno> {
        let state = sched::Mutex::named("queue of POSIX messages", State::default());
        let queue = Self { size, state, pollers: PollList::new(), _counted: counted };
        memory::fallible::try_arc(queue).map_err(|_| Errno::ENOMEM)
    }

    /// Sends a message, after waiting for room.
    ///
    /// # Errors
    /// EAGAIN, ETIMEDOUT, ENOMEM; EINTR when a signal handler ran.
    pub(super) fn send(&self, message: Message, sender: Sender, patience: Patience) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if let Some(receiver) = state.receivers.pop_front() {
            receiver.end(message);
            return Ok(());
        }
        if (state.messages.len() as u64) < self.size.messages {
            state.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
            let was_empty = state.messages.is_empty();
            state.put(message);
            let notice = if was_empty { state.notice.take() } else { None };
            drop(state);
            if let Some(notice) = notice {
                notice.tell(sender);
            }
            self.pollers.notify(PollEvents::READABLE);
            return Ok(());
        }
        let Patience::Until(deadline_ns) = patience else { return Err(Errno::EAGAIN) };
        let waiting = waiting()?;
        state.senders.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        state.senders.push_back(WaitingSender { waiting: waiting.clone(), message });
        drop(state);
        let Err(error) = waiting.wait(deadline_ns) else { return Ok(()) };
        let mut state = self.state.lock();
        // What was done for it meanwhile counts.
        if waiting.take().is_some() {
            return Ok(());
        }
        state.senders.retain(|sender| !Arc::ptr_eq(&sender.waiting, &waiting));
        Err(errno_of(error))
    }

    /// Receives a message, after waiting for one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) fn receive(&self, patience: Patience) -> Result<Message, Errno> {
        let mut state = self.state.lock();
        if let Some(message) = state.take() {
            match state.senders.pop_front() {
                Some(sender) => {
                    state.put(sender.message);
                    sender.waiting.end(());
                }
                None => {
                    drop(state);
                    self.pollers.notify(PollEvents::WRITABLE);
                }
            }
            return Ok(message);
        }
        let Patience::Until(deadline_ns) = patience else { return Err(Errno::EAGAIN) };
        let waiting = waiting()?;
        state.receivers.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        state.receivers.push_back(waiting.clone());
        drop(state);
        let waited = waiting.wait(deadline_ns);
        let mut state = self.state.lock();
        if let Some(message) = waiting.take() {
            return Ok(message);
        }
        state.receivers.retain(|receiver| !Arc::ptr_eq(receiver, &waiting));
        Err(waited.err().map_or(Errno::ERESTARTSYS, errno_of))
    }

    /// Has a process told, or no longer.
    ///
    /// # Errors
    /// EBUSY: another one is, or this one.
    pub(super) fn set_notice(&self, notice: Notice) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.notice.is_some() {
            // It was never there: nobody is told that it is gone.
            drop(state);
            return Err(Errno::EBUSY);
        }
        state.notice = Some(notice);
        Ok(())
    }

    /// The process is not told any more.
    pub(super) fn forget_notice(&self, process: &Arc<Process>) {
        let notice = self.state.lock().notice.take_if(|notice| notice.is_of(process));
        if let Some(notice) = notice {
            notice.remove();
        }
    }

    pub(super) fn status(&self) -> Status {
        let state = self.state.lock();
        Status {
            messages: state.messages.len(),
            bytes: state.bytes,
            notice: state.notice.as_ref().map(|notice| {
                let (how, signal) = notice.numbers();
                (how, signal, notice.pid)
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::account::Account;

    fn queue(messages: u64) -> Arc<Queue> {
        let counted = QueueBytes::claim(&Account::unlisted(1), 1, u64::MAX).expect("there is no limit");
        Queue::new(Size { messages, bytes: 8 }, counted).expect("memory")
    }

    fn send(queue: &Queue, priority: u32, letter: u8) -> Result<(), Errno> {
        let message = Message { priority, text: alloc::vec![letter] };
        queue.send(message, Sender { pid: 1, user: 0 }, Patience::None)
    }

    #[test]
    fn the_most_urgent_goes_first_and_of_equals_the_oldest() {
        let queue = queue(6);
        for (priority, letter) in [(1, b'd'), (3, b'a'), (2, b'c'), (3, b'b'), (0, b'f'), (1, b'e')] {
            assert_eq!(send(&queue, priority, letter), Ok(()));
        }
        assert_eq!(send(&queue, 9, b'x'), Err(Errno::EAGAIN));
        assert_eq!((queue.status().messages, queue.status().bytes), (6, 6));
        let mut order = Vec::new();
        while let Ok(message) = queue.receive(Patience::None) {
            order.extend(message.text);
        }
        assert_eq!(order, b"abcdef");
        assert_eq!(queue.receive(Patience::None).map(drop), Err(Errno::EAGAIN));
        assert_eq!(queue.status().bytes, 0);
    }
}
