//! A netlink socket as an open file.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering;

use machine::address::UserAddr;
use memory::buffer::{Sink, Source};
use vfs::attributes::FileKind;
use vfs::file::{FileFeatures, FileOperations, OpenFile};
use vfs::flags::OpenFlags;
use vfs::poll::{PollEvents, PollTable};
use vfs::{Error, Result, allocation, anonymous};

use super::port::{self, Address, Message, Port, Reserved};
use super::{ROUTES, route};
use crate::unix::{Direction, Identity, Options, Receiving, identity_of_caller};

/// Permissions that `fstat` shows of a socket.
const MODE: u32 = 0o777;
/// What of the send buffer is not for a message.
const RESERVED_BYTES: usize = 32;

/// A socket.
pub struct NetlinkSocket {
    port: Arc<Port>,
    /// `SOCK_RAW`, not `SOCK_DGRAM`: there is no other difference.
    raw: bool,
}

/// What was received.
pub struct Received {
    /// What the call returns.
    pub result: usize,
    /// The end of the message did not fit.
    pub truncated: bool,
    /// Who sent it, and the group it was sent to.
    pub from: Address,
    /// On whose behalf, if the socket wants to know.
    pub identity: Option<Identity>,
}

/// Makes a socket that is not bound. Of the flags `O_NONBLOCK` counts.
///
/// # Errors
/// `ENOMEM`, `ENFILE`.
pub fn create(protocol: u32, raw: bool, flags: OpenFlags, user: u32, group: u32) -> Result<Arc<OpenFile>> {
    let inode = anonymous::new_inode(FileKind::Socket, MODE, user, group)?;
    let socket = allocation::arc(NetlinkSocket { port: allocation::arc(Port::new(protocol))?, raw })?;
    OpenFile::anonymous(inode, socket, (flags & OpenFlags::NON_BLOCK) | OpenFlags::READ_WRITE)
}

impl NetlinkSocket {
    /// Whether it was made as `SOCK_RAW`.
    pub fn is_raw(&self) -> bool {
        self.raw
    }

    /// What it speaks.
    pub fn protocol(&self) -> u32 {
        self.port.protocol()
    }

    /// Its options.
    pub fn options(&self) -> &Options {
        &self.port.options
    }

    /// Its number and groups.
    pub fn address(&self) -> Address {
        self.port.address()
    }

    /// Gives it a number, or with 0 one after the process, and its groups.
    ///
    /// # Errors
    /// `EINVAL` if it has another number, `EADDRINUSE`, `ENOMEM`.
    pub fn bind(&self, wanted: Address, process: u32) -> Result<()> {
        self.port.bind(wanted, process)
    }

    /// Makes it a member of a group, or no member.
    ///
    /// # Errors
    /// `EINVAL`, `ENOMEM`.
    pub fn set_member(&self, group: u32, member: bool) -> Result<()> {
        self.port.set_member(group, member)
    }

    /// Whether nothing is said of messages that were lost (`NETLINK_NO_ENOBUFS`).
    pub fn is_quiet(&self) -> bool {
        self.port.quiet.load(Ordering::Relaxed)
    }

    /// Changes that.
    pub fn set_quiet(&self, quiet: bool) {
        self.port.quiet.store(quiet, Ordering::Relaxed);
    }

    /// The error that is to be reported, and will not be again (`SO_ERROR`).
    pub fn take_error(&self) -> Option<Error> {
        self.port.take_overrun().then_some(Error::NoBufferSpace)
    }

    /// Receives a message into the sink.
    ///
    /// # Errors
    /// `ENOBUFS` once after messages were lost; `EAGAIN`, `EINTR`, `EFAULT`.
    pub fn receive(&self, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let deadline_ns = self.port.options.deadline_ns(Direction::Receive);
        loop {
            if let Some(error) = self.take_error() {
                return Err(error);
            }
            let message = if how.peek { self.port.first() } else { self.port.take() };
            if let Some(message) = message {
                return self.copy(&message, sink, how);
            }
            if how.non_block {
                return Err(Error::WouldBlock);
            }
            self.port.wait(deadline_ns)?;
        }
    }

    fn copy(&self, message: &Message, sink: &mut Sink<'_>, how: Receiving) -> Result<Received> {
        let length = message.bytes.len();
        let fits = length.min(sink.remaining());
        if sink.write(&message.bytes[..fits]).map_err(|_| Error::BadAddress)? != fits {
            return Err(Error::BadAddress);
        }
        Ok(Received {
            result: if how.whole_length { length } else { fits },
            truncated: fits < length,
            from: message.from,
            identity: self.port.options.passes_identity().then_some(message.identity),
        })
    }

    /// Reserves a place for a message of the kernel's to it, of these bytes unless they are changed when it is sent. Does not wait for room.
    ///
    /// # Errors
    /// `EAGAIN` if there is no room, `ENOMEM`.
    pub fn reserve(&self, bytes: &[u8]) -> Result<Reserved> {
        let mut copy = Vec::new();
        allocation::extend(&mut copy, bytes)?;
        let identity = Identity { process: 0, user: 0, group: 0 };
        let message = allocation::arc(Message { bytes: copy, from: Address::default(), identity })?;
        self.port.reserve(message)
    }

    /// Sends to a group's members, if one is named (the lowest of them), and to a port. The kernel, port 0, answers questions about links.
    ///
    /// # Errors
    /// `EMSGSIZE`, `ENODATA` for nothing, `ECONNREFUSED`, `EAGAIN` if the port has no room, `EFAULT`, `ENOMEM`, and those of binding.
    pub fn send(&self, source: &mut Source<'_>, to: Address, identity: Identity) -> Result<usize> {
        // The number is the caller's, whoever it says it is.
        self.port.bind_if_not(identity_of_caller().process)?;
        let length = source.remaining();
        if length > self.port.options.buffer(Direction::Send) - RESERVED_BYTES {
            return Err(Error::MessageTooLong);
        }
        if length == 0 {
            return Err(Error::NoData);
        }
        let mut bytes = allocation::filled(0, length)?;
        if source.read(&mut bytes).map_err(|_| Error::BadAddress)? != length {
            return Err(Error::BadAddress);
        }
        let lowest = to.groups & to.groups.wrapping_neg();
        let from = Address { port: self.address().port, groups: lowest };
        let message = allocation::arc(Message { bytes, from, identity })?;
        if lowest != 0 {
            port::multicast(lowest.trailing_zeros() + 1, &message, &self.port);
        }
        if to == Address::default() && self.protocol() == ROUTES {
            self.ask(&message.bytes)?;
        }
        if to.port != 0 {
            let from = Address { groups: 0, ..from };
            let mut bytes = Vec::new();
            allocation::extend(&mut bytes, &message.bytes)?;
            port::unicast(self.protocol(), to.port, &allocation::arc(Message { bytes, from, identity })?)?;
        }
        Ok(length)
    }
}

impl NetlinkSocket {
    /// The kernel answers what it is asked; an answer that finds no room is lost like any other message.
    fn ask(&self, datagram: &[u8]) -> Result<()> {
        let kernel = Identity { process: 0, user: 0, group: 0 };
        route::answer(datagram, self.address().port, &mut |bytes| {
            let message = allocation::arc(Message { bytes, from: Address::default(), identity: kernel })?;
            match self.port.put(&message) {
                Err(Error::WouldBlock) => {
                    self.port.lose();
                    Ok(())
                }
                outcome => outcome,
            }
        })
    }
}

impl FileOperations for NetlinkSocket {
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

    fn write(&self, _file: &OpenFile, _position: &mut u64, source: &mut Source<'_>) -> Result<usize> {
        self.send(source, Address::default(), identity_of_caller())
    }

    fn poll(&self, _file: &OpenFile, table: Option<&mut PollTable<'_>>) -> PollEvents {
        if let Some(table) = table {
            table.register(&self.port.pollers);
        }
        let mut ready = PollEvents::OUTPUT | PollEvents::WRITE_BAND;
        if self.port.has_overrun() {
            ready |= PollEvents::ERROR;
        }
        if !self.port.is_empty() {
            ready |= PollEvents::INPUT;
        }
        ready
    }

    fn ioctl(&self, _file: &OpenFile, command: u32, argument: UserAddr) -> Result<usize> {
        crate::link::ioctl(command, argument).unwrap_or(Err(Error::NotTerminal))
    }

    fn release(&self, _file: &OpenFile) {
        self.port.leave();
    }

    fn describe(&self, file: &OpenFile, out: &mut dyn fmt::Write) -> fmt::Result {
        write!(out, "socket:[{}]", file.inode().number)
    }
}
