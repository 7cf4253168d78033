//! Netlink sockets (netlink(7)): addresses, sending, options.

use core::mem::size_of;

use memory::buffer::{Sink, Source};
use net::netlink::{Address, DEVICE_EVENTS, NetlinkSocket, ROUTES};
use net::unix::{Received, Receiving};
use vfs::Capabilities;
use vfs::flags::OpenFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::ancillary::Outgoing;
use super::create::{DATAGRAM, RAW, identity_of_caller};
use crate::errno::{Errno, SysResult};
use crate::file::context::descriptor_flags;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

/// `AF_NETLINK`
pub(super) const FAMILY: i32 = 16;
/// `SOL_NETLINK`
pub(super) const LEVEL: i32 = 270;

/// Numbers of options.
mod option {
    pub(super) const ADD_MEMBERSHIP: i32 = 1;
    pub(super) const DROP_MEMBERSHIP: i32 = 2;
    pub(super) const NO_LOSSES_TOLD: i32 = 5;
}

/// `struct sockaddr_nl`
#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct SocketAddress {
    family: u16,
    padding: u16,
    port: u32,
    groups: u32,
}

/// Whether there are such sockets.
///
/// # Errors
/// ESOCKTNOSUPPORT, EPROTONOSUPPORT.
pub(super) fn check_kind(kind: u32, protocol: i32) -> Result<(), Errno> {
    match kind {
        DATAGRAM | RAW if [ROUTES as i32, DEVICE_EVENTS as i32].contains(&protocol) => Ok(()),
        DATAGRAM | RAW => Err(Errno::EPROTONOSUPPORT),
        _ => Err(Errno::ESOCKTNOSUPPORT),
    }
}

/// Makes a socket.
///
/// # Errors
/// Those of [`check_kind`], EMFILE, ENFILE, ENOMEM.
pub(super) fn create(task: &Task, kind: u32, protocol: i32, flags: OpenFlags) -> SysResult {
    check_kind(kind, protocol)?;
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let number = reserved.descriptor();
    let owner = &task.credentials.file;
    let file = net::netlink::create(protocol as u32, kind == RAW, flags, owner.user, owner.group)?;
    reserved.install(file, descriptor_flags(flags.contains(OpenFlags::CLOSE_ON_EXEC)));
    Ok(number as usize)
}

/// Reads an address.
///
/// # Errors
/// EINVAL, EFAULT.
fn read_address(address: u64, length: usize) -> Result<Address, Errno> {
    /// Most bytes of any address.
    const MAX: usize = 128;
    if length > MAX || length < size_of::<SocketAddress>() {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; size_of::<SocketAddress>()];
    read_bytes(address, &mut bytes)?;
    let SocketAddress { family, port, groups, .. } =
        SocketAddress::read_from_bytes(&bytes).map_err(|_| Errno::EINVAL)?;
    if i32::from(family) != FAMILY {
        return Err(Errno::EINVAL);
    }
    Ok(Address { port, groups })
}

/// Writes an address, as much of it as there is room for; its whole length.
///
/// # Errors
/// EFAULT.
pub(super) fn write_address(from: Address, to: u64, room: usize) -> Result<usize, Errno> {
    let address = SocketAddress { family: FAMILY as u16, padding: 0, port: from.port, groups: from.groups };
    let bytes = address.as_bytes();
    write_bytes(to, &bytes[..bytes.len().min(room)])?;
    Ok(bytes.len())
}

/// Writes an address for a call that gives the room for it and wants the length there.
///
/// # Errors
/// EINVAL, EFAULT.
pub(super) fn answer_address(from: Address, to: u64, length: u64) -> SysResult {
    let length = UserPointer::<i32>::new(length);
    let room = usize::try_from(length.read()?).map_err(|_| Errno::EINVAL)?;
    let whole = write_address(from, to, room)?;
    length.write(&(whole as i32))?;
    Ok(0)
}

/// Gives a socket its number and groups. Everybody may listen to the events of devices.
///
/// # Errors
/// EINVAL, EADDRINUSE, EFAULT, ENOMEM.
pub(super) fn bind(task: &Task, socket: &NetlinkSocket, address: u64, length: i32) -> SysResult {
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    socket.bind(read_address(address, length)?, task.process().pid())?;
    Ok(0)
}

/// Sends to an address, or without one to the kernel.
///
/// # Errors
/// EPERM for groups and other programs without the capability; those of the address and of [`NetlinkSocket::send`].
pub(super) fn send(
    task: &Task,
    socket: &NetlinkSocket,
    source: &mut Source<'_>,
    address: (u64, usize),
    with: Outgoing,
) -> SysResult {
    let to = match address {
        (0, _) | (_, 0) => Address::default(),
        (address, length) => read_address(address, length)?,
    };
    if to != Address::default() && !task.credentials.file.has(Capabilities::NET_ADMIN) {
        return Err(Errno::EPERM);
    }
    let identity = with.identity.unwrap_or_else(identity_of_caller);
    Ok(socket.send(source, to, identity)?)
}

/// Receives a message, and says who sent it.
pub(super) fn receive(
    socket: &NetlinkSocket,
    sink: &mut Sink<'_>,
    how: Receiving,
) -> vfs::Result<(Received, Address)> {
    let received = socket.receive(sink, how)?;
    let net::netlink::Received { result, truncated, identity, from } = received;
    Ok((Received { result, truncated, identity, ..Received::default() }, from))
}

/// Changes an option of the family.
///
/// # Errors
/// ENOPROTOOPT, EINVAL, EFAULT, ENOMEM.
pub(super) fn set_option(socket: &NetlinkSocket, name: i32, value: u64, length: usize) -> SysResult {
    let number = || {
        if length < size_of::<u32>() { Err(Errno::EINVAL) } else { UserPointer::<u32>::new(value).read() }
    };
    match name {
        option::ADD_MEMBERSHIP => socket.set_member(number()?, true)?,
        option::DROP_MEMBERSHIP => socket.set_member(number()?, false)?,
        option::NO_LOSSES_TOLD => socket.set_quiet(number()? != 0),
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}

/// Tells an option of the family.
///
/// # Errors
/// ENOPROTOOPT.
pub(super) fn option(socket: &NetlinkSocket, name: i32) -> Result<u32, Errno> {
    if name == option::NO_LOSSES_TOLD { Ok(socket.is_quiet().into()) } else { Err(Errno::ENOPROTOOPT) }
}
