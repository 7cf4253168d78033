//! Links: the loopback is the only one, and there are no addresses on it, since there is no family that has some.
//!
//! It is there so that programs which list links find what every machine has, by requests on any socket (netdevice(7)) or by netlink
//! ([`crate::netlink`]). It is up from the start, as in a container; whoever may administer the network can change that.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::address::UserAddr;
use machine::user_memory;
use vfs::{Capabilities, Error, Result};

/// Its number, name, and the most bytes of a packet.
pub(crate) const INDEX: u32 = 1;
pub(crate) const NAME: &[u8] = b"lo";
pub(crate) const MTU: u32 = 65_536;
/// Packets that may wait.
pub(crate) const QUEUE_LENGTH: u32 = 1000;
/// `ARPHRD_LOOPBACK`
pub(crate) const KIND: u16 = 772;

/// `IFF_UP`
pub(crate) const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const RUNNING: u32 = 0x40;
/// `IFF_LOWER_UP`
const LOWER_UP: u32 = 0x1_0000;

/// Whether it is up: [`UP`] or 0.
static STATE: AtomicU32 = AtomicU32::new(UP);

/// Its flags, as requests of 16 bits and of 32 bits show them.
pub(crate) fn flags() -> u32 {
    match STATE.load(Ordering::Relaxed) {
        0 => LOOPBACK,
        _ => UP | LOOPBACK | RUNNING | LOWER_UP,
    }
}

/// Whether it is up.
pub(crate) fn is_up() -> bool {
    STATE.load(Ordering::Relaxed) != 0
}

/// Takes it up or down.
pub(crate) fn set_up(up: bool) {
    STATE.store(if up { UP } else { 0 }, Ordering::Relaxed);
}

/// Whether a name in a field of fixed length is its name.
pub(crate) fn is_name(field: &[u8]) -> bool {
    field.split(|byte| *byte == 0).next() == Some(NAME)
}

/// Whether the caller may change links.
pub(crate) fn may_administer() -> bool {
    vfs::credentials::caller_has(Capabilities::NET_ADMIN)
}

/// Requests about links, which every socket takes.
mod request {
    pub(super) const NAME: u32 = 0x8910;
    pub(super) const LIST: u32 = 0x8912;
    pub(super) const FLAGS: u32 = 0x8913;
    pub(super) const SET_FLAGS: u32 = 0x8914;
    pub(super) const METRIC: u32 = 0x891d;
    pub(super) const MTU: u32 = 0x8921;
    pub(super) const ADDRESS: u32 = 0x8927;
    pub(super) const INDEX: u32 = 0x8933;
    pub(super) const QUEUE_LENGTH: u32 = 0x8942;
}

/// Bytes of a name, and where what is asked for stands (`struct ifreq`).
const NAME_BYTES: usize = 16;
const REQUEST_BYTES: usize = 40;

/// Serves a request about links; `None` if it is none.
pub(crate) fn ioctl(command: u32, argument: UserAddr) -> Option<Result<usize>> {
    match command {
        request::NAME
        | request::FLAGS
        | request::SET_FLAGS
        | request::METRIC
        | request::MTU
        | request::ADDRESS
        | request::INDEX
        | request::QUEUE_LENGTH => Some(serve(command, argument)),
        // Those with addresses: none.
        request::LIST => Some(user_memory::store_u32(argument, 0).map(|()| 0).map_err(Error::from)),
        _ => None,
    }
}

fn serve(command: u32, argument: UserAddr) -> Result<usize> {
    let mut bytes = [0; REQUEST_BYTES];
    user_memory::read(&mut bytes, argument)?;
    let (name, value) = bytes.split_at_mut(NAME_BYTES);
    let first = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
    if command == request::NAME {
        if first != INDEX {
            return Err(Error::NoDevice);
        }
        name.fill(0);
        name[..NAME.len()].copy_from_slice(NAME);
    } else {
        if !is_name(name) {
            return Err(Error::NoDevice);
        }
        let answer = match command {
            request::SET_FLAGS => {
                if !may_administer() {
                    return Err(Error::NotPermitted);
                }
                set_up(first & UP != 0);
                return Ok(0);
            }
            request::FLAGS => flags() & 0xffff,
            request::MTU => MTU,
            request::ADDRESS => u32::from(KIND),
            request::INDEX => INDEX,
            request::QUEUE_LENGTH => QUEUE_LENGTH,
            _ => 0,
        };
        if command == request::ADDRESS {
            value.fill(0);
        }
        let width = if command == request::FLAGS { 2 } else { 4 };
        value[..width].copy_from_slice(&answer.to_le_bytes()[..width]);
    }
    user_memory::write(argument, &bytes)?;
    Ok(0)
}
