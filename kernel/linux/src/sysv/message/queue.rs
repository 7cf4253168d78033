//! A queue of messages.
//!
//! A message that somebody waits for goes to the first who takes it, past the queue. Senders that find no room wait in their order; who
//! makes room tells as many of them as it is enough for, and they look again. One that was told and does not use the room, because it may not
//! send any more, passes it on.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicI32, Ordering};

use super::selection::Selection;

use crate::abi::MessageQueueStatus;
use crate::errno::Errno;
use crate::name_space::WeakSpace;
use crate::process::pid_space::Viewer;
use crate::process::table::Pid;
use crate::sysv::now;
use crate::sysv::permissions::Permissions;
use crate::sysv::registry::Registered;
use crate::sysv::space::IpcSpace;
use crate::sysv::waiting::Waiting;

/// A message.
pub(super) struct Message {
    pub(super) kind: i64,
    pub(super) text: Vec<u8>,
}

/// What a receiver waited for.
pub(super) enum Delivery {
    Message(Message),
    /// The queue was changed; perhaps the receiver may not read any more.
    LookAgain,
    Error(Errno),
}

/// A thread that waits for a message.
pub(super) struct Receiver {
    pub(super) waiting: Arc<Waiting<Delivery>>,
    pub(super) selection: Selection,
    /// The most bytes that it takes.
    pub(super) bytes_max: usize,
    pub(super) process: Pid,
}

/// A thread that waits for room.
pub(super) struct Sender {
    pub(super) waiting: Arc<Waiting<()>>,
    pub(super) bytes: u64,
}

/// What is in a queue, and who waits.
pub(super) struct State {
    space: WeakSpace<IpcSpace>,
    pub(super) permissions: Permissions,
    pub(super) is_removed: bool,
    messages: VecDeque<Message>,
    bytes: u64,
    /// Most bytes, and most messages.
    pub(super) capacity: u64,
    pub(super) receivers: VecDeque<Receiver>,
    pub(super) senders: VecDeque<Sender>,
    // Seconds since 1970, and processes.
    sent: u64,
    received: u64,
    changed: u64,
    last_sender: Pid,
    last_receiver: Pid,
}

/// A queue. See the theory of this file.
pub(in crate::sysv) struct Queue {
    id: AtomicI32,
    pub(super) state: sched::Mutex<State>,
}

impl Registered for Queue {
    fn assign(&self, id: i32) {
        self.id.store(id, Ordering::Relaxed);
    }
}

impl Queue {
    /// An empty one that nobody can find yet.
    pub(super) fn new(permissions: Permissions, space: WeakSpace<IpcSpace>) -> Result<Arc<Queue>, Errno> {
        let capacity = space.upgrade().ok_or(Errno::ENOSPC)?.message_limits.capacity.load(Ordering::Relaxed);
        let state = State {
            space,
            permissions,
            is_removed: false,
            messages: VecDeque::new(),
            bytes: 0,
            capacity,
            receivers: VecDeque::new(),
            senders: VecDeque::new(),
            sent: 0,
            received: 0,
            changed: now(),
            last_sender: 0,
            last_receiver: 0,
        };
        let queue = Queue { id: AtomicI32::new(-1), state: sched::Mutex::named("queue of messages", state) };
        memory::fallible::try_arc(queue).map_err(|_| Errno::ENOMEM)
    }

    pub(super) fn id(&self) -> i32 {
        self.id.load(Ordering::Relaxed)
    }

    /// What IPC_STAT says.
    pub(super) fn status(&self, key: i32, viewer: Viewer<'_>) -> MessageQueueStatus {
        let state = self.state.lock();
        MessageQueueStatus {
            permissions: state.permissions.seen_in(viewer.users).to_user(key, self.id()),
            sent: state.sent,
            received: state.received,
            changed: state.changed,
            bytes: state.bytes,
            messages: state.messages.len() as u64,
            capacity: state.capacity,
            last_sender: viewer.seen(state.last_sender),
            last_receiver: viewer.seen(state.last_receiver),
            ..Default::default()
        }
    }

    /// Removes the queue, whose messages are lost; who waits is told.
    pub(super) fn remove(&self, state: &mut State) {
        drop(state.space.upgrade().map(|space| space.queues.remove(self.id())));
        state.is_removed = true;
        for receiver in state.receivers.drain(..) {
            receiver.waiting.end(Delivery::Error(Errno::EIDRM));
        }
        for sender in state.senders.drain(..) {
            sender.waiting.end(());
        }
        while state.take(0).is_some() {}
    }
}

impl State {
    /// Whether there is room for a message.
    pub(super) fn has_room_for(&self, bytes: u64) -> bool {
        bytes + self.bytes <= self.capacity && (self.messages.len() as u64) < self.capacity
    }

    /// Hands a message to who waits for it, or puts it in; it counts as sent by the process.
    pub(super) fn put(&mut self, message: Message, process: Pid) -> Result<(), Errno> {
        // Before anything is changed.
        self.messages.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        (self.last_sender, self.sent) = (process, now());
        while let Some(index) =
            self.receivers.iter().position(|receiver| receiver.selection.takes(message.kind))
        {
            let Some(receiver) = self.receivers.remove(index) else { break };
            if receiver.bytes_max < message.text.len() {
                receiver.waiting.end(Delivery::Error(Errno::E2BIG));
                continue;
            }
            (self.last_receiver, self.received) = (receiver.process, now());
            receiver.waiting.end(Delivery::Message(message));
            return Ok(());
        }
        self.bytes += message.text.len() as u64;
        self.count(1, message.text.len() as u64);
        self.messages.push_back(message);
        Ok(())
    }

    /// Where the message is that a receiver takes, and the message.
    pub(super) fn find(&self, selection: Selection) -> Option<(usize, &Message)> {
        let index = selection.find(&self.messages)?;
        Some((index, self.messages.get(index)?))
    }

    /// Takes a message out for a process.
    pub(super) fn receive(&mut self, index: usize, process: Pid) -> Option<Message> {
        let message = self.take(index)?;
        (self.last_receiver, self.received) = (process, now());
        self.tell_senders();
        Some(message)
    }

    fn take(&mut self, index: usize) -> Option<Message> {
        let message = self.messages.remove(index)?;
        self.bytes -= message.text.len() as u64;
        self.count(1u64.wrapping_neg(), (message.text.len() as u64).wrapping_neg());
        Some(message)
    }

    /// Counts what has come into the queue, or gone.
    fn count(&self, messages: u64, bytes: u64) {
        if let Some(space) = self.space.upgrade() {
            space.message_limits.messages.fetch_add(messages, Ordering::Relaxed);
            space.message_limits.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Tells senders that there is room for them, as many as it is enough for.
    pub(super) fn tell_senders(&mut self) {
        let mut bytes = self.capacity.saturating_sub(self.bytes);
        let mut messages = self.capacity.saturating_sub(self.messages.len() as u64);
        self.senders.retain(|sender| {
            let fits = messages > 0 && sender.bytes <= bytes;
            if fits {
                bytes -= sender.bytes;
                messages -= 1;
                sender.waiting.end(());
            }
            !fits
        });
    }

    /// The owner, the mode or the capacity is another one: all who wait look again.
    pub(super) fn was_changed(&mut self) {
        self.changed = now();
        for receiver in self.receivers.drain(..) {
            receiver.waiting.end(Delivery::LookAgain);
        }
        for sender in self.senders.drain(..) {
            sender.waiting.end(());
        }
    }
}
