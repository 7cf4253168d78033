//! Local sockets by name (unix(7)): addresses, binding, listening, connecting, accepting.

use alloc::sync::Arc;
use core::mem::size_of;

use net::unix::{Direction, Endpoint, Identity, Kind, NAME_MAX, Name, Principal, UnixSocket};
use vfs::flags::{Access, LookupFlags, OpenFlags};
use vfs::{DeviceNumber, Error, FileKind, OpenFile};

use super::create::{FAMILY_UNIX, Socket};
use super::message::errno_of;
use crate::errno::{Errno, SysResult};
use crate::file::context::descriptor_flags;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

/// Most bytes of any address.
pub(super) const ADDRESS_MAX: usize = 128;
/// Bytes before the name.
const FAMILY_BYTES: usize = size_of::<u16>();

/// An address as a program gave it.
#[derive(Clone, Copy)]
pub(crate) struct Address {
    bytes: [u8; ADDRESS_MAX],
    length: usize,
}

impl Address {
    /// Reads an address.
    ///
    /// # Errors
    /// EINVAL, EFAULT.
    pub(crate) fn read(address: u64, length: usize) -> Result<Address, Errno> {
        if length > ADDRESS_MAX {
            return Err(Errno::EINVAL);
        }
        let mut bytes = [0; ADDRESS_MAX];
        read_bytes(address, &mut bytes[..length])?;
        Ok(Address { bytes, length })
    }

    /// The family, if there is one.
    fn family(&self) -> Option<i32> {
        let family = [self.bytes[0], self.bytes[1]];
        (self.length >= FAMILY_BYTES).then_some(u16::from_ne_bytes(family).into())
    }

    /// Whether it says that a name is to be chosen.
    fn is_empty(&self) -> bool {
        self.length == FAMILY_BYTES && self.family() == Some(FAMILY_UNIX)
    }

    /// The name in it: a path, or a zero byte and an abstract name.
    ///
    /// # Errors
    /// EINVAL.
    pub(super) fn name(&self) -> Result<&[u8], Errno> {
        let fits = self.length > FAMILY_BYTES && self.length <= FAMILY_BYTES + NAME_MAX;
        if !fits || self.family() != Some(FAMILY_UNIX) {
            return Err(Errno::EINVAL);
        }
        let name = &self.bytes[FAMILY_BYTES..self.length];
        match name.iter().position(|&byte| byte == 0) {
            None | Some(0) => Ok(name),
            Some(end) => Ok(&name[..end]),
        }
    }
}

/// The socket that has a name, of the kind and in the network of the one that asks. Who sends to a file must be allowed to write it.
///
/// # Errors
/// ECONNREFUSED, EPROTOTYPE, and those of walking a path.
pub(super) fn find(task: &Task, socket: &UnixSocket, name: &[u8]) -> Result<Endpoint, Error> {
    let kind = socket.kind();
    if name[0] == 0 {
        return net::unix::find_abstract(name, kind, socket.network());
    }
    let places = task.file_system.places();
    let context = task.path_context(&places);
    let place = context.walk(&places.cwd, name, LookupFlags::FOLLOW)?;
    context.check_place(&place, Access::WRITE)?;
    let inode = place.inode()?;
    if inode.kind != FileKind::Socket {
        return Err(Error::ConnectionRefused);
    }
    net::unix::find_file(inode, kind)
}

/// Who it is that others see at the other end.
pub(super) fn principal_of(task: &Task) -> Principal {
    let credentials = &task.credentials;
    let identity = Identity {
        process: task.process().pid(),
        user: credentials.user.effective,
        group: credentials.group.effective,
    };
    Principal { identity, groups: credentials.file.groups.clone() }
}

/// A socket that wants to know who sends has a name, so that it can be answered.
///
/// # Errors
/// ENOSPC, ENOMEM.
pub(super) fn name_if_needed(socket: &UnixSocket) -> Result<(), Error> {
    if socket.options().passes_identity() { socket.bind_automatically() } else { Ok(()) }
}

/// Gives a socket a name.
pub(super) fn bind(
    task: &Task,
    file: &OpenFile,
    socket: &UnixSocket,
    address: u64,
    length: usize,
) -> SysResult {
    let address = Address::read(address, length)?;
    if address.is_empty() {
        socket.bind_automatically()?;
        return Ok(0);
    }
    let name = address.name()?;
    if name[0] == 0 {
        socket.bind_abstract(name)?;
        return Ok(0);
    }
    let places = task.file_system.places();
    let context = task.path_context(&places);
    if socket.is_bound() {
        let exists = context.walk(&places.cwd, name, LookupFlags::empty()).is_ok();
        return Err(if exists { Errno::EADDRINUSE } else { Errno::EINVAL });
    }
    // The mask counts for sockets' names even where a directory's default access list does.
    let mode = file.status().mode & 0o7777 & !task.file_system.umask();
    let place = context
        .make_special(&places.cwd, name, FileKind::Socket, mode, DeviceNumber::default())
        .map_err(|error| if error == Error::Exists { Errno::EADDRINUSE } else { error.into() })?;
    let mut terminated = [0; NAME_MAX + 1];
    terminated[..name.len()].copy_from_slice(name);
    socket.bind_file(&terminated[..=name.len()], place).inspect_err(|_| {
        // The file is this call's: its name is given up if it still can be.
        let _ = context.unlink(&places.cwd, name);
    })?;
    Ok(0)
}

/// Lets others connect.
pub(super) fn listen(task: &Task, socket: &UnixSocket, backlog: i32) -> SysResult {
    // A negative number is a great one.
    socket.listen(backlog as u32, principal_of(task))?;
    Ok(0)
}

/// Connects a socket to another one.
pub(super) fn connect(task: &Task, file: &OpenFile, socket: &UnixSocket, address: &Address) -> SysResult {
    if socket.kind() == Kind::Datagram {
        /// `AF_UNSPEC`
        const NONE: i32 = 0;
        let target = match address.family().ok_or(Errno::EINVAL)? {
            NONE => None,
            _ => {
                let name = address.name()?;
                name_if_needed(socket)?;
                Some(find(task, socket, name)?)
            }
        };
        socket.redirect(target)?;
        return Ok(0);
    }
    let name = address.name()?;
    name_if_needed(socket)?;
    let find = || find(task, socket, name);
    socket
        .connect(find, file.non_block(), &principal_of(task))
        .map_err(|error| errno_of(socket.options(), Direction::Send, error))?;
    Ok(0)
}

/// Makes a descriptor of the first connection that waits, and says who connected.
pub(super) fn accept(
    task: &Task,
    listener: &Socket,
    socket: &UnixSocket,
    address: (u64, u64),
    flags: OpenFlags,
) -> SysResult {
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let number = reserved.descriptor();
    let file = accept_file(task, listener, socket, address, flags)?;
    reserved.install(file, descriptor_flags(flags.contains(OpenFlags::CLOSE_ON_EXEC)));
    Ok(number as usize)
}

/// The first connection that waits, as an open file; says who connected.
pub(super) fn accept_file(
    task: &Task,
    listener: &Socket,
    socket: &UnixSocket,
    address: (u64, u64),
    flags: OpenFlags,
) -> Result<Arc<OpenFile>, Errno> {
    let owner = &task.credentials.file;
    let file = socket
        .accept(listener.0.non_block(), flags, owner.user, owner.group)
        .map_err(|error| errno_of(socket.options(), Direction::Receive, error))?;
    if address.0 != 0
        && let Some(accepted) = file.object::<UnixSocket>()
    {
        answer_name(accepted.peer_name()?.as_deref(), address.0, address.1)?;
    }
    Ok(file)
}

/// Writes the address that a name makes, as much of it as there is room for; its whole length.
///
/// # Errors
/// EFAULT.
pub(super) fn write_name(name: Option<&Name>, to: u64, room: usize) -> Result<usize, Errno> {
    let mut bytes = [0; FAMILY_BYTES + NAME_MAX + 1];
    bytes[..FAMILY_BYTES].copy_from_slice(&(FAMILY_UNIX as u16).to_ne_bytes());
    let name = name.map_or(&[][..], Name::as_bytes);
    let whole = FAMILY_BYTES + name.len();
    bytes[FAMILY_BYTES..whole].copy_from_slice(name);
    write_bytes(to, &bytes[..whole.min(room)])?;
    Ok(whole)
}

/// Writes an address for a call that gives the room for it and wants the length there.
///
/// # Errors
/// EINVAL, EFAULT.
pub(super) fn answer_name(name: Option<&Name>, to: u64, length: u64) -> SysResult {
    let length = UserPointer::<i32>::new(length);
    let room = usize::try_from(length.read()?).map_err(|_| Errno::EINVAL)?;
    let whole = write_name(name, to, room)?;
    length.write(&(whole as i32))?;
    Ok(0)
}

/// Who sent a message: without a name nothing is written, and the length is 0.
///
/// # Errors
/// EINVAL, EFAULT.
pub(super) fn answer_sender(name: Option<&Arc<Name>>, to: u64, length: u64) -> SysResult {
    if name.is_some() {
        return answer_name(name.map(|name| &**name), to, length);
    }
    let length = UserPointer::<i32>::new(length);
    if length.read()? < 0 {
        return Err(Errno::EINVAL);
    }
    length.write(&0)?;
    Ok(0)
}
