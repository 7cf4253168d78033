//! A socket of a pair as an open file.

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::poll::{PollEvents, PollTable};
use vfs::{Error, Result};

use super::end::{End, state};
use super::garbage;
use super::identity::Identity;
use super::message::Message;
use super::options::{Direction, Options};
use super::pair::Pair;
use super::receive::Receiving;
use super::rights;
use super::send::Sending;

/// `SIOCINQ`: bytes to be read.
const BYTES_TO_READ: u32 = 0x541b;
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

/// One of two connected sockets.
pub struct UnixSocket {
    pub(super) pair: Arc<Pair>,
    side: usize,
}

impl UnixSocket {
    pub(super) fn new(pair: Arc<Pair>, side: usize) -> Self {
        debug_assert!(side < 2);
        Self { pair, side }
    }

    pub(super) fn own(&self) -> &End {
        &self.pair.ends[self.side]
    }

    pub(super) fn peer(&self) -> &End {
        &self.pair.ends[1 - self.side]
    }

    /// A number that no other socket has or had.
    pub(super) fn id(&self) -> u64 {
        self.pair.first_id + self.side as u64
    }

    /// The number of the socket that what is sent here goes to.
    pub(super) fn peer_id(&self) -> u64 {
        self.pair.first_id + 1 - self.side as u64
    }

    /// How it transfers.
    pub fn kind(&self) -> Kind {
        self.pair.kind
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.own().options
    }

    /// Who made the pair (`SO_PEERCRED`).
    pub fn maker(&self) -> Identity {
        self.pair.maker
    }

    /// The error that is to be reported, and will not be again; 0: none (`SO_ERROR`).
    pub fn take_error(&self) -> u32 {
        self.own().take_error()
    }

    /// Whether there is a peer (`getpeername`).
    pub fn is_connected(&self) -> bool {
        !self.own().disconnected.load(Ordering::Acquire)
    }

    /// Changes the size of a buffer; whoever waits for room looks again.
    pub fn set_buffer(&self, direction: Direction, bytes: usize) {
        self.options().set_buffer(direction, bytes);
        if direction == Direction::Send {
            self.own().room_again();
        }
    }

    /// Ends a direction, or both; the peer of a connection learns of it.
    pub fn shut_down(&self, half: Half) {
        let (own, peer) = match half {
            Half::Receive => (state::RECEIVE_SHUT, state::SEND_SHUT),
            Half::Send => (state::SEND_SHUT, state::RECEIVE_SHUT),
            Half::Both => (state::SHUT, state::SHUT),
        };
        self.own().enter(own);
        if self.kind().is_connection() {
            self.peer().enter(peer);
        }
    }

    /// Drops what is in the inbox: nobody will read it.
    pub(super) fn purge(&self) {
        for message in self.own().take_all() {
            self.dispose(message);
        }
    }

    /// A message of this inbox is done with.
    pub(super) fn dispose(&self, message: Message) {
        let charge = message.charge;
        drop(message);
        self.peer().uncharge(charge);
    }

    /// Bytes that a read may find.
    fn bytes_to_read(&self) -> usize {
        let inbox = self.own().inbox.lock();
        match self.kind() {
            Kind::Datagram => inbox.front().map_or(0, Message::remaining),
            _ => inbox.iter().map(Message::remaining).sum(),
        }
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

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        let own = self.own();
        if let Some(table) = table {
            table.register(&own.pollers);
        }
        let mut ready = PollEvents::empty();
        let state = own.state();
        if own.has_error() {
            ready |= PollEvents::ERROR;
        }
        if state & state::SHUT == state::SHUT {
            ready |= PollEvents::HANG_UP;
        }
        if state & state::RECEIVE_SHUT != 0 {
            ready |= PollEvents::READ_HANG_UP | PollEvents::INPUT;
        }
        if !own.is_empty() {
            ready |= PollEvents::INPUT;
        }
        if own.is_writable() {
            ready |= PollEvents::OUTPUT | PollEvents::WRITE_BAND;
        }
        ready
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        let bytes = match command {
            BYTES_TO_READ => self.bytes_to_read(),
            BYTES_UNDER_WAY => self.own().charged(),
            _ => return Err(Error::NotTerminal),
        };
        machine::user_memory::store_u32(argument, bytes.min(i32::MAX as usize) as u32)?;
        Ok(0)
    }

    fn release(&self, _file: &OpenFile) {
        self.own().enter(state::CLOSED | state::SHUT);
        // Nothing comes in any more: `put` looks at the state under the inbox's lock.
        let left = self.own().take_all();
        if self.kind().is_connection() {
            if !left.is_empty() {
                self.peer().fail(Error::ConnectionReset);
            }
            self.peer().enter(state::SHUT);
        }
        for message in left {
            self.dispose(message);
        }
        if !rights::is_discarding() {
            garbage::collect_if_due();
        }
    }

    fn describe(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "socket:[{}]", file.inode().number)
    }
}
