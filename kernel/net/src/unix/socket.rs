//! A local socket as an open file.

use core::fmt;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::poll::{PollEvents, PollTable};
use vfs::{Error, Result};

use super::end::{End, state};
use super::endpoint::Endpoint;
use super::garbage;
use super::identity::Principal;
use super::message::Message;
use super::options::{Direction, Options};
use super::receive::Receiving;
use super::rights;
use super::send::Sending;

/// `SIOCINQ`: bytes to be read.
const BYTES_TO_READ: u32 = 0x541b;
/// `SIOCATMARK`: whether the next byte is the one out of band.
const AT_MARK: u32 = 0x8905;
/// `SIOCOUTQ`: bytes under way.
const BYTES_UNDER_WAY: u32 = 0x5411;

/// How a socket transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A stream of bytes.
    Stream,
    /// Messages, without a connection.
    Datagram,
    /// Messages over a connection.
    SequentialPacket,
}

impl Kind {
    /// Whether there is a connection whose end both sides notice.
    pub(super) fn is_connection(self) -> bool {
        self != Self::Datagram
    }
}

/// What of a connection to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// Receiving.
    Receive,
    /// Sending.
    Send,
    /// Both.
    Both,
}

/// A local socket.
pub struct UnixSocket {
    pub(super) at: Endpoint,
}

impl UnixSocket {
    pub(super) fn own(&self) -> &End {
        self.at.end()
    }

    pub(super) fn peer(&self) -> &End {
        self.at.peer()
    }

    /// A number that no other socket has or had.
    pub(super) fn id(&self) -> u64 {
        self.at.id()
    }

    /// How it transfers.
    pub fn kind(&self) -> Kind {
        self.at.kind()
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.own().options
    }

    /// Whose the other end is (`SO_PEERCRED`, `SO_PEERGROUPS`).
    pub fn peer_principal(&self) -> Option<Principal> {
        let of_pair = self.at.pair.maker.clone();
        of_pair.or_else(|| self.own().link.lock().peer.clone())
    }

    /// The error that is to be reported, and will not be again; 0: none (`SO_ERROR`).
    pub fn take_error(&self) -> u32 {
        self.own().take_error()
    }

    /// Whether there is a peer, or was one.
    pub fn is_connected(&self) -> bool {
        match self.kind() {
            Kind::Datagram => self.at.remote().is_some(),
            _ => self.own().has(state::CONNECTED),
        }
    }

    /// Changes the size of a buffer; whoever waits for room looks again.
    pub fn set_buffer(&self, direction: Direction, bytes: usize) {
        self.options().set_buffer(direction, bytes);
        if direction == Direction::Send {
            self.own().room_again();
        }
    }

    /// Changes where the next peek begins (`SO_PEEK_OFF`); negative: at the first byte, and the next ones, too.
    pub fn set_peek_offset(&self, offset: i32) {
        let _inbox = self.own().inbox.lock();
        self.options().set_peek_offset(offset);
    }

    /// Ends a direction, or both; the peer of a connection learns of it.
    pub fn shut_down(&self, half: Half) {
        let (own, peer) = match half {
            Half::Receive => (state::RECEIVE_SHUT, state::SEND_SHUT),
            Half::Send => (state::SEND_SHUT, state::RECEIVE_SHUT),
            Half::Both => (state::SHUT, state::SHUT),
        };
        self.own().enter(own);
        if self.kind().is_connection() && self.own().has(state::CONNECTED) {
            self.peer().enter(peer);
        }
    }

    /// Drops what is in the inbox: nobody will read it.
    pub(super) fn purge(&self) {
        self.at.purge();
    }

    /// A message of this inbox is done with.
    pub(super) fn dispose(&self, message: Message) {
        self.at.dispose(message);
    }

    /// Bytes that a read may find.
    ///
    /// # Errors
    /// `EINVAL` for one that listens.
    pub fn bytes_to_read(&self) -> Result<usize> {
        if self.is_listening() {
            return Err(Error::Invalid);
        }
        let inbox = self.own().inbox.lock();
        Ok(match self.kind() {
            Kind::Datagram => inbox.front().map_or(0, Message::remaining),
            _ => inbox.iter().map(Message::remaining).sum(),
        })
    }

    /// Whether whom it is connected to has no room for its messages. A poll is told of changes.
    fn finds_remote_full(&self, table: Option<&mut PollTable<'_>>) -> bool {
        let Some(remote) = self.at.remote() else { return false };
        if let Some(table) = table
            && !remote.is(&self.at)
        {
            table.register(&remote.end().pollers);
        }
        remote.is_full_for(&self.at)
    }
}

impl FileOperations for UnixSocket {
    fn features(&self) -> FileFeatures {
        FileFeatures::POLLABLE
    }

    fn read(&self, file: &OpenFile, _position: &mut u64, sink: &mut Sink<'_>) -> Result<usize> {
        if sink.is_full() {
            return Ok(0);
        }
        let how = Receiving { non_block: file.non_block(), ..Receiving::default() };
        self.receive(sink, how).map(|received| received.result)
    }

    fn write(&self, file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.send(source, Sending { non_block: file.non_block(), ..Sending::default() })
    }

    fn poll(&self, _file: &OpenFile, mut table: Option<&mut PollTable<'_>>) -> PollEvents {
        let own = self.own();
        if let Some(table) = table.as_deref_mut() {
            table.register(&own.pollers);
        }
        let is_redirected = own.has(state::REDIRECTED);
        let has_room = !is_redirected || !self.finds_remote_full(table);
        let mut ready = PollEvents::empty();
        let state = own.state();
        if own.has_error() {
            ready |= PollEvents::ERROR;
        }
        let is_without_peer =
            self.kind().is_connection() && state & (state::CONNECTED | state::LISTENING) == 0;
        if state & state::SHUT == state::SHUT || is_without_peer {
            ready |= PollEvents::HANG_UP;
        }
        if state & state::RECEIVE_SHUT != 0 {
            ready |= PollEvents::READ_HANG_UP | PollEvents::INPUT;
        }
        if !own.is_empty() {
            ready |= PollEvents::INPUT;
        }
        if own.is_urgent.load(Ordering::Relaxed) {
            ready |= PollEvents::PRIORITY;
        }
        if has_room && state & state::LISTENING == 0 && own.is_writable() {
            ready |= PollEvents::OUTPUT | PollEvents::WRITE_BAND;
        }
        ready
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let bytes = match command {
            BYTES_TO_READ => self.bytes_to_read()?,
            BYTES_UNDER_WAY => self.own().charged(),
            AT_MARK => self.is_at_mark().into(),
            _ => return crate::link::ioctl(command, argument).unwrap_or(Err(Error::NotTerminal)),
        };
        machine::user_memory::store_u32(argument, bytes.min(i32::MAX as usize) as u32)?;
        Ok(0)
    }

    fn release(&self, _file: &OpenFile) {
        self.at.close(false);
        if !rights::is_discarding() {
            garbage::collect_if_due();
        }
    }

    fn describe(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "socket:[{}]", file.inode().number)
    }
}
