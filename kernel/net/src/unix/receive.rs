//! Receiving.
//!
//! Messages: the first one is taken out and then copied, so a bad address loses it, as on Linux. Streams: bytes are copied
//! under the inbox's lock from as many messages as it takes; a message that brings files ends the read, and with
//! `SO_PASSCRED` messages of different senders are not read together.
//!
//! Who sends waits for the inbox's lock, and a receiver's memory may take for ever to be there (that of a file whose file system is a program that does not
//! answer). So memory is not waited for with the lock held: bytes of streams are copied in an atomic section, and what was not there is brought in between;
//! what is looked at (`MSG_PEEK`) is copied twice.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use machine::preempt;
use memory::buffer::Sink;
use vfs::allocation;
use vfs::{Error, OpenFile, Result};

use super::end::state;
use super::endpoint::Endpoint;
use super::identity::Identity;
use super::message::Message;
use super::name::Name;
use super::options::Direction;
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
}

/// What was received.
#[derive(Default)]
pub struct Received {
    /// What the call returns.
    pub result: usize,
    /// The end of a message did not fit.
    pub truncated: bool,
    /// Who sent it, if the socket wants to know.
    pub identity: Option<Identity>,
    /// The name of the socket that sent it, if it has one and it was asked for.
    pub from: Option<Arc<Name>>,
    /// Files that came with it.
    pub files: Vec<Arc<OpenFile>>,
}

/// Where a read of a stream stands.
struct Progress {
    received: Received,
    done: bool,
}

impl UnixSocket {
    /// Receives into the sink.
    ///
    /// # Errors
    /// `EAGAIN`, `EINTR`, `ECONNRESET`, `EFAULT`, `ENOMEM`; without a connection `EINVAL` of a stream, `ENOTCONN` of packets.
    pub fn receive(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let result = match self.kind() {
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
            if how.peek {
                if let Some(received) = self.peek_message(sink, how)? {
                    return Ok(received);
                }
            } else if let Some(mut message) = self.take_first() {
                let copied = self.copy_message(&message, sink, how).map(|mut received| {
                    received.files = taken(&mut message);
                    received
                });
                self.dispose(message);
                return copied;
            }
            let over = own.has(state::RECEIVE_SHUT) && own.is_empty();
            if over && (self.kind() == Kind::SequentialPacket || !how.non_block) {
                return Ok(Received::default());
            }
            if how.non_block {
                return Err(Error::WouldBlock);
            }
            own.wait_readable(deadline_ns)?;
        }
    }

    /// What the first message says, which stays.
    fn peek_message(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Option<Received>> {
        let inbox = self.own().inbox.lock();
        let Some(message) = inbox.front() else { return Ok(None) };
        let mut bytes = allocation::filled(0, message.payload.len().min(sink.remaining()))?;
        let mut received = self.copy_message(message, &mut Sink::kernel(&mut bytes), how)?;
        received.files = peeked(message)?;
        drop(inbox);
        if sink.write(&bytes)? < bytes.len() {
            return Err(Error::BadAddress);
        }
        Ok(Some(received))
    }

    fn take_first(&self) -> Option<Message> {
        let own = self.own();
        if own.is_empty() {
            return None;
        }
        let mut inbox = own.inbox.lock();
        let message = inbox.pop_front();
        own.publish(&inbox);
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

    fn copy_message(&self, message: &Message, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let length = message.payload.len();
        let fits = length.min(sink.remaining());
        if message.payload.store(0, sink)? != fits {
            return Err(Error::BadAddress);
        }
        Ok(Received {
            result: if how.whole_length { length } else { fits },
            truncated: fits < length,
            identity: self.options().passes_identity().then_some(message.identity),
            from: if how.sender { self.name_of_sender(message) } else { None },
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
        let mut progress = Progress { received: Received { from, ..Received::default() }, done: false };
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
                if own.has(state::RECEIVE_SHUT) && own.is_empty() {
                    progress.done = true;
                    return Ok(());
                }
                if how.non_block {
                    return Err(Error::WouldBlock);
                }
                own.wait_readable(deadline_ns)
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
        for message in inbox.iter() {
            if received.identity.is_some_and(|first| first != message.identity) {
                break;
            }
            if pass_identity {
                received.identity = Some(message.identity);
            }
            let begun = bytes.len();
            let fits = message.remaining().min(sink.remaining() - begun);
            allocation::reserve(&mut bytes, fits)?;
            bytes.resize(begun + fits, 0);
            message.payload.store(message.taken, &mut Sink::kernel(&mut bytes[begun..]))?;
            received.files = peeked(message)?;
            if message.rights.is_some() || bytes.len() == sink.remaining() {
                break;
            }
        }
        progress.done = !inbox.is_empty();
        drop(inbox);
        received.result += sink.write(&bytes)?;
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
