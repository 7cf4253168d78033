//! Questions about links, addresses and routes (rtnetlink(7)), and their answers.
//!
//! A program sends a datagram of one or more requests; each is answered with datagrams that wait for it like any other message. Lists end with a
//! message of their own. There is one link ([`crate::link`]), which can be given addresses of the family `AF_INET`; lists of routes, neighbours and rules are empty.

use alloc::vec::Vec;

use vfs::{Error, Result, allocation};

use crate::link::{self, Address, Loopback};

/// Kinds of messages.
mod kind {
    pub(super) const ERROR: u16 = 2;
    pub(super) const DONE: u16 = 3;
    /// The first that is not the protocol's own.
    pub(super) const FIRST: u16 = 16;
    pub(super) const NEW_LINK: u16 = 16;
    pub(super) const GET_LINK: u16 = 18;
    pub(super) const SET_LINK: u16 = 19;
    pub(super) const NEW_ADDRESS: u16 = 20;
    pub(super) const DELETE_ADDRESS: u16 = 21;
    pub(super) const GET_ADDRESS: u16 = 22;
    pub(super) const GET_ROUTE: u16 = 26;
    pub(super) const GET_NEIGHBOUR: u16 = 30;
    pub(super) const GET_RULE: u16 = 34;
    /// Every fourth kind asks; the others change something.
    pub(super) const ASKS: u16 = 2;
}

/// Flags of messages.
mod flag {
    pub(super) const REQUEST: u16 = 1;
    pub(super) const MULTIPLE: u16 = 2;
    pub(super) const ACKNOWLEDGE: u16 = 4;
    pub(super) const LIST: u16 = 0x300;
    /// Of what makes something that may be there: it is changed then.
    pub(super) const REPLACE: u16 = 0x100;
}

/// Attributes of links.
mod attribute {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const BROADCAST: u16 = 2;
    pub(super) const NAME: u16 = 3;
    pub(super) const MTU: u16 = 4;
    pub(super) const QUEUE: u16 = 6;
    pub(super) const QUEUE_LENGTH: u16 = 13;
    pub(super) const OPERATION: u16 = 16;
    pub(super) const LINK_MODE: u16 = 17;
    pub(super) const STATISTICS: u16 = 23;
    pub(super) const GROUP: u16 = 27;
    pub(super) const PROMISCUITY: u16 = 30;
    pub(super) const SEND_QUEUES: u16 = 31;
    pub(super) const RECEIVE_QUEUES: u16 = 32;
    pub(super) const CARRIER: u16 = 33;
}

/// Attributes of addresses.
mod address_attribute {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const LOCAL: u16 = 2;
    pub(super) const LABEL: u16 = 3;
    pub(super) const LIFE: u16 = 6;
    pub(super) const FLAGS: u16 = 8;
}

/// `AF_INET`; a request for all families names none.
const INTERNET: u8 = 2;
const ANY_FAMILY: u8 = 0;
/// Bytes of an address's header.
const ADDRESS_HEADER: usize = 8;
/// Bits of an address.
const ADDRESS_BITS: u8 = 32;
/// `IFA_F_PERMANENT`: it has no end.
const PERMANENT: u8 = 0x80;
/// For how long it is preferred and valid: for ever. When it was made and changed is not kept.
const LIFE_WITHOUT_END: [u8; 16] = [255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0];

/// Bytes of a message's header, of a link's, and of an attribute's.
const HEADER: usize = 16;
const LINK_HEADER: usize = 16;
const ATTRIBUTE_HEADER: usize = 4;
/// Bytes of counters, all of them zero.
const STATISTICS_BYTES: usize = 24 * 8;
const HARDWARE_ADDRESS_BYTES: usize = 6;
/// Everything is a multiple of this.
const ALIGNMENT: usize = 4;

/// A request's header.
#[derive(Clone, Copy)]
struct Header {
    length: usize,
    kind: u16,
    flags: u16,
    sequence: u32,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).map_or(0, |half| u16::from_le_bytes([half[0], half[1]]))
}

/// Answers the requests in a datagram of a port: `send` gets each datagram of the answers.
///
/// # Errors
/// Those of `send`, `ENOMEM`.
pub(super) fn answer(datagram: &[u8], port: u32, send: &mut dyn FnMut(Vec<u8>) -> Result<()>) -> Result<()> {
    let mut rest = datagram;
    while rest.len() >= HEADER {
        let header = Header {
            length: word(rest, 0) as usize,
            kind: half(rest, 4),
            flags: half(rest, 6),
            sequence: word(rest, 8),
        };
        if header.length < HEADER || header.length > rest.len() {
            break;
        }
        let request = &rest[..header.length];
        if header.flags & flag::REQUEST != 0 {
            answer_one(request, header, port, send)?;
        }
        rest = &rest[header.length.next_multiple_of(ALIGNMENT).min(rest.len())..];
    }
    Ok(())
}

fn answer_one(
    request: &[u8],
    header: Header,
    port: u32,
    send: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    // Messages of the protocol itself ask for nothing.
    let outcome = if header.kind < kind::FIRST {
        Ok(Vec::new())
    } else {
        let served =
            link::with(|loopback, may_administer| serve(request, header, port, loopback, may_administer));
        served.unwrap_or(Err(Error::NoDevice))
    };
    match outcome {
        Ok(answer) if !answer.is_empty() => {
            send(answer)?;
            if header.flags & flag::LIST != 0 {
                send(done(header, port)?)?;
                return Ok(());
            }
        }
        Ok(_) if header.kind >= kind::FIRST && is_list(header) => return send(done(header, port)?),
        Ok(_) => {}
        Err(error) => return send(acknowledgement(request, header, port, Some(error))?),
    }
    if header.flags & flag::ACKNOWLEDGE == 0 {
        return Ok(());
    }
    send(acknowledgement(request, header, port, None)?)
}

/// Whether all of something is asked for.
fn is_list(header: Header) -> bool {
    header.kind & 3 == kind::ASKS && header.flags & flag::LIST != 0
}

/// What is answered, besides an acknowledgement.
fn serve(
    request: &[u8],
    header: Header,
    port: u32,
    loopback: &Loopback,
    may_administer: bool,
) -> Result<Vec<u8>> {
    let asks = header.kind & 3 == kind::ASKS;
    if !asks && !may_administer {
        return Err(Error::NotPermitted);
    }
    match header.kind {
        kind::GET_LINK => {
            let listed = is_list(header);
            if !listed {
                check_link(request)?;
            }
            let flags = if listed { flag::MULTIPLE } else { 0 };
            describe(loopback, header, port, flags)
        }
        kind::NEW_LINK | kind::SET_LINK => {
            check_link(request)?;
            let (flags, changed) = (word(request, HEADER + 8), word(request, HEADER + 12));
            if changed & link::UP != 0 || (changed == 0 && flags != 0) {
                loopback.set_up(flags & link::UP != 0);
            }
            Ok(Vec::new())
        }
        kind::NEW_ADDRESS => {
            let new = named_address(request)?;
            match loopback.add(new) {
                // What could be changed of it is its life, which has no end.
                Err(Error::Exists) if header.flags & flag::REPLACE != 0 => {}
                added => added?,
            }
            Ok(Vec::new())
        }
        kind::DELETE_ADDRESS => {
            let Address { bytes, prefix, .. } = named_address(request)?;
            let names_net =
                value_of(&request[HEADER + ADDRESS_HEADER..], address_attribute::ADDRESS).is_some();
            loopback.remove(bytes, names_net.then_some(prefix))?;
            Ok(Vec::new())
        }
        kind::GET_ADDRESS if is_list(header) => match request.get(HEADER) {
            None | Some(&(ANY_FAMILY | INTERNET)) => list_addresses(loopback, header, port),
            Some(_) => Ok(Vec::new()),
        },
        kind::GET_ROUTE | kind::GET_NEIGHBOUR | kind::GET_RULE if is_list(header) => Ok(Vec::new()),
        _ => Err(Error::NotSupported),
    }
}

/// Fails with `ENODEV` unless the request is about the link, by its number or its name; with `EINVAL` if it names none.
fn check_link(request: &[u8]) -> Result<()> {
    if request.len() < HEADER + LINK_HEADER {
        return Err(Error::Invalid);
    }
    let index = word(request, HEADER + 4);
    if index != 0 {
        return if index == link::INDEX { Ok(()) } else { Err(Error::NoDevice) };
    }
    match value_of(&request[HEADER + LINK_HEADER..], attribute::NAME) {
        Some(name) if link::is_name(name) => Ok(()),
        Some(_) => Err(Error::NoDevice),
        None => Err(Error::Invalid),
    }
}

/// The value of the first attribute of a kind.
fn value_of(mut rest: &[u8], wanted: u16) -> Option<&[u8]> {
    while rest.len() >= ATTRIBUTE_HEADER {
        let length = usize::from(half(rest, 0));
        if length < ATTRIBUTE_HEADER || length > rest.len() {
            break;
        }
        if half(rest, 2) == wanted {
            return Some(&rest[ATTRIBUTE_HEADER..length]);
        }
        rest = &rest[length.next_multiple_of(ALIGNMENT).min(rest.len())..];
    }
    None
}

/// The address that is to be made or taken away.
///
/// # Errors
/// `EOPNOTSUPP` for other families, `EINVAL`, `ENODEV`.
fn named_address(request: &[u8]) -> Result<Address> {
    let Some(&[family, prefix, _flags, scope, ..]) = request.get(HEADER..HEADER + ADDRESS_HEADER) else {
        return Err(Error::Invalid);
    };
    if family != INTERNET {
        return Err(Error::NotSupported);
    }
    let local = value_of(&request[HEADER + ADDRESS_HEADER..], address_attribute::LOCAL);
    let bytes = local.and_then(|local| local.try_into().ok()).ok_or(Error::Invalid)?;
    if prefix > ADDRESS_BITS {
        return Err(Error::Invalid);
    }
    if word(request, HEADER + 4) != link::INDEX {
        return Err(Error::NoDevice);
    }
    Ok(Address { bytes, prefix, scope })
}

/// A message for each address, one behind the other.
fn list_addresses(loopback: &Loopback, header: Header, port: u32) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for Address { bytes, prefix, scope } in loopback.addresses().into_iter().flatten() {
        let mut message = begin(kind::NEW_ADDRESS, flag::MULTIPLE, header, port)?;
        allocation::extend(&mut message, &[INTERNET, prefix, PERMANENT, scope])?;
        allocation::extend(&mut message, &link::INDEX.to_le_bytes())?;
        add(&mut message, address_attribute::ADDRESS, &bytes)?;
        add(&mut message, address_attribute::LOCAL, &bytes)?;
        add(&mut message, address_attribute::LABEL, b"lo\0")?;
        add(&mut message, address_attribute::FLAGS, &u32::from(PERMANENT).to_le_bytes())?;
        add(&mut message, address_attribute::LIFE, &LIFE_WITHOUT_END)?;
        allocation::extend(&mut all, &end(message))?;
    }
    Ok(all)
}

fn begin(kind: u16, flags: u16, header: Header, port: u32) -> Result<Vec<u8>> {
    let mut message = Vec::new();
    allocation::extend(&mut message, &[0; 4])?;
    allocation::extend(&mut message, &kind.to_le_bytes())?;
    allocation::extend(&mut message, &flags.to_le_bytes())?;
    allocation::extend(&mut message, &header.sequence.to_le_bytes())?;
    allocation::extend(&mut message, &port.to_le_bytes())?;
    Ok(message)
}

fn end(mut message: Vec<u8>) -> Vec<u8> {
    let length = message.len() as u32;
    message[..4].copy_from_slice(&length.to_le_bytes());
    message
}

fn done(header: Header, port: u32) -> Result<Vec<u8>> {
    let mut message = begin(kind::DONE, flag::MULTIPLE, header, port)?;
    allocation::extend(&mut message, &[0; 4])?;
    Ok(end(message))
}

/// How a request ended; one that failed is sent back whole.
fn acknowledgement(request: &[u8], header: Header, port: u32, error: Option<Error>) -> Result<Vec<u8>> {
    /// The message has only the request's header.
    const CAPPED: u16 = 0x100;
    let flags = if error.is_none() { CAPPED } else { 0 };
    let mut message = begin(kind::ERROR, flags, header, port)?;
    let number = error.map_or(0, |error| -error.errno());
    allocation::extend(&mut message, &number.to_le_bytes())?;
    let returned = if error.is_none() { &request[..HEADER] } else { request };
    allocation::extend(&mut message, returned)?;
    Ok(end(message))
}

fn add(message: &mut Vec<u8>, attribute: u16, value: &[u8]) -> Result<()> {
    let length = (ATTRIBUTE_HEADER + value.len()) as u16;
    allocation::extend(message, &length.to_le_bytes())?;
    allocation::extend(message, &attribute.to_le_bytes())?;
    allocation::extend(message, value)?;
    let padding = message.len().next_multiple_of(ALIGNMENT) - message.len();
    allocation::extend(message, &[0; ALIGNMENT][..padding])
}

/// The link.
fn describe(loopback: &Loopback, header: Header, port: u32, flags: u16) -> Result<Vec<u8>> {
    /// `IF_OPER_UNKNOWN`, `IF_OPER_DOWN`
    const UNKNOWN: u8 = 0;
    const DOWN: u8 = 2;
    let message = &mut begin(kind::NEW_LINK, flags, header, port)?;
    allocation::extend(message, &[0, 0])?;
    allocation::extend(message, &link::KIND.to_le_bytes())?;
    allocation::extend(message, &link::INDEX.to_le_bytes())?;
    allocation::extend(message, &loopback.flags().to_le_bytes())?;
    allocation::extend(message, &[0; 4])?;
    add(message, attribute::NAME, b"lo\0")?;
    add(message, attribute::QUEUE_LENGTH, &link::QUEUE_LENGTH.to_le_bytes())?;
    add(message, attribute::OPERATION, &[if loopback.is_up() { UNKNOWN } else { DOWN }])?;
    add(message, attribute::LINK_MODE, &[0])?;
    add(message, attribute::MTU, &link::MTU.to_le_bytes())?;
    add(message, attribute::GROUP, &[0; 4])?;
    add(message, attribute::PROMISCUITY, &[0; 4])?;
    add(message, attribute::SEND_QUEUES, &1_u32.to_le_bytes())?;
    add(message, attribute::RECEIVE_QUEUES, &1_u32.to_le_bytes())?;
    add(message, attribute::CARRIER, &[1])?;
    add(message, attribute::QUEUE, b"noqueue\0")?;
    add(message, attribute::ADDRESS, &[0; HARDWARE_ADDRESS_BYTES])?;
    add(message, attribute::BROADCAST, &[0; HARDWARE_ADDRESS_BYTES])?;
    add(message, attribute::STATISTICS, &[0; STATISTICS_BYTES])?;
    Ok(end(core::mem::take(message)))
}
