//! Options of sockets (socket(7)).

use alloc::vec::Vec;
use core::mem::{size_of, size_of_val};

use net::unix::{BUFFER_MAX, Direction, Flags, Identity, Options, Principal, Stamping};
use vfs::Capabilities;
use zerocopy::IntoBytes;

use super::ancillary::shown_identity;
use super::create::{DATAGRAM, FAMILY_UNIX, Family, RAW, Socket, type_number};
use super::{filter, netlink};
use crate::abi::Timeval;
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::{UserPointer, write_bytes};

const LEVEL_SOCKET: i32 = 1;

/// Numbers of options.
mod option {
    pub(super) const TYPE: i32 = 3;
    pub(super) const ERROR: i32 = 4;
    pub(super) const SEND_BUFFER: i32 = 7;
    pub(super) const RECEIVE_BUFFER: i32 = 8;
    pub(super) const PRIORITY: i32 = 12;
    pub(super) const LINGER: i32 = 13;
    pub(super) const PASS_CREDENTIALS: i32 = 16;
    pub(super) const PEER_CREDENTIALS: i32 = 17;
    pub(super) const RECEIVE_LOW_WATER: i32 = 18;
    pub(super) const SEND_LOW_WATER: i32 = 19;
    pub(super) const RECEIVE_TIMEOUT: i32 = 20;
    pub(super) const SEND_TIMEOUT: i32 = 21;
    /// `SO_ATTACH_FILTER`; of getsockopt it is `SO_GET_FILTER`.
    pub(super) const FILTER: i32 = 26;
    pub(super) const DETACH_FILTER: i32 = 27;
    pub(super) const ACCEPTS: i32 = 30;
    pub(super) const SEND_BUFFER_FORCE: i32 = 32;
    pub(super) const RECEIVE_BUFFER_FORCE: i32 = 33;
    pub(super) const PROTOCOL: i32 = 38;
    pub(super) const DOMAIN: i32 = 39;
    pub(super) const PEEK_OFFSET: i32 = 42;
    pub(super) const LOCK_FILTER: i32 = 44;
    pub(super) const PEER_GROUPS: i32 = 59;
}

/// Options that are one bit and without effect here.
const FLAGS: [(i32, Flags); 7] = [
    (1, Flags::DEBUG),
    (2, Flags::REUSE_ADDRESS),
    (5, Flags::DO_NOT_ROUTE),
    (6, Flags::BROADCAST),
    (9, Flags::KEEP_ALIVE),
    (10, Flags::OUT_OF_BAND_INLINE),
    (15, Flags::REUSE_PORT),
];

/// Options by which messages tell when they were sent. Control data has the same numbers.
const STAMPINGS: [(i32, Stamping); 4] = [
    (29, Stamping::ON),
    (35, Stamping::ON.union(Stamping::NANOSECONDS)),
    (63, Stamping::ON.union(Stamping::NEW_NUMBERS)),
    (64, Stamping::all()),
];

/// The number of the option that asked for such times.
pub(super) fn number_of_stamping(stamping: Stamping) -> Option<i32> {
    STAMPINGS.iter().find(|(_, other)| *other == stamping).map(|(number, _)| *number)
}

fn stamping_of(name: i32) -> Option<Stamping> {
    STAMPINGS.iter().find(|(number, _)| *number == name).map(|(_, stamping)| *stamping)
}

/// Whether an option that asks for times is on. The new one for microseconds also says so of nanoseconds.
fn is_stamping(asked: Stamping, current: Stamping) -> bool {
    let is_either = asked == Stamping::ON.union(Stamping::NEW_NUMBERS);
    current == asked || (is_either && current.contains(asked))
}

fn flag_of(name: i32) -> Option<Flags> {
    FLAGS.iter().find(|(number, _)| *number == name).map(|(_, flag)| *flag)
}

/// Tells an option.
#[inline(never)]
pub fn getsockopt(
    task: &mut Task,
    descriptor: i32,
    level: i32,
    name: i32,
    value: u64,
    length: u64,
) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    let family = socket.family()?;
    if level != LEVEL_SOCKET && !is_own_level(family, level) {
        return Err(no_such_level(family));
    }
    let length = UserPointer::<i32>::new(length);
    let room = usize::try_from(length.read()?).map_err(|_| Errno::EINVAL)?;
    let options = family.options();
    let timeout = |direction| Timeval::from_ns(options.timeout_ns(direction).unwrap_or(0));
    let linger = options.linger();
    let write = |bytes: &[u8]| {
        let count = bytes.len().min(room);
        write_bytes(value, &bytes[..count])?;
        length.write(&(count as i32))?;
        Ok(0)
    };
    if let (Family::Netlink(socket), netlink::LEVEL) = (family, level) {
        return write(&netlink::option(socket, name)?.to_ne_bytes());
    }
    match name {
        option::RECEIVE_TIMEOUT => write(timeout(Direction::Receive).as_bytes()),
        option::SEND_TIMEOUT => write(timeout(Direction::Send).as_bytes()),
        option::LINGER => write([linger.0, linger.1].as_bytes()),
        option::PEER_CREDENTIALS => {
            let peer = peer_of(family).map_or(Identity::NOBODY, |peer| peer.identity);
            write(shown_identity(task, &peer).as_bytes())
        }
        option::FILTER => {
            let count = filter::show(&options.filter, value, room)?;
            length.write(&(count as i32))?;
            Ok(0)
        }
        option::PEER_GROUPS => {
            let peer = peer_of(family).ok_or(Errno::ENODATA)?;
            let groups: &[u32] = peer.groups.as_deref().map_or(&[], Vec::as_slice);
            write_groups(task, groups, value, room, length)
        }
        _ => write(&number_of(family, name)?.to_ne_bytes()),
    }
}

/// Who is at the other end; nobody is at that of a netlink socket.
fn peer_of(family: Family<'_>) -> Option<Principal> {
    match family {
        Family::Unix(unix) => unix.peer_principal(),
        Family::Netlink(_) => None,
    }
}

/// Writes groups as the caller sees them. If there is no room for all, only the length says so.
fn write_groups(task: &Task, groups: &[u32], to: u64, room: usize, length: UserPointer<i32>) -> SysResult {
    let whole = size_of_val(groups);
    if room < whole {
        length.write(&(whole as i32))?;
        return Err(Errno::ERANGE);
    }
    for (index, &group) in groups.iter().enumerate() {
        UserPointer::<u32>::new(to).add(index).write(&task.credentials.space().shown_group(group))?;
    }
    length.write(&(whole as i32))?;
    Ok(0)
}

/// Whether options of this level are the family's own.
fn is_own_level(family: Family<'_>, level: i32) -> bool {
    matches!(family, Family::Netlink(_)) && level == netlink::LEVEL
}

fn no_such_level(family: Family<'_>) -> Errno {
    match family {
        Family::Unix(_) => Errno::EOPNOTSUPP,
        Family::Netlink(_) => Errno::ENOPROTOOPT,
    }
}

/// Options that are a number and tell what a socket is.
fn nature_of(family: Family<'_>, name: i32) -> Option<u32> {
    Some(match (name, family) {
        (option::TYPE, Family::Unix(unix)) => type_number(unix.kind()),
        (option::TYPE, Family::Netlink(socket)) if socket.is_raw() => RAW,
        (option::TYPE, Family::Netlink(_)) => DATAGRAM,
        (option::DOMAIN, Family::Unix(_)) => FAMILY_UNIX as u32,
        (option::DOMAIN, Family::Netlink(_)) => netlink::FAMILY as u32,
        (option::PROTOCOL, Family::Unix(_)) => 0,
        (option::PROTOCOL, Family::Netlink(socket)) => socket.protocol(),
        (option::ERROR, Family::Unix(unix)) => unix.take_error(),
        (option::ERROR, Family::Netlink(socket)) => socket.take_error().map_or(0, |error| error as u32),
        _ => return None,
    })
}

/// Options that are a number.
fn number_of(family: Family<'_>, name: i32) -> Result<u32, Errno> {
    if let Some(number) = nature_of(family, name) {
        return Ok(number);
    }
    let options = family.options();
    if let Some(flag) = flag_of(name) {
        return Ok(options.flag(flag).into());
    }
    if let Some(stamping) = stamping_of(name) {
        return Ok(is_stamping(stamping, options.stamping()).into());
    }
    Ok(match name {
        option::ACCEPTS => matches!(family, Family::Unix(unix) if unix.is_listening()).into(),
        option::SEND_BUFFER => options.buffer(Direction::Send) as u32,
        option::RECEIVE_BUFFER => options.buffer(Direction::Receive) as u32,
        option::PASS_CREDENTIALS => options.passes_identity().into(),
        option::RECEIVE_LOW_WATER => options.low_water(),
        option::SEND_LOW_WATER => 1,
        option::PRIORITY => options.priority(),
        option::LOCK_FILTER => options.filter.is_locked().into(),
        option::PEEK_OFFSET if matches!(family, Family::Netlink(_)) => return Err(Errno::EOPNOTSUPP),
        option::PEEK_OFFSET => options.peek_offset() as u32,
        _ => return Err(Errno::ENOPROTOOPT),
    })
}

/// Changes an option.
#[inline(never)]
pub fn setsockopt(
    task: &mut Task,
    descriptor: i32,
    level: i32,
    name: i32,
    value: u64,
    length: i32,
) -> SysResult {
    let socket = Socket::of(task, descriptor)?;
    let length = usize::try_from(length).map_err(|_| Errno::EINVAL)?;
    let family = socket.family()?;
    match family {
        Family::Netlink(socket) if level == netlink::LEVEL => {
            return netlink::set_option(socket, name, value, length);
        }
        _ if level != LEVEL_SOCKET => return Err(no_such_level(family)),
        _ => {}
    }
    if length < size_of::<i32>() {
        return Err(Errno::EINVAL);
    }
    let number = UserPointer::<i32>::new(value).read()?;
    let options = family.options();
    if let Some(flag) = flag_of(name) {
        options.set_flag(flag, number != 0);
        return Ok(0);
    }
    if let Some(stamping) = stamping_of(name) {
        // Any of them ends what another one began.
        options.set_stamping(if number != 0 { stamping } else { Stamping::empty() });
        return Ok(0);
    }
    match name {
        option::FILTER => filter::attach(&options.filter, value, length)?,
        option::DETACH_FILTER => options.filter.detach()?,
        option::LOCK_FILTER => options.filter.set_locked(number != 0)?,
        option::PASS_CREDENTIALS => options.set_passes_identity(number != 0),
        option::RECEIVE_LOW_WATER => {
            options.set_low_water(if number < 0 { i32::MAX as u32 } else { number as u32 });
        }
        option::PRIORITY => {
            if !(0..=6).contains(&number) && !task.credentials.file.has(Capabilities::NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            options.set_priority(number as u32);
        }
        option::LINGER => {
            if length < 2 * size_of::<i32>() {
                return Err(Errno::EINVAL);
            }
            options.set_linger(number != 0, UserPointer::<i32>::new(value).add(1).read()?);
        }
        option::RECEIVE_TIMEOUT | option::SEND_TIMEOUT => {
            let direction =
                if name == option::RECEIVE_TIMEOUT { Direction::Receive } else { Direction::Send };
            set_timeout(options, direction, value, length)?;
        }
        option::PEEK_OFFSET => match family {
            Family::Unix(unix) => unix.set_peek_offset(number),
            Family::Netlink(_) => return Err(Errno::EOPNOTSUPP),
        },
        option::SEND_BUFFER | option::RECEIVE_BUFFER => set_buffer(family, name, number, BUFFER_MAX),
        option::SEND_BUFFER_FORCE | option::RECEIVE_BUFFER_FORCE => {
            if !task.credentials.file.has(Capabilities::NET_ADMIN) {
                return Err(Errno::EPERM);
            }
            set_buffer(family, name, number.max(0), BUFFER_FORCED_MAX);
        }
        _ => return Err(Errno::ENOPROTOOPT),
    }
    Ok(0)
}

/// Most bytes that a privileged process may ask for.
const BUFFER_FORCED_MAX: usize = 64 << 20;

fn set_buffer(family: Family<'_>, name: i32, number: i32, limit: usize) {
    let sends = matches!(name, option::SEND_BUFFER | option::SEND_BUFFER_FORCE);
    let direction = if sends { Direction::Send } else { Direction::Receive };
    // A negative number is a great one, as for the other buffer sizes there are.
    let bytes = (number as u32 as usize).min(limit);
    match family {
        Family::Unix(unix) => unix.set_buffer(direction, bytes),
        Family::Netlink(socket) => socket.options().set_buffer(direction, bytes),
    }
}

/// A time of zero is no limit; a negative one is over at once.
fn set_timeout(options: &Options, direction: Direction, value: u64, length: usize) -> Result<(), Errno> {
    const MICROSECONDS: i64 = 1_000_000;
    if length < size_of::<Timeval>() {
        return Err(Errno::EINVAL);
    }
    let timeout: Timeval = UserPointer::new(value).read()?;
    if !(0..MICROSECONDS).contains(&timeout.microseconds) {
        return Err(Errno::EDOM);
    }
    let timeout_ns = if timeout.seconds < 0 { Some(0) } else { timeout.to_ns().filter(|&ns| ns > 0) };
    options.set_timeout_ns(direction, timeout_ns);
    Ok(())
}
