//! Receiving.
//!
//! Messages: the first one is taken out and then copied, so a bad address loses it, as on Linux. Streams: bytes are copied
//! under the inbox's lock from as many messages as it takes; a message that brings files ends the read, and with
//! `SO_PASSCRED` messages of different senders are not read together.
//!
//! Who sends waits for the inbox's lock, and a receiver's memory may take for ever to be there (that of a file whose file system is a program that does not
//! answer). So memory is not waited for with the lock held: bytes of streams are copied in an atomic section, and what was not there is brought in between;
//! what is looked at (`MSG_PEEK`) is copied twice.
//!
//! # Peeking with an offset (`SO_PEEK_OFF`)
//! A peek begins so many bytes behind the first one that is there, of messages in the one in which that byte lies, and moves the offset behind what it
//! has seen. What is read moves it back. A peek that has passed over everything waits until there is more, though something is there.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use machine::preempt;
use memory::buffer::Sink;
use vfs::allocation;
use vfs::{Error, OpenFile, Result};

use super::end::{Passed, state};
use super::endpoint::Endpoint;
use super::identity::Identity;
use super::message::Message;
use super::name::Name;
use super::options::{Direction, Stamping};
use super::socket::{Kind, UnixSocket};

/// How to receive.
#[derive(Clone, Copy, Default, Debug)]
pub struct Receiving {
    /// Do not wait.
    pub non_block: bool,
    /// Leave what is received where it is (`MSG_PEEK`).
    pub peek: bool,
    /// Wait for all bytes of a stream (`MSG_WAITALL`).
    pub all: bool,
    /// Tell the length of a message, though less of it fits (`MSG_TRUNC`).
    pub whole_length: bool,
    /// Tell the name of the socket that sent it.
    pub sender: bool,
    /// Receive the byte out of band of a stream (`MSG_OOB`).
    pub urgent: bool,
}

/// What was received.
#[derive(Default)]
pub struct Received {
    /// What the call returns.
    pub result: usize,
    /// The end of a message did not fit.
    pub truncated: bool,
    /// It is a byte out of band.
    pub urgent: bool,
    /// Who sent it, if the socket wants to know.
    pub identity: Option<Identity>,
    /// The name of the socket that sent it, if it has one and it was asked for.
    pub from: Option<Arc<Name>>,
    /// When the message was sent, in nanoseconds since 1970, and how to tell it; if the socket wants to know.
    pub stamp: Option<(u64, Stamping)>,
    /// Files that came with it.
    pub files: Vec<Arc<OpenFile>>,
}

/// Where a read of a stream stands.
struct Progress {
    received: Received,
    done: bool,
    /// A peek with an offset has found nothing.
    passed: Option<Passed>,
}

/// What a peek came to.
enum Peeked {
    /// A message.
    Message(Received),
    /// There is nothing behind the offset.
    Nothing(Option<Passed>),
}

impl UnixSocket {
    /// Receives into the sink.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`, `ECONNRESET`, `EFAULT`, `ENOMEM`; without a connection `EINVAL` of a stream, `ENOTCONN` of packets.
    pub fn receive(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let result = match self.kind() {
            Kind::Stream if how.urgent => self.receive_urgent(sink, how.peek),
            Kind::Stream => self.receive_stream(sink, how),
            Kind::Datagram | Kind::SequentialPacket => self.receive_message(sink, how),
        };
        // A wake-up that this call has had may be for what it left.
        self.own().pass_on();
        result
    }

    fn receive_message(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let own = self.own();
        if self.kind() == Kind::SequentialPacket && !own.has(state::CONNECTED) {
            return Err(Error::NotConnected);
        }
        let deadline_ns = self.options().deadline_ns(Direction::Receive);
        loop {
            own.report_error()?;
            let mut passed = None;
            if how.peek {
                match self.peek_message(sink, how)? {
                    Peeked::Message(received) => return Ok(received),
                    Peeked::Nothing(all) => passed = all,
                }
            } else if let Some(mut message) = self.take_first() {
                self.stamp(&mut message);
                let copied = self.copy_message(&message, 0, sink, how).map(|mut received| {
                    received.files = taken(&mut message);
                    received
                });
                self.dispose(message);
                return copied;
            }
            if self.is_over(passed) && (self.kind() == Kind::SequentialPacket || !how.non_block) {
                return Ok(Received::default());
            }
            if how.non_block {
                return Err(Error::WouldBlock);
            }
            self.wait_for_more(passed, deadline_ns)?;
        }
    }

    /// Whether nothing will come any more, and there is nothing but what a peek has passed over.
    fn is_over(&self, passed: Option<Passed>) -> bool {
        let own = self.own();
        own.has(state::RECEIVE_SHUT) && passed.map_or_else(|| own.is_empty(), |passed| own.is_passed(passed))
    }

    fn wait_for_more(&self, passed: Option<Passed>, deadline_ns: Option<u64>) -> Result<()> {
        match passed {
            None => self.own().wait_readable(deadline_ns),
            Some(passed) => self.own().wait_beyond(passed, deadline_ns),
        }
    }

    /// What the message at the offset says, or the first one if there is none. It stays.
    fn peek_message(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Peeked> {
        let own = self.own();
        let mut inbox = own.inbox.lock();
        let offset = own.options.peek_offset();
        let mut skip = offset.max(0) as usize;
        let mut found = None;
        for (index, message) in inbox.iter().enumerate() {
            let length = message.payload.len();
            if offset < 0 || skip < length || (skip == 0 && !message.is_peeked) {
                found = Some(index);
                break;
            }
            skip -= length;
        }
        let passed = (offset >= 0).then(|| own.pass_over(&inbox));
        let Some(message) = found.and_then(|index| inbox.get_mut(index)) else {
            return Ok(Peeked::Nothing(passed));
        };
        let mut bytes = allocation::filled(0, (message.payload.len() - skip).min(sink.remaining()))?;
        self.stamp(message);
        let mut received = self.copy_message(message, skip, &mut Sink::kernel(&mut bytes), how)?;
        received.files = peeked(message)?;
        message.is_peeked = message.payload.len() == 0;
        own.options.peek_forward(bytes.len());
        drop(inbox);
        let stored = sink.write(&bytes);
        if stored != Ok(bytes.len()) {
            self.unsee(bytes.len());
            return Err(Error::BadAddress);
        }
        Ok(Peeked::Message(received))
    }

    /// A peek could not store so many bytes of those that it has seen.
    fn unsee(&self, bytes: usize) {
        let _inbox = self.own().inbox.lock();
        self.options().peek_back(bytes);
    }

    fn take_first(&self) -> Option<Message> {
        let own = self.own();
        if own.is_empty() {
            return None;
        }
        let mut inbox = own.inbox.lock();
        let message = inbox.pop_front();
        own.publish(&inbox);
        if let Some(message) = &message {
            own.options.peek_back(message.payload.len());
        }
        if self.kind() == Kind::Datagram && message.as_ref().is_some_and(|message| message.sender.is_some()) {
            // It may be what others wait for that found too many here.
            let was_full = inbox.len() == own.backlog.load(Ordering::Acquire) as usize;
            drop(inbox);
            if was_full {
                own.writers_may_look();
            }
        }
        message
    }

    fn name_of_sender(&self, message: &Message) -> Option<Arc<Name>> {
        let sender = message.sender.as_ref().map_or(self.peer(), Endpoint::end);
        sender.name.get().cloned()
    }

    /// A message that was sent before the socket wanted to know when is stamped as it is first looked at.
    fn stamp(&self, message: &mut Message) {
        if message.stamp_ns == 0 {
            message.stamp_ns = self.options().stamp_ns();
        }
    }

    /// Copies a message from a byte on.
    fn copy_message(
        &self,
        message: &Message,
        from: usize,
        sink: &mut Sink<'_>,
        how: Receiving,
    ) -> Result<Received> {
        let length = message.payload.len() - from;
        let fits = length.min(sink.remaining());
        if message.payload.store(from, sink)? != fits {
            return Err(Error::BadAddress);
        }
        let stamping = self.options().stamping();
        Ok(Received {
            result: if how.whole_length { length } else { fits },
            truncated: fits < length,
            urgent: false,
            identity: self.options().passes_identity().then_some(message.identity),
            from: if how.sender { self.name_of_sender(message) } else { None },
            stamp: if stamping.is_empty() { None } else { Some((message.stamp_ns, stamping)) },
            files: Vec::new(),
        })
    }

    fn receive_stream(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let own = self.own();
        if !own.has(state::CONNECTED) {
            return Err(Error::Invalid);
        }
        let deadline_ns = self.options().deadline_ns(Direction::Receive);
        let wanted = sink.remaining();
        let least = if how.all { wanted } else { wanted.min(own.options.low_water() as usize) }.max(1);
        let from = if how.sender { self.peer().name.get().cloned() } else { None };
        let received = Received { from, ..Received::default() };
        let mut progress = Progress { received, done: false, passed: None };
        loop {
            let outcome = self.read_available(sink, how, &mut progress);
            let got = progress.received.result;
            if let Err(error) = outcome {
                return if got > 0 { Ok(progress.received) } else { Err(error) };
            }
            // A peek would see the same bytes again.
            if progress.done || got >= least || (how.peek && got > 0) {
                return Ok(progress.received);
            }
            let pause = own.report_error().and_then(|()| {
                if self.is_over(progress.passed) {
                    progress.done = true;
                    return Ok(());
                }
                if how.non_block {
                    return Err(Error::WouldBlock);
                }
                self.wait_for_more(progress.passed, deadline_ns)
            });
            match pause {
                Ok(()) if progress.done => return Ok(progress.received),
                Ok(()) => {}
                Err(_) if got > 0 => return Ok(progress.received),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads from the messages that are there.
    fn read_available(&self, sink: &mut Sink<'_>, how: Receiving, progress: &mut Progress) -> Result<()> {
        if how.peek {
            return self.peek_available(sink, progress);
        }
        let own = self.own();
        let pass_identity = own.options.passes_identity();
        let received = &mut progress.received;
        let mut brought_files = false;
        while !own.is_empty() {
            let mut inbox = own.inbox.lock();
            let Some(message) = inbox.front_mut() else { return Ok(()) };
            if message.is_mark() {
                if received.result > 0 {
                    progress.done = true;
                    return Ok(());
                }
                if let Some(passed) = own.pass_mark(&mut inbox) {
                    drop(inbox);
                    self.dispose(passed);
                }
                continue;
            }
            if received.identity.is_some_and(|first| first != message.identity) {
                progress.done = true;
                return Ok(());
            }
            let room = sink.remaining();
            let copied = {
                let _atomic = preempt::disable();
                // An error only says that the first byte's place is not there.
                message.payload.store(message.taken, sink).unwrap_or(0)
            };
            let whole = copied == message.remaining();
            if copied == 0 && !whole && room > 0 {
                drop(inbox);
                // Another thread can take the page away as often as it is brought in.
                if sched::current().is_killed() {
                    return Err(Error::Interrupted);
                }
                sink.prepare()?;
                continue;
            }
            received.result += copied;
            if pass_identity {
                received.identity = Some(message.identity);
            }
            if message.rights.is_some() {
                brought_files = true;
                received.files = taken(message);
            }
            message.taken += copied;
            own.options.peek_back(copied);
            let finished = if whole { inbox.pop_front() } else { None };
            if whole {
                own.publish(&inbox);
            }
            drop(inbox);
            if let Some(message) = finished {
                self.dispose(message);
            }
            if sink.is_full() || whole && brought_files {
                progress.done = true;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Looks at the messages that are there, as one read would read them.
    fn peek_available(&self, sink: &mut Sink<'_>, progress: &mut Progress) -> Result<()> {
        let own = self.own();
        let pass_identity = own.options.passes_identity();
        let received = &mut progress.received;
        let mut bytes = Vec::new();
        let inbox = own.inbox.lock();
        let offset = own.options.peek_offset();
        let mut skip = offset.max(0) as usize;
        let mut found = false;
        for message in inbox.iter() {
            if message.is_mark() {
                if found {
                    break;
                }
                if !(message.is_urgent && own.is_inline()) {
                    continue;
                }
            }
            if skip >= message.remaining() {
                skip -= message.remaining();
                continue;
            }
            found = true;
            if received.identity.is_some_and(|first| first != message.identity) {
                break;
            }
            if pass_identity {
                received.identity = Some(message.identity);
            }
            let begun = bytes.len();
            let fits = (message.remaining() - skip).min(sink.remaining() - begun);
            allocation::reserve(&mut bytes, fits)?;
            bytes.resize(begun + fits, 0);
            message.payload.store(message.taken + skip, &mut Sink::kernel(&mut bytes[begun..]))?;
            skip = 0;
            received.files = peeked(message)?;
            if message.rights.is_some() || bytes.len() == sink.remaining() {
                break;
            }
        }
        progress.done = found;
        progress.passed = (offset >= 0).then(|| own.pass_over(&inbox));
        own.options.peek_forward(bytes.len());
        drop(inbox);
        let stored = sink.write(&bytes);
        let count = *stored.as_ref().unwrap_or(&0);
        if count < bytes.len() {
            self.unsee(bytes.len() - count);
        }
        stored?;
        received.result += count;
        Ok(())
    }
}

fn taken(message: &mut Message) -> Vec<Arc<OpenFile>> {
    message.rights.take().map(|rights| (*rights).into_files()).unwrap_or_default()
}

fn peeked(message: &Message) -> Result<Vec<Arc<OpenFile>>> {
    match &message.rights {
        Some(rights) => rights.copy_files(),
        None => Ok(Vec::new()),
    }
}
