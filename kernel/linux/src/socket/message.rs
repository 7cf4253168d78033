//! Sending and receiving.

use alloc::vec::Vec;
use core::mem::size_of;

use memory::buffer::{Sink, Source, UserRange};
use net::netlink::Address;
use net::unix::{Direction, Endpoint, Kind, Options, Received, Receiving, Sending, UnixSocket};
use vfs::Error;

use super::ancillary::{self, Incoming, Outgoing};
use super::create::{Family, Socket};
use super::{local, netlink};
use crate::abi::{MessageHeader, Timespec};
use crate::errno::{Errno, SysResult};
use crate::file::transfer::{broken_pipe, read_vectors, user_range};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Flags of messages.
mod flag {
    pub(super) const OUT_OF_BAND: u32 = 1;
    pub(super) const PEEK: u32 = 2;
    pub(super) const TRUNCATED: u32 = 0x20;
    pub(super) const DO_NOT_WAIT: u32 = 0x40;
    pub(super) const WAIT_ALL: u32 = 0x100;
    pub(super) const ERROR_QUEUE: u32 = 0x2000;
    pub(super) const NO_SIGNAL: u32 = 0x4000;
    pub(super) const WAIT_FOR_ONE: u32 = 0x10000;
    pub(super) const CLOSE_ON_EXEC: u32 = 0x4000_0000;
}

/// Most elements of a message's list of ranges.
const VECTORS_MAX: u64 = 1024;
/// Most messages of one call.
const MESSAGES_MAX: u32 = 1024;
/// Size of an element of `sendmmsg` and `recvmmsg`, and where the length stands in it.
const MULTIPLE_BYTES: u64 = 64;
const LENGTH_OFFSET: u64 = 56;

/// The errno of a call on a socket: with a limit of time a call is not restarted after a signal.
pub(super) fn errno_of(options: &Options, direction: Direction, error: Error) -> Errno {
    match error {
        Error::Interrupted if options.timeout_ns(direction).is_some() => Errno::EINTR,
        other => other.into(),
    }
}

/// Where a message goes, if the caller says it.
fn destination(
    task: &Task,
    socket: &UnixSocket,
    address: u64,
    length: usize,
) -> Result<Option<Endpoint>, Errno> {
    if address == 0 || length == 0 {
        if socket.kind() == Kind::Datagram {
            local::name_if_needed(socket)?;
        }
        return Ok(None);
    }
    let address = local::Address::read(address, length)?;
    match socket.kind() {
        Kind::Stream if socket.is_connected() => Err(Errno::EISCONN),
        Kind::Stream => Err(Errno::EOPNOTSUPP),
        Kind::SequentialPacket => Ok(None),
        Kind::Datagram => {
            let name = address.name()?;
            local::name_if_needed(socket)?;
            Ok(Some(local::find(task, socket, name)?))
        }
    }
}

/// Sends to an address, of which place and length are given.
pub(super) fn send(
    task: &Task,
    socket: &Socket,
    source: &mut Source<'_>,
    address: (u64, usize),
    with: Outgoing,
    flags: u32,
) -> SysResult {
    let unix = match socket.family()? {
        Family::Netlink(_) if flags & flag::OUT_OF_BAND != 0 => return Err(Errno::EOPNOTSUPP),
        Family::Netlink(netlink) => return netlink::send(task, netlink, source, address, with),
        Family::Unix(unix) => unix,
    };
    let urgent = flags & flag::OUT_OF_BAND != 0;
    // The last byte is the urgent one, so there must be one.
    let to = if urgent && (unix.kind() != Kind::Stream || source.is_empty()) {
        Err(Errno::EOPNOTSUPP)
    } else {
        destination(task, unix, address.0, address.1)
    };
    let to = match to {
        Ok(to) => to,
        Err(errno) => {
            if let Some(rights) = with.rights {
                rights.discard();
            }
            return Err(errno);
        }
    };
    let how = Sending {
        non_block: socket.0.non_block() || flags & flag::DO_NOT_WAIT != 0,
        rights: with.rights,
        to,
        identity: with.identity,
        urgent,
    };
    match unix.send(source, how) {
        Err(Error::BrokenPipe) if unix.kind() == Kind::Stream && flags & flag::NO_SIGNAL == 0 => {
            broken_pipe(task, Err(Error::BrokenPipe))
        }
        result => result.map_err(|error| errno_of(unix.options(), Direction::Send, error)),
    }
}

/// Sends a message.
#[inline(never)]
pub fn sendto(
    task: &mut Task,
    descriptor: i32,
    buffer: u64,
    length: usize,
    flags: u32,
    address: u64,
    address_length: i32,
) -> SysResult {
    let (buffer, length) = user_range(buffer, length)?;
    let socket = Socket::of(task, descriptor)?;
    let address_length = usize::try_from(address_length).map_err(|_| Errno::EINVAL)?;
    let source = &mut Source::user(buffer, length);
    send(task, &socket, source, (address, address_length), Outgoing::default(), flags)
}

/// Sends a message with what goes along with it.
#[inline(never)]
pub fn sendmsg(task: &mut Task, descriptor: i32, message: u64, flags: u32) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    send_one(task, &socket, message, flags)
}

fn send_one(task: &Task, socket: &Socket, message: u64, flags: u32) -> SysResult {
    let (header, ranges) = read_header(message)?;
    send_header(task, socket, &header, &ranges, flags)
}

/// A message's header, and the ranges of its contents.
///
/// # Errors
/// EFAULT, EMSGSIZE, ENOMEM, EINVAL.
pub(super) fn read_header(message: u64) -> Result<(MessageHeader, Vec<UserRange>), Errno> {
    let header: MessageHeader = UserPointer::new(message).read()?;
    if header.vectors > VECTORS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    let ranges = read_vectors(header.vector_list, header.vectors as usize)?;
    Ok((header, ranges))
}

/// Sends a message whose header was read.
pub(super) fn send_header(
    task: &Task,
    socket: &Socket,
    header: &MessageHeader,
    ranges: &[UserRange],
    flags: u32,
) -> SysResult {
    if header.control_length > i32::MAX as u64 {
        return Err(Errno::ENOBUFS);
    }
    let name_length = usize::try_from(header.name_length).map_err(|_| Errno::EINVAL)?;
    let passes_files = matches!(socket.family()?, Family::Unix(_));
    let outgoing = ancillary::read(task, passes_files, header.control, header.control_length as usize)?;
    send(task, socket, &mut Source::user_list(ranges), (header.name, name_length), outgoing, flags)
}

/// What was received, and from which address if senders have addresses.
pub(super) fn receive(
    socket: &Socket,
    sink: &mut Sink<'_>,
    flags: u32,
    sender: bool,
) -> Result<(Received, Option<Address>), Errno> {
    let family = socket.family()?;
    let urgent = flags & flag::OUT_OF_BAND != 0;
    if urgent && !matches!(family, Family::Unix(unix) if unix.kind() == Kind::Stream) {
        return Err(Errno::EOPNOTSUPP);
    }
    let non_block = socket.0.non_block() || flags & flag::DO_NOT_WAIT != 0;
    if flags & flag::ERROR_QUEUE != 0 {
        return Err(Errno::EAGAIN);
    }
    let how = Receiving {
        non_block,
        peek: flags & flag::PEEK != 0,
        all: flags & flag::WAIT_ALL != 0,
        whole_length: flags & flag::TRUNCATED != 0,
        sender,
        urgent,
    };
    let received = match family {
        Family::Unix(unix) => unix.receive(sink, how).map(|received| (received, None)),
        Family::Netlink(socket) => {
            netlink::receive(socket, sink, how).map(|(received, from)| (received, Some(from)))
        }
    };
    received.map_err(|error| errno_of(family.options(), Direction::Receive, error))
}

/// Receives a message.
#[inline(never)]
pub fn recvfrom(
    task: &mut Task,
    descriptor: i32,
    buffer: u64,
    length: usize,
    flags: u32,
    address: u64,
    address_length: u64,
) -> SysResult {
    let (buffer, length) = user_range(buffer, length)?;
    let socket = Socket::of(task, descriptor)?;
    let (received, from) = receive(&socket, &mut Sink::user(buffer, length), flags, address != 0)?;
    if let Some(from) = from.filter(|_| address != 0) {
        netlink::answer_address(from, address, address_length)?;
    } else if address != 0 {
        local::answer_sender(received.from.as_ref(), address, address_length)?;
    }
    Ok(received.result)
}

/// Receives a message with what came along with it.
#[inline(never)]
pub fn recvmsg(task: &mut Task, descriptor: i32, message: u64, flags: u32) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    receive_one(task, &socket, message, flags)
}

fn receive_one(task: &Task, socket: &Socket, message: u64, flags: u32) -> SysResult {
    let header: MessageHeader = UserPointer::new(message).read()?;
    if header.vectors > VECTORS_MAX {
        return Err(Errno::EMSGSIZE);
    }
    if i32::try_from(header.name_length).is_err() {
        return Err(Errno::EINVAL);
    }
    let ranges = read_vectors(header.vector_list, header.vectors as usize)?;
    receive_header(task, socket, message, header, &ranges, flags)
}

/// Receives a message whose header was read from that address; what came along is written there.
pub(super) fn receive_header(
    task: &Task,
    socket: &Socket,
    message: u64,
    mut header: MessageHeader,
    ranges: &[UserRange],
    flags: u32,
) -> SysResult {
    let (mut received, from) = receive(socket, &mut Sink::user_list(ranges), flags, header.name != 0)?;
    let room = header.control_length as usize;
    let mut incoming = Incoming::new(header.control, room);
    let outcome = incoming.write(task, &mut received, flags & flag::CLOSE_ON_EXEC != 0);
    if header.name != 0 {
        let room = header.name_length as usize;
        let written = match (from, &received.from) {
            (Some(from), _) => netlink::write_address(from, header.name, room)?,
            (None, Some(name)) => local::write_name(Some(name), header.name, room)?,
            (None, None) => 0,
        };
        header.name_length = written as _;
    }
    let truncated = if received.truncated { flag::TRUNCATED } else { 0 };
    let urgent = if received.urgent { flag::OUT_OF_BAND } else { 0 };
    header.flags = incoming.flags | (flags & flag::CLOSE_ON_EXEC) | truncated | urgent;
    outcome?;
    header.control_length = incoming.used(if header.control == 0 { 0 } else { room }) as u64;
    UserPointer::new(message).write(&header)?;
    Ok(received.result)
}

/// Sends several messages; returns how many were sent.
#[inline(never)]
pub fn sendmmsg(task: &mut Task, descriptor: i32, list: u64, count: u32, flags: u32) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    let mut done = 0;
    while done < count.min(MESSAGES_MAX) {
        let element = list.wrapping_add(u64::from(done) * MULTIPLE_BYTES);
        let sent = send_one(task, &socket, element, flags)
            .and_then(|sent| UserPointer::<u32>::new(element + LENGTH_OFFSET).write(&(sent as u32)));
        match sent {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done as usize)
}

/// Receives several messages; returns how many were received. The time is looked at after each one.
#[inline(never)]
pub fn recvmmsg(
    task: &mut Task,
    descriptor: i32,
    list: u64,
    count: u32,
    mut flags: u32,
    timeout: u64,
) -> SysResult {
    let deadline_ns = match UserPointer::<Timespec>::new(timeout).given() {
        None => None,
        Some(pointer) => {
            let timeout_ns = pointer.read()?.to_ns().ok_or(Errno::EINVAL)?;
            Some(machine::time::now_ns().saturating_add(timeout_ns))
        }
    };
    let socket = Socket::of(task, descriptor)?;
    let mut done = 0;
    while done < count.min(MESSAGES_MAX) {
        let element = list.wrapping_add(u64::from(done) * MULTIPLE_BYTES);
        let received = receive_one(task, &socket, element, flags & !flag::WAIT_FOR_ONE)
            .and_then(|length| UserPointer::<u32>::new(element + LENGTH_OFFSET).write(&(length as u32)));
        match received {
            Ok(()) => done += 1,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
        if flags & flag::WAIT_FOR_ONE != 0 {
            flags |= flag::DO_NOT_WAIT;
        }
        if deadline_ns.is_some_and(|deadline| machine::time::now_ns() >= deadline) {
            break;
        }
    }
    if let Some(deadline) = deadline_ns {
        let left = Timespec::from_ns(deadline.saturating_sub(machine::time::now_ns()));
        UserPointer::<Timespec>::new(timeout).write(&left)?;
    }
    Ok(done as usize)
}

const _: () = assert!(size_of::<MessageHeader>() as u64 == LENGTH_OFFSET);
