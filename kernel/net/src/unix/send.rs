//! Sending.
//!
//! The bytes are copied into a message without a lock, the message is put into the peer's inbox under its lock. A stream is
//! cut into messages of at most half a buffer; what was sent before an error counts.
//!
//! # Cost
//! Of a short message: two allocations (the bytes, and none for the queue once it has room), one copy, one sleeping lock,
//! two atomics for the buffer, a wake-up if somebody waits.

use alloc::boxed::Box;
use core::sync::atomic::Ordering;

use memory::buffer::Source;
use vfs::{Error, Result};

use super::end::state;
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
    /// Who the sender says it is; checked by the caller.
    pub identity: Option<Identity>,
}

impl UnixSocket {
    /// Sends what the source holds; returns the bytes sent. [`Error::BrokenPipe`] of a stream goes with a signal.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `EINTR`, `ECONNRESET`, `EFAULT`, `ENOMEM`; `EMSGSIZE` for a message that fits into no buffer;
    /// `ECONNREFUSED` and then `ENOTCONN` when a datagram's receiver is gone.
    pub fn send(&self, source: &mut Source<'_>, how: Sending) -> Result<usize> {
        let Sending { non_block, mut rights, identity } = how;
        let result = match self.kind() {
            Kind::Stream => self.send_stream(source, non_block, &mut rights, identity),
            Kind::Datagram | Kind::SequentialPacket => {
                self.send_message(source, non_block, &mut rights, identity)
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
    ) -> Result<usize> {
        if self.own().has(state::SEND_SHUT) {
            return Err(Error::BrokenPipe);
        }
        let deadline_ns = self.options().deadline_ns(Direction::Send);
        let half = self.options().buffer(Direction::Send) / 2 - 64;
        let mut sent = 0;
        while !source.is_empty() {
            let length = source.remaining().min(half).min(CHUNK_MAX);
            match self.send_piece(source, length, non_block, deadline_ns, rights, identity) {
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
        identity: Option<Identity>,
    ) -> Result<usize> {
        let own = self.own();
        if self.kind() == Kind::SequentialPacket {
            own.report_error()?;
        }
        if own.disconnected.load(Ordering::Acquire) {
            return Err(Error::NotConnected);
        }
        let length = source.remaining();
        if length > self.options().buffer(Direction::Send) - DATAGRAM_RESERVE {
            return Err(Error::MessageTooLong);
        }
        let deadline_ns = self.options().deadline_ns(Direction::Send);
        match self.send_piece(source, length, non_block, deadline_ns, rights, identity) {
            Ok(()) => Ok(length),
            Err(Error::BrokenPipe) if self.kind() == Kind::Datagram && self.peer().has(state::CLOSED) => {
                own.disconnected.store(true, Ordering::Release);
                self.purge();
                Err(Error::ConnectionRefused)
            }
            Err(error) => Err(error),
        }
    }

    /// Sends one message. The rights go with it, unless it fails.
    fn send_piece(
        &self,
        source: &mut Source<'_>,
        length: usize,
        non_block: bool,
        deadline_ns: Option<u64>,
        rights: &mut Option<Box<Rights>>,
        identity: Option<Identity>,
    ) -> Result<()> {
        self.own().wait_for_room(non_block, deadline_ns)?;
        let payload = Payload::load(source, length)?;
        let wanted = self.own().options.passes_identity() || self.peer().options.passes_identity();
        let identity =
            identity.unwrap_or_else(|| if wanted { identity::of_caller() } else { Identity::UNKNOWN });
        let charge = charge_of(length);
        let message = Message { payload, taken: 0, charge, identity, rights: rights.take() };
        self.own().charge(charge);
        self.peer().put(message).map_err(|(error, mut message)| {
            *rights = message.rights.take();
            self.own().uncharge(charge);
            error
        })
    }
}
