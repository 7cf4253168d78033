//! The two lists of capabilities in configuration space.
//!
//! Both are linked by offsets that the device chooses. A broken or hostile one may link them in a circle or outside of its own
//! space: the walk ends after as many steps as there are places for entries, and at the first offset that can't be one.

use super::config::Config;
use super::registers::{CAPABILITIES, STATUS, STATUS_CAPABILITIES};

/// Where entries of the old list may lie.
const FIRST_CAPABILITY: u16 = 0x40;
/// Entries that fit there, of four bytes each.
const CAPABILITIES_MAX: usize = (0x100 - FIRST_CAPABILITY as usize) / 4;
/// Where the extended list starts.
const FIRST_EXTENDED: u16 = 0x100;
/// Entries that fit there, of eight bytes each (a header and something).
const EXTENDED_MAX: usize = (0x1000 - FIRST_EXTENDED as usize) / 8;

/// An entry of the old list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Capability {
    /// What it is.
    pub id: u8,
    /// Where it is.
    pub offset: u16,
}

/// An entry of the extended list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtendedCapability {
    /// What it is.
    pub id: u16,
    /// Version of its layout.
    pub version: u8,
    /// Where it is.
    pub offset: u16,
}

/// The entries of the old list.
pub fn capabilities(config: &Config) -> impl Iterator<Item = Capability> + '_ {
    let has_list = config.read_u16(STATUS) & STATUS_CAPABILITIES != 0;
    let mut next = if has_list { config.read_u8(CAPABILITIES) } else { 0 };
    core::iter::from_fn(move || {
        let offset = u16::from(next & !3);
        if offset < FIRST_CAPABILITY {
            return None;
        }
        let entry = config.read_u16(offset);
        next = (entry >> 8) as u8;
        let id = entry as u8;
        (id != 0xff).then_some(Capability { id, offset })
    })
    .take(CAPABILITIES_MAX)
}

/// The entries of the extended list; none where only 256 bytes are reached.
pub fn extended_capabilities(config: &Config) -> impl Iterator<Item = ExtendedCapability> + '_ {
    let mut next = FIRST_EXTENDED;
    core::iter::from_fn(move || {
        let offset = next & !3;
        if offset < FIRST_EXTENDED {
            return None;
        }
        let header = config.read_u32(offset);
        next = (header >> 20) as u16;
        let end = header == 0 || header == u32::MAX;
        (!end).then_some(ExtendedCapability {
            id: header as u16,
            version: (header >> 16) as u8 & 0xf,
            offset,
        })
    })
    .take(EXTENDED_MAX)
}

/// The first entry of the old list with this id.
pub fn find(config: &Config, id: u8) -> Option<u16> {
    capabilities(config).find(|entry| entry.id == id).map(|entry| entry.offset)
}

/// The first entry of the extended list with this id.
pub fn find_extended(config: &Config, id: u16) -> Option<u16> {
    extended_capabilities(config).find(|entry| entry.id == id).map(|entry| entry.offset)
}
