//! Making sockets, shutting them down, and their names.

use alloc::sync::Arc;

use net::netlink::{Address, NetlinkSocket};
use net::unix::{Half, Identity, Kind, Options, Ownership, UnixSocket};
use vfs::OpenFile;
use vfs::flags::OpenFlags;

use super::{local, netlink};
use crate::errno::{Errno, SysResult};
use crate::file::context::descriptor_flags;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// `AF_UNIX`
pub(super) const FAMILY_UNIX: i32 = 1;
const FAMILIES: i32 = 46;
const STREAM: u32 = 1;
pub(super) const DATAGRAM: u32 = 2;
pub(super) const RAW: u32 = 3;
const SEQUENTIAL_PACKET: u32 = 5;
const TYPES: u32 = 11;
/// The part of the type that is the type; the rest are flags.
const TYPE_MASK: u32 = 0xf;

/// Splits the type from its flags.
fn split_type(kind: u32) -> Result<(u32, OpenFlags), Errno> {
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCK;
    let flags = kind & !TYPE_MASK;
    if flags & !known.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    Ok((kind & TYPE_MASK, OpenFlags::from_bits_truncate(flags)))
}

fn check_family(family: i32, kind: u32) -> Result<(), Errno> {
    if !(0..FAMILIES).contains(&family) {
        return Err(Errno::EAFNOSUPPORT);
    }
    if kind >= TYPES { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Makes a socket that is connected to nobody.
#[inline(never)]
pub fn socket(task: &mut Task, family: i32, kind: u32, protocol: i32) -> SysResult {
    let (kind, flags) = split_type(kind)?;
    check_family(family, kind)?;
    match family {
        netlink::FAMILY => netlink::create(task, kind, protocol, flags),
        FAMILY_UNIX => create_local(task, kind, protocol, flags),
        _ => Err(Errno::EAFNOSUPPORT),
    }
}

/// Makes a local socket.
fn create_local(task: &Task, kind: u32, protocol: i32, flags: OpenFlags) -> SysResult {
    check_local_protocol(protocol)?;
    let kind = kind_of(kind)?;
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let number = reserved.descriptor();
    let owner = &task.credentials.file;
    let file = net::unix::create(kind, flags, (owner.user, owner.group), task.network().number())?;
    reserved.install(file, descriptor_flags(flags.contains(OpenFlags::CLOSE_ON_EXEC)));
    Ok(number as usize)
}

fn check_local_protocol(protocol: i32) -> Result<(), Errno> {
    if protocol == 0 || protocol == FAMILY_UNIX { Ok(()) } else { Err(Errno::EPROTONOSUPPORT) }
}

/// The kind of a local socket.
fn kind_of(kind: u32) -> Result<Kind, Errno> {
    match kind {
        STREAM => Ok(Kind::Stream),
        DATAGRAM | RAW => Ok(Kind::Datagram),
        SEQUENTIAL_PACKET => Ok(Kind::SequentialPacket),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// Makes two sockets connected to each other.
#[inline(never)]
pub fn socketpair(task: &mut Task, family: i32, kind: u32, protocol: i32, out: u64) -> SysResult {
    let (kind, flags) = split_type(kind)?;
    let limit = task.descriptor_limit();
    let reserved = (task.files.reserve(limit)?, task.files.reserve(limit)?);
    let numbers = [reserved.0.descriptor(), reserved.1.descriptor()];
    UserPointer::<[u32; 2]>::new(out).write(&numbers)?;
    check_family(family, kind)?;
    if family == netlink::FAMILY {
        netlink::check_kind(kind, protocol)?;
        return Err(Errno::EOPNOTSUPP);
    }
    if family != FAMILY_UNIX {
        return Err(Errno::EAFNOSUPPORT);
    }
    check_local_protocol(protocol)?;
    let kind = kind_of(kind)?;
    let file = &task.credentials.file;
    let owner = Ownership {
        maker: local::principal_of(task),
        user: file.user,
        group: file.group,
        network: task.network().number(),
    };
    let (first, second) = net::unix::create_pair(kind, flags, owner)?;
    let flags = descriptor_flags(flags.contains(OpenFlags::CLOSE_ON_EXEC));
    reserved.0.install(first, flags);
    reserved.1.install(second, flags);
    Ok(0)
}

/// Whose message it is that `write` sends: the caller's real ids.
pub(crate) fn identity_of_caller() -> Identity {
    let Some(thread) = crate::terminal::calling_thread() else { return Identity::UNKNOWN };
    let credentials = thread.credentials();
    Identity { process: thread.process().pid(), user: credentials.user.real, group: credentials.group.real }
}

/// An open file that is known to be a socket.
pub(super) struct Socket(pub(super) Arc<OpenFile>);

/// What a socket is.
#[derive(Clone, Copy)]
pub(super) enum Family<'a> {
    /// A local socket.
    Unix(&'a UnixSocket),
    /// A netlink socket.
    Netlink(&'a NetlinkSocket),
}

impl Family<'_> {
    /// Its options.
    pub(super) fn options(&self) -> &Options {
        match self {
            Self::Unix(unix) => unix.options(),
            Self::Netlink(netlink) => netlink.options(),
        }
    }
}

impl Socket {
    /// The socket of a descriptor.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK.
    pub(super) fn of(task: &Task, descriptor: i32) -> Result<Socket, Errno> {
        Self::from_file(task.usable_file(descriptor)?)
    }

    /// The socket that an open file is.
    ///
    /// # Errors
    /// ENOTSOCK.
    pub(super) fn from_file(file: Arc<OpenFile>) -> Result<Socket, Errno> {
        let socket = Socket(file);
        socket.family()?;
        Ok(socket)
    }

    /// Ends a direction of transfer, or both.
    pub(super) fn shut_down(&self, how: i32) -> SysResult {
        let half = match how {
            0 => Half::Receive,
            1 => Half::Send,
            2 => Half::Both,
            _ => return Err(Errno::EINVAL),
        };
        match self.family()? {
            Family::Unix(unix) => unix.shut_down(half),
            Family::Netlink(_) => return Err(Errno::EOPNOTSUPP),
        }
        Ok(0)
    }

    /// What it is.
    pub(super) fn family(&self) -> Result<Family<'_>, Errno> {
        let unix = self.0.object().map(Family::Unix);
        unix.or_else(|| self.0.object().map(Family::Netlink)).ok_or(Errno::ENOTSOCK)
    }
}

/// The netlink socket that an open file is.
///
/// # Errors
/// ENOTSOCK; EINVAL for other sockets.
pub(crate) fn netlink_of(file: &OpenFile) -> Result<&NetlinkSocket, Errno> {
    let other = || if file.object::<UnixSocket>().is_some() { Errno::EINVAL } else { Errno::ENOTSOCK };
    file.object().ok_or_else(other)
}

/// Whether it is a socket that sends messages, not a stream.
pub(crate) fn takes_messages(file: &OpenFile) -> bool {
    file.object::<UnixSocket>().is_some_and(|socket| socket.kind() != Kind::Stream)
        || file.object::<NetlinkSocket>().is_some()
}

/// The number of a kind (`SO_TYPE`).
pub(crate) fn type_number(kind: Kind) -> u32 {
    match kind {
        Kind::Stream => STREAM,
        Kind::Datagram => DATAGRAM,
        Kind::SequentialPacket => SEQUENTIAL_PACKET,
    }
}

/// Ends a direction of transfer, or both.
pub fn shutdown(task: &mut Task, descriptor: i32, how: i32) -> SysResult {
    Socket::of(task, descriptor)?.shut_down(how)
}

/// Gives a socket its address.
pub fn bind(task: &mut Task, descriptor: i32, address: u64, length: i32) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    match socket.family()? {
        Family::Unix(unix) => {
            let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
            local::bind(task, &socket.0, unix, address, length)
        }
        Family::Netlink(socket) => netlink::bind(task, socket, address, length),
    }
}

/// Lets others connect to a socket.
pub fn listen(task: &mut Task, descriptor: i32, backlog: i32) -> SysResult {
    match Socket::of(task, descriptor)?.family()? {
        Family::Unix(unix) => local::listen(task, unix, backlog),
        Family::Netlink(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// Connects a socket to another one.
#[inline(never)]
pub fn connect(task: &mut Task, descriptor: i32, address: u64, length: i32) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    let address = local::Address::read(address, length)?;
    match socket.family()? {
        Family::Unix(unix) => local::connect(task, &socket.0, unix, &address),
        Family::Netlink(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// Takes a connection that waits.
pub fn accept(task: &mut Task, descriptor: i32, address: u64, length: u64) -> SysResult {
    accept4(task, descriptor, address, length, 0)
}

/// Takes a connection that waits, with flags for the new descriptor.
#[inline(never)]
pub fn accept4(task: &mut Task, descriptor: i32, address: u64, length: u64, flags: u32) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    let known = OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCK;
    if flags & !known.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    let flags = OpenFlags::from_bits_truncate(flags);
    match socket.family()? {
        Family::Unix(unix) => local::accept(task, &socket, unix, (address, length), flags),
        Family::Netlink(_) => Err(Errno::EOPNOTSUPP),
    }
}

/// The socket's own address.
pub fn getsockname(task: &mut Task, descriptor: i32, address: u64, length: u64) -> SysResult {
    match Socket::of(task, descriptor)?.family()? {
        Family::Unix(unix) => local::answer_name(unix.name().map(|name| &**name), address, length),
        Family::Netlink(socket) => netlink::answer_address(socket.address(), address, length),
    }
}

/// The address of the socket at the other end.
pub fn getpeername(task: &mut Task, descriptor: i32, address: u64, length: u64) -> SysResult {
    match Socket::of(task, descriptor)?.family()? {
        Family::Unix(unix) => local::answer_name(unix.peer_name()?.as_deref(), address, length),
        // The kernel's.
        Family::Netlink(_) => netlink::answer_address(Address::default(), address, length),
    }
}
