//! Attributes of netlink messages, as filters look for them.

use machine::address::PAGE_SIZE;

use super::filter::Packet;

/// A length and a type, two bytes each.
const HEAD: usize = 4;
/// The part of the type that is the type; the rest are flags.
const TYPE_MASK: u16 = 0x3fff;
/// Attributes are looked for in messages up to here, so that a filter has an end to its work.
const MESSAGE_MAX: usize = PAGE_SIZE;

/// Length and type of what begins at a place.
fn head(packet: &(impl Packet + ?Sized), at: usize) -> Option<(usize, u16)> {
    let mut bytes = [0; HEAD];
    packet.read(at, &mut bytes).then(|| {
        let [length, kind] = [[bytes[0], bytes[1]], [bytes[2], bytes[3]]].map(u16::from_ne_bytes);
        (length.into(), kind)
    })
}

/// The first attribute of a type between two places; 0: there is none.
fn find_between(packet: &(impl Packet + ?Sized), mut at: usize, end: usize, wanted: u32) -> u32 {
    // Each one is at least as long as its head, so this ends.
    while at + HEAD <= end
        && let Some((length, kind)) = head(packet, at)
        && length >= HEAD
        && at + length <= end
    {
        if u32::from(kind & TYPE_MASK) == wanted {
            return at as u32;
        }
        at += length.next_multiple_of(HEAD);
    }
    0
}

/// The end of a message in which an attribute may begin at a place.
fn end_of(packet: &(impl Packet + ?Sized), at: u32) -> Option<usize> {
    let length = packet.length();
    ((HEAD..=MESSAGE_MAX).contains(&length) && at as usize <= length - HEAD).then_some(length)
}

/// The first attribute of a type from a place on; 0: there is none.
pub(super) fn find(packet: &(impl Packet + ?Sized), from: u32, wanted: u32) -> u32 {
    end_of(packet, from).map_or(0, |end| find_between(packet, from as usize, end, wanted))
}

/// The first attribute of a type in the attribute at a place; 0: there is none.
pub(super) fn find_nested(packet: &(impl Packet + ?Sized), outer: u32, wanted: u32) -> u32 {
    let begin = outer as usize;
    match (end_of(packet, outer), head(packet, begin)) {
        (Some(end), Some((length, _))) if begin + length <= end => {
            find_between(packet, begin + HEAD, begin + length, wanted)
        }
        _ => 0,
    }
}
