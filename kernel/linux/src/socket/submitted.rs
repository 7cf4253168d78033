//! Calls on sockets as rings make them: on open files, with what was read of the program's memory before.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::buffer::{Sink, Source, UserRange};
use net::unix::Kind;
use vfs::OpenFile;
use vfs::flags::OpenFlags;

use super::ancillary::Outgoing;
use super::create::{Family, Socket};
use super::{local, message};
use crate::abi::MessageHeader;
use crate::errno::{Errno, SysResult};
use crate::task::Task;

pub(crate) use super::local::Address;

/// `MSG_DONTWAIT`
pub(crate) const DO_NOT_WAIT: u32 = 0x40;
/// `MSG_WAITALL`
pub(crate) const WAIT_ALL: u32 = 0x100;
/// `MSG_NOSIGNAL`: what is sent for a ring fails without a signal.
const NO_SIGNAL: u32 = 0x4000;

/// A message's header and ranges.
pub(crate) fn read_header(address: u64) -> Result<(MessageHeader, Vec<UserRange>), Errno> {
    message::read_header(address)
}

/// Sends bytes.
pub(crate) fn send(task: &Task, file: Arc<OpenFile>, ranges: &[UserRange], flags: u32) -> SysResult {
    let socket = Socket::from_file(file)?;
    let source = &mut Source::user_list(ranges);
    message::send(task, &socket, source, (0, 0), Outgoing::default(), flags | NO_SIGNAL)
}

/// Receives bytes.
pub(crate) fn receive(file: Arc<OpenFile>, ranges: &[UserRange], flags: u32) -> SysResult {
    let socket = Socket::from_file(file)?;
    Ok(message::receive(&socket, &mut Sink::user_list(ranges), flags, false)?.0.result)
}

/// Sends a message.
pub(crate) fn send_message(
    task: &Task,
    file: Arc<OpenFile>,
    header: &MessageHeader,
    ranges: &[UserRange],
    flags: u32,
) -> SysResult {
    message::send_header(task, &Socket::from_file(file)?, header, ranges, flags | NO_SIGNAL)
}

/// Receives a message into what stands at an address.
pub(crate) fn receive_message(
    task: &Task,
    file: Arc<OpenFile>,
    (address, header): (u64, MessageHeader),
    ranges: &[UserRange],
    flags: u32,
) -> SysResult {
    message::receive_header(task, &Socket::from_file(file)?, address, header, ranges, flags)
}

/// Takes a connection that waits.
pub(crate) fn accept(
    task: &Task,
    file: Arc<OpenFile>,
    address: (u64, u64),
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    let socket = Socket::from_file(file)?;
    match socket.family()? {
        Family::Unix(unix) => local::accept_file(task, &socket, unix, address, flags),
        Family::Netlink(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// Connects.
pub(crate) fn connect(task: &Task, file: Arc<OpenFile>, address: &Address) -> SysResult {
    let socket = Socket::from_file(file)?;
    match socket.family()? {
        Family::Unix(unix) => local::connect(task, &socket.0, unix, address),
        Family::Netlink(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// Ends a direction of transfer, or both.
pub(crate) fn shut_down(file: Arc<OpenFile>, how: i32) -> SysResult {
    Socket::from_file(file)?.shut_down(how)
}

/// Whether there is more to be received.
pub(crate) fn has_more(file: &OpenFile) -> bool {
    let stream = file.object::<net::unix::UnixSocket>().filter(|socket| socket.kind() == Kind::Stream);
    stream.is_some_and(|socket| socket.bytes_to_read().is_ok_and(|bytes| bytes > 0))
}
