//! What is looked at when an entry is taken: whether it makes sense, and what of the program's memory must be copied now, because it may be
//! something else when the operation is executed.

use super::super::abi::{Entry, entry, operation as op};
use super::super::request::Prepared;
use super::{file, message, poll, socket, timeout};
use crate::errno::Errno;
use crate::file::transfer;
use crate::socket::submitted;

/// `IORING_MSG_DATA`: the only message.
const DATA: u64 = 0;

/// Checks an entry and copies what it refers to.
///
/// # Errors
/// EINVAL, EFAULT, ENOMEM and others: how the request ends.
pub(in super::super) fn prepare(entry: &Entry, follows_link: bool) -> Result<Prepared, Errno> {
    if entry.flags & !entry::KNOWN != 0 || entry.operation >= op::COUNT {
        return Err(Errno::EINVAL);
    }
    if entry.flags & entry::SELECT_BUFFER != 0 && !selects_buffers(entry.operation) {
        return Err(Errno::EOPNOTSUPP);
    }
    if entry.priority != 0 && !has_priority(entry.operation) {
        return Err(Errno::EINVAL);
    }
    match entry.operation {
        op::READ_VECTORS | op::WRITE_VECTORS => {
            let ranges = transfer::read_vectors(entry.address, entry.length as usize)?;
            if entry.flags & entry::SELECT_BUFFER != 0 && ranges.len() != 1 {
                return Err(Errno::EINVAL);
            }
            Ok(Prepared::Ranges(ranges))
        }
        op::SEND_MESSAGE | op::RECEIVE_MESSAGE => {
            check_socket(entry)?;
            let (header, ranges) = submitted::read_header(entry.address)?;
            Ok(Prepared::Message(header, ranges))
        }
        op::SEND | op::RECEIVE => check_socket(entry).map(|()| Prepared::None),
        op::TIMEOUT | op::LINK_TIMEOUT => prepare_timeout(entry, follows_link),
        op::TIMEOUT_REMOVE => prepare_timeout_removal(entry),
        op::CONNECT => {
            unused(&[
                entry.length.into(),
                entry.buffer.into(),
                entry.operation_flags.into(),
                entry.other.into(),
            ])?;
            let length = usize::try_from(entry.offset).map_err(|_| Errno::EINVAL)?;
            Ok(Prepared::Address(submitted::Address::read(entry.address, length)?))
        }
        _ => check(entry).map(|()| Prepared::None),
    }
}

fn selects_buffers(operation: u8) -> bool {
    matches!(operation, op::READ | op::READ_VECTORS | op::RECEIVE | op::RECEIVE_MESSAGE)
}

fn has_priority(operation: u8) -> bool {
    let transfers = matches!(
        operation,
        op::READ | op::WRITE | op::READ_VECTORS | op::WRITE_VECTORS | op::READ_FIXED | op::WRITE_FIXED
    );
    let sockets =
        matches!(operation, op::SEND | op::RECEIVE | op::SEND_MESSAGE | op::RECEIVE_MESSAGE | op::ACCEPT);
    transfers || sockets
}

/// Parts of an entry that must be zero.
fn unused(parts: &[u64]) -> Result<(), Errno> {
    if parts.iter().any(|part| *part != 0) { Err(Errno::EINVAL) } else { Ok(()) }
}

fn check_socket(entry: &Entry) -> Result<(), Errno> {
    unused(&[entry.offset, entry.other.into()])?;
    if entry.priority & !socket::POLL_FIRST != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn prepare_timeout(entry: &Entry, follows_link: bool) -> Result<Prepared, Errno> {
    let is_limit = entry.operation == op::LINK_TIMEOUT;
    unused(&[entry.buffer.into(), entry.other.into()])?;
    let makes_sense = entry.length == 1
        && entry.operation_flags & !timeout::KNOWN == 0
        && entry.offset <= u32::MAX.into()
        && is_limit == follows_link
        && !(is_limit && entry.offset != 0);
    if !makes_sense && (is_limit || entry.length != 1 || entry.operation_flags & !timeout::KNOWN != 0) {
        return Err(Errno::EINVAL);
    }
    timeout::read_time(entry.address, entry.operation_flags)
}

fn prepare_timeout_removal(entry: &Entry) -> Result<Prepared, Errno> {
    unused(&[entry.buffer.into(), entry.length.into(), entry.other.into()])?;
    match entry.operation_flags {
        0 => Ok(Prepared::None),
        flags if flags & !timeout::UPDATE_KNOWN != 0 || flags & timeout::CHANGES == 0 => Err(Errno::EINVAL),
        flags => timeout::read_time(entry.offset, flags),
    }
}

fn check(entry: &Entry) -> Result<(), Errno> {
    let refused = match entry.operation {
        op::SYNC => {
            entry.address != 0
                || entry.buffer != 0
                || entry.other != 0
                || entry.operation_flags & !file::DATA_ONLY != 0
        }
        op::SYNC_RANGE => entry.address != 0 || entry.buffer != 0 || entry.other != 0,
        op::ALLOCATE => entry.buffer != 0 || entry.operation_flags != 0 || entry.other != 0,
        op::ADVISE_FILE | op::ADVISE_MEMORY => entry.buffer != 0 || entry.other != 0,
        op::POLL_ADD => {
            entry.buffer != 0
                || entry.offset != 0
                || entry.address != 0
                || entry.length & !poll::MULTIPLE != 0
        }
        op::POLL_REMOVE => {
            let flags = entry.length;
            flags & !poll::UPDATE_KNOWN != 0 || flags == poll::MULTIPLE || entry.buffer != 0
        }
        op::CANCEL => {
            poll::check_cancel(entry)?;
            entry.offset != 0
        }
        op::ACCEPT => {
            entry.length != 0
                || entry.buffer != 0
                || entry.priority & !socket::ACCEPT_MULTIPLE != 0
                || (entry.priority != 0 && entry.other != 0)
        }
        op::SHUT_DOWN => entry.offset != 0 || entry.address != 0 || entry.buffer != 0 || entry.other != 0,
        op::OPEN | op::OPEN2 => entry.buffer != 0,
        op::CLOSE => {
            entry.offset != 0
                || entry.address != 0
                || entry.length != 0
                || entry.operation_flags != 0
                || (entry.other != 0 && entry.descriptor != 0)
        }
        op::STATUS => entry.buffer != 0 || entry.other != 0,
        op::EPOLL_CONTROL => entry.buffer != 0 || entry.other != 0,
        op::PROVIDE_BUFFERS => {
            message::provided(entry)?;
            false
        }
        op::REMOVE_BUFFERS => {
            message::check_remove(entry)?;
            false
        }
        op::FILES_UPDATE => entry.operation_flags != 0 || entry.other != 0 || entry.length == 0,
        op::MESSAGE_RING => entry.address != DATA || entry.operation_flags != 0 || entry.buffer != 0,
        op::RENAME | op::UNLINK | op::MAKE_DIRECTORY | op::SYMBOLIC_LINK | op::HARD_LINK => {
            entry.buffer != 0 || entry.other != 0
        }
        op::GET_XATTR | op::GET_XATTR_OF_FILE => entry.operation_flags != 0,
        _ => false,
    };
    if refused {
        return Err(Errno::EINVAL);
    }
    let by_number = matches!(
        entry.operation,
        op::OPEN
            | op::OPEN2
            | op::CLOSE
            | op::STATUS
            | op::RENAME
            | op::UNLINK
            | op::MAKE_DIRECTORY
            | op::SYMBOLIC_LINK
            | op::HARD_LINK
            | op::SET_XATTR
            | op::GET_XATTR
    );
    if by_number && file::refuses_fixed(entry.flags) { Err(Errno::EBADF) } else { Ok(()) }
}
