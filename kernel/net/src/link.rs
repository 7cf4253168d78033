//! Links: the loopback is the only one. Each network has one of its own, with the addresses that it was given; nothing is sent to them yet, since there are
//! no sockets of a family that has some.
//!
//! It is there so that programs which list links find what every machine has, by requests on any socket (netdevice(7)) or by netlink
//! ([`crate::netlink`]), and can set up the loopback of a network that they have made. That of the first network is up from the start, as in a container, those of
//! others are down. One that goes up without an address gets 127.0.0.1. Whoever may administer the network can change that.
//!
//! Requests are about the network of who makes them. Locking: the addresses are under a spin lock of their own, inside of which there is none.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::address::UserAddr;
use machine::set_once::SetOnce;
use machine::user_memory;
use sync::SpinLock;
use vfs::{Error, Result};

/// Its number.
pub const INDEX: u32 = 1;
const NAME: &[u8] = b"lo";
/// Most bytes of a packet.
pub const MTU: u32 = 65_536;
/// Packets that may wait.
pub const QUEUE_LENGTH: u32 = 1000;
/// `ARPHRD_LOOPBACK`
pub const KIND: u16 = 772;

/// `IFF_UP`
pub(crate) const UP: u32 = 1;
const LOOPBACK: u32 = 8;
const RUNNING: u32 = 0x40;
/// `IFF_LOWER_UP`
const LOWER_UP: u32 = 0x1_0000;

/// Addresses that a loopback can have.
const ADDRESSES_MAX: usize = 16;
/// Scope of what reaches no other machine.
const HOST_SCOPE: u8 = 254;

/// An address of the family `AF_INET`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) bytes: [u8; 4],
    /// Bits of its net.
    pub(crate) prefix: u8,
    pub(crate) scope: u8,
}

impl Address {
    /// What a loopback gets that has none when it goes up.
    const USUAL: Self = Self { bytes: [127, 0, 0, 1], prefix: 8, scope: HOST_SCOPE };
}

/// The loopback of a network.
pub struct Loopback {
    /// [`UP`] or 0. Written by who may administer the network.
    state: AtomicU32,
    addresses: SpinLock<[Option<Address>; ADDRESSES_MAX]>,
}

impl Loopback {
    /// That of the first network.
    pub const fn first() -> Self {
        let mut addresses = [None; ADDRESSES_MAX];
        addresses[0] = Some(Address::USUAL);
        Self { state: AtomicU32::new(UP), addresses: SpinLock::named("loopback", addresses) }
    }

    /// That of a network just made.
    pub const fn down() -> Self {
        Self { state: AtomicU32::new(0), addresses: SpinLock::named("loopback", [None; ADDRESSES_MAX]) }
    }

    /// Its flags, as requests of 16 bits and of 32 bits show them.
    pub fn flags(&self) -> u32 {
        if self.is_up() { UP | LOOPBACK | RUNNING | LOWER_UP } else { LOOPBACK }
    }

    /// Whether it is up.
    pub fn is_up(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// Takes it up or down.
    pub(crate) fn set_up(&self, up: bool) {
        self.state.store(if up { UP } else { 0 }, Ordering::Relaxed);
        let mut addresses = self.addresses.lock();
        if up && addresses.iter().all(Option::is_none) {
            addresses[0] = Some(Address::USUAL);
        }
    }

    /// The addresses, in places that may be free.
    pub(crate) fn addresses(&self) -> [Option<Address>; ADDRESSES_MAX] {
        *self.addresses.lock()
    }

    /// Gives it an address.
    ///
    /// # Errors
    /// `EEXIST`, `ENOBUFS`.
    pub(crate) fn add(&self, new: Address) -> Result<()> {
        let mut addresses = self.addresses.lock();
        if addresses.iter().flatten().any(|old| (old.bytes, old.prefix) == (new.bytes, new.prefix)) {
            return Err(Error::Exists);
        }
        let free = addresses.iter_mut().find(|place| place.is_none()).ok_or(Error::NoBufferSpace)?;
        *free = Some(new);
        Ok(())
    }

    /// Takes an address away; without a prefix: whatever its net is.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL`.
    pub(crate) fn remove(&self, bytes: [u8; 4], prefix: Option<u8>) -> Result<()> {
        let mut addresses = self.addresses.lock();
        let is_it = |old: &Address| old.bytes == bytes && prefix.is_none_or(|prefix| old.prefix == prefix);
        let found = addresses.iter_mut().find(|place| place.as_ref().is_some_and(is_it));
        *found.ok_or(Error::AddressNotAvailable)? = None;
        Ok(())
    }
}

/// Calls back with the loopback of the caller's network and whether the caller may administer that.
type CallersNetwork = fn(&mut dyn FnMut(&Loopback, bool));

static CALLERS_NETWORK: SetOnce<CallersNetwork> = SetOnce::new();

/// Says who knows the caller's network. Once, at start-up.
pub fn register_network(look: CallersNetwork) {
    CALLERS_NETWORK.set(look);
}

/// What `look` makes of the loopback of the caller's network, and of whether the caller may administer that.
pub(crate) fn with<T>(mut look: impl FnMut(&Loopback, bool) -> T) -> Option<T> {
    let mut result = None;
    if let Some(of_caller) = CALLERS_NETWORK.get() {
        of_caller(&mut |loopback, may_administer| result = Some(look(loopback, may_administer)));
    }
    result
}

/// Whether a name in a field of fixed length is its name.
pub(crate) fn is_name(field: &[u8]) -> bool {
    field.split(|byte| *byte == 0).next() == Some(NAME)
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
                let set = |loopback: &Loopback, may_administer: bool| {
                    if !may_administer {
                        return Err(Error::NotPermitted);
                    }
                    loopback.set_up(first & UP != 0);
                    Ok(0)
                };
                return with(set).unwrap_or(Err(Error::NoDevice));
            }
            request::FLAGS => with(|loopback, _| loopback.flags()).ok_or(Error::NoDevice)? & 0xffff,
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
