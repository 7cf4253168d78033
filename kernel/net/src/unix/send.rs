//! Sending.
//!
//! The bytes are copied into a message without a lock, the message is put into the peer's inbox under its lock. A stream is
//! cut into messages of at most half a buffer; what was sent before an error counts. Of a message the receiver's filter says how much of it is kept.
//!
//! # Cost
//! Of a short message: two allocations (the bytes, and none for the queue once it has room), one copy, one sleeping lock,
//! two atomics for the buffer, a wake-up if somebody waits.

use alloc::boxed::Box;

use memory::buffer::Source;
use vfs::{Error, Result};

use super::end::state;
use super::endpoint::Endpoint;
use super::identity::{self, Identity};
use super::message::{Message, charge_of};
use super::options::Direction;
use super::payload::Payload;
use super::rights::Rights;
use super::socket::{Kind, UnixSocket};

/// Most bytes of a stream in one message.
const CHUNK_MAX: usize = 32 << 10;
/// What a datagram can't use of the buffer.
const DATAGRAM_RESERVE: usize = 32;

/// How to send, and what besides bytes.
#[derive(Default)]
pub struct Sending {
    /// Do not wait for room.
    pub non_block: bool,
    /// Files to pass.
    pub rights: Option<Box<Rights>>,
    /// Where a datagram goes, if not to what the socket is connected to.
    pub to: Option<Endpoint>,
    /// Who the sender says it is; checked by the caller.
    pub identity: Option<Identity>,
    /// The last byte goes out of band (`MSG_OOB`); of streams only.
    pub urgent: bool,
}

impl UnixSocket {
    /// Sends what the source holds; returns the bytes sent. [`Error::BrokenPipe`] of a stream goes with a signal.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `EINTR`, `ECONNRESET`, `EFAULT`, `ENOMEM`, `ENOTCONN`; `EPERM` when the receiver is connected to somebody else; `EMSGSIZE` for a message that fits into no buffer;
    /// `ECONNREFUSED` and then `ENOTCONN` when a datagram's receiver is gone.
    pub fn send(&self, source: &mut Source<'_>, how: Sending) -> Result<usize> {
        let Sending { non_block, mut rights, to, identity, urgent } = how;
        let result = match self.kind() {
            Kind::Stream => self.send_stream(source, non_block, &mut rights, identity, urgent),
            Kind::Datagram | Kind::SequentialPacket => {
                self.send_message(source, non_block, &mut rights, to, identity)
            }
        };
        if let Some(unused) = rights {
            unused.discard();
        }
        result
    }

    fn send_stream(
        &self,
        source: &mut Source<'_>,
        non_block: bool,
        rights: &mut Option<Box<Rights>>,
        identity: Option<Identity>,
        urgent: bool,
    ) -> Result<usize> {
        if urgent && source.is_empty() {
            return Err(Error::NotSupported);
        }
        let state = self.own().state();
        if state & state::CONNECTED == 0 {
            return Err(Error::NotConnected);
        }
        if state & state::SEND_SHUT != 0 {
            return Err(Error::BrokenPipe);
        }
        let deadline_ns = self.options().deadline_ns(Direction::Send);
        let half = self.options().buffer(Direction::Send) / 2 - 64;
        let mut sent = 0;
        while !source.is_empty() {
            let is_last = urgent && source.remaining() == 1;
            let length = (source.remaining() - usize::from(urgent && !is_last)).min(half).min(CHUNK_MAX);
            match self.send_piece(source, length, non_block, deadline_ns, rights, None, identity, is_last) {
                Ok(()) => sent += length,
                Err(_) if sent > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(sent)
    }

    fn send_message(
        &self,
        source: &mut Source<'_>,
        non_block: bool,
        rights: &mut Option<Box<Rights>>,
        to: Option<Endpoint>,
        identity: Option<Identity>,
    ) -> Result<usize> {
        let own = self.own();
        if self.kind() == Kind::SequentialPacket {
            own.report_error()?;
            if !own.has(state::CONNECTED) {
                return Err(Error::NotConnected);
            }
        }
        let is_named = to.is_some();
        let other = match to {
            None if self.kind() == Kind::Datagram
                && (own.state() | self.peer().state()) & state::REDIRECTED != 0 =>
            {
                Some(self.at.remote().ok_or(Error::NotConnected)?)
            }
            to => to,
        };
        let length = source.remaining();
        if length > self.options().buffer(Direction::Send) - DATAGRAM_RESERVE {
            return Err(Error::MessageTooLong);
        }
        let deadline_ns = self.options().deadline_ns(Direction::Send);
        let before = if other.is_none() { Some(self.peer()) } else { None };
        match self.send_piece(source, length, non_block, deadline_ns, rights, other.as_ref(), identity, false)
        {
            Ok(()) => Ok(length),
            // Of the pair's other side.
            Err(Error::BrokenPipe)
                if self.kind() == Kind::Datagram && before.is_some_and(|peer| peer.has(state::CLOSED)) =>
            {
                self.redirect(None)?;
                Err(Error::ConnectionRefused)
            }
            Err(Error::ConnectionRefused) if !is_named => {
                self.redirect(None)?;
                Err(Error::ConnectionRefused)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends one message. The rights go with it, unless it fails.
    #[allow(clippy::too_many_arguments, reason = "what a call to send is made of")]
    fn send_piece(
        &self,
        source: &mut Source<'_>,
        length: usize,
        non_block: bool,
        deadline_ns: Option<u64>,
        rights: &mut Option<Box<Rights>>,
        other: Option<&Endpoint>,
        identity: Option<Identity>,
        is_urgent: bool,
    ) -> Result<()> {
        self.own().wait_for_room(non_block, deadline_ns)?;
        let mut payload = Payload::load(source, length)?;
        let receiver = other.map_or(self.peer(), Endpoint::end);
        if self.kind() != Kind::Stream {
            // The sender is not told.
            let Some(kept) = receiver.options.filter.kept(&payload) else { return Ok(()) };
            payload.truncate(kept);
        }
        let wanted = self.own().options.passes_identity() || receiver.options.passes_identity();
        let identity =
            identity.unwrap_or_else(|| if wanted { identity::of_caller() } else { Identity::UNKNOWN });
        let charge = charge_of(length);
        if let Some(rights) = rights {
            match other {
                Some(other) => rights.take_off(other)?,
                None => rights.take_off(&self.at.opposite())?,
            }
        }
        let sender = other.map(|_| self.at.clone());
        // What others get is stamped when they take it.
        let is_stamped = other.is_none() && self.kind() != Kind::Stream;
        let message = Message {
            payload,
            taken: 0,
            is_peeked: false,
            is_urgent,
            stamp_ns: if is_stamped { receiver.options.stamp_ns() } else { 0 },
            charge,
            sender,
            identity,
            rights: rights.take(),
        };
        self.own().charge(charge);
        let outcome = match other {
            Some(other) => self.send_to(other, message, non_block, deadline_ns),
            None => match receiver.put(message) {
                Err((Error::NotPermitted, mut message)) => {
                    message.sender = Some(self.at.clone());
                    self.send_to(&self.at.opposite(), message, non_block, deadline_ns)
                }
                outcome => outcome,
            },
        };
        if is_urgent && outcome.is_ok() {
            receiver.tell_urgent();
        }
        outcome.map_err(|(error, mut message)| {
            *rights = message.rights.take();
            self.own().uncharge(charge);
            error
        })
    }
}
