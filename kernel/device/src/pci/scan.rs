//! Enumeration: which functions there are, and the numbers of the buses between them.
//!
//! A depth-first walk with a stack of its own, so that the depth of a machine's bridges costs no kernel stack. A bridge whose
//! numbers firmware has set keeps them if they fit: behind its own bus, none of those met before, within what the
//! bridge above passes on. Any other gets the next free number. While its buses are walked it passes on everything up to
//! the limit; after that it ends at the highest bus met, and a hot-plug port at some more, for switches that are plugged in later.
//!
//! What is known already is passed over and not touched: it may be at work, and to ask a function for its sizes is to have it answer to nothing for
//! a moment. A new bridge beside known ones keeps its numbers if they are none of theirs, else gets some above all of them.
//!
//! Behind a PCI Express port with a link there is one device: only its functions are looked for.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::Address;
use super::address::{DEVICES_PER_BUS, FUNCTIONS_PER_DEVICE};
use super::config::{Config, ConfigAccess};
use super::function::Function;
use super::registers::{HEADER_TYPE, PRIMARY_BUS, SECONDARY_BUS, SUBORDINATE_BUS};
use crate::express::PortKind;

/// Bus numbers kept for what may be plugged in behind a port.
const RESERVED_BUSES: u8 = 4;
/// Nothing is kept for hot-plug when fewer numbers than this are left.
const SCARCE_BUSES: u8 = 64;
/// Most functions kept; a machine with more has a configuration space gone mad.
const FUNCTIONS_MAX: usize = 4096;

/// A bus in the midst of being walked.
struct Level {
    bus: u8,
    /// Next device and function to look at, in one byte's numbering.
    next: u16,
    /// One past the last one.
    end: u16,
    /// The bridge above.
    bridge: Option<Arc<Function>>,
    /// Highest bus number that may be used below.
    limit: u8,
    /// Whether the bridge's numbers are firmware's and stay.
    kept: bool,
    /// Highest bus number in use before it was entered.
    used_before: u8,
}

/// One walk.
struct Walk<'a> {
    access: &'a Arc<dyn ConfigAccess>,
    segment: u16,
    /// Highest bus number in use.
    used: u8,
    /// First and last numbers behind bridges that are known.
    taken: Vec<(u8, u8)>,
    found: Vec<Arc<Function>>,
    levels: Vec<Level>,
}

/// Enumerates what is not `known` on a bus, and all behind that. `limit` is the highest bus number that may be used.
pub(crate) fn scan(
    access: &Arc<dyn ConfigAccess>,
    segment: u16,
    bus: u8,
    limit: u8,
    bridge: Option<Arc<Function>>,
    known: &[Arc<Function>],
) -> Vec<Arc<Function>> {
    let siblings = known.iter().filter(|function| function.address().bus == bus);
    let taken: Vec<_> = siblings.filter_map(|function| function.buses()).collect();
    let used = taken.iter().map(|(_, last)| *last).max().unwrap_or(bus);
    let is_known = |address| known.iter().any(|function| function.address() == address);
    let mut walk = Walk { access, segment, used, taken, found: Vec::new(), levels: Vec::new() };
    walk.enter(bus, limit, bridge, true);
    while let Some(level) = walk.levels.last_mut() {
        if level.next >= level.end {
            walk.leave();
            continue;
        }
        let (place, upstream) = (level.next, level.bridge.as_ref().map(|bridge| bridge.address()));
        level.next += 1;
        let (device, function) = ((place >> 3) as u8, (place & 7) as u8);
        let address = Address::new(segment, level.bus, device, function);
        let config = Config::new(access.clone(), address);
        if is_known(address) {
            if function == 0 && config.read_u8(HEADER_TYPE) & 0x80 == 0 {
                level.next = (place & !7) + u16::from(FUNCTIONS_PER_DEVICE);
            }
            continue;
        }
        let Some(found) = Function::probe(config, upstream) else {
            // Without function 0 there is no device.
            if function == 0 {
                level.next = (place & !7) + u16::from(FUNCTIONS_PER_DEVICE);
            }
            continue;
        };
        if function == 0 && found.config.read_u8(HEADER_TYPE) & 0x80 == 0 {
            level.next = (place & !7) + u16::from(FUNCTIONS_PER_DEVICE);
        }
        walk.add(Arc::new(found));
    }
    walk.found
}

impl Walk<'_> {
    fn enter(&mut self, bus: u8, limit: u8, bridge: Option<Arc<Function>>, kept: bool) {
        let used_before = self.used;
        let one_device = bridge
            .as_ref()
            .and_then(|bridge| bridge.port())
            .is_some_and(|port| matches!(port, PortKind::Root | PortKind::Downstream));
        let devices = if one_device { 1 } else { DEVICES_PER_BUS };
        let end = u16::from(devices) * u16::from(FUNCTIONS_PER_DEVICE);
        self.levels.push(Level { bus, next: 0, end, bridge, limit, kept, used_before });
    }

    fn add(&mut self, function: Arc<Function>) {
        if self.found.len() >= FUNCTIONS_MAX {
            log::error!("{}: more than {FUNCTIONS_MAX} functions; not used", function.address());
            return;
        }
        self.found.push(function.clone());
        if function.is_bridge() {
            self.descend(function);
        }
    }

    /// Numbers the bus behind a bridge and goes there.
    fn descend(&mut self, bridge: Arc<Function>) {
        let Some(level) = self.levels.last() else { return };
        let (bus, limit) = (level.bus, level.limit);
        let config = &bridge.config;
        let primary = config.read_u8(PRIMARY_BUS);
        let secondary = config.read_u8(SECONDARY_BUS);
        let subordinate = config.read_u8(SUBORDINATE_BUS);
        let is_free = secondary > self.used || self.is_hole(secondary, subordinate, bus);
        let kept = primary == bus && is_free && subordinate >= secondary && subordinate <= limit;
        if kept {
            bridge.set_buses(secondary, subordinate);
            self.enter(secondary, subordinate, Some(bridge), true);
            self.used = secondary;
            return;
        }
        if self.used >= limit {
            log::warn!("{}: no bus number is left for what is behind", bridge.address());
            // Passes nothing on.
            for register in [PRIMARY_BUS, SECONDARY_BUS, SUBORDINATE_BUS] {
                config.write_u8(register, 0);
            }
            return;
        }
        let secondary = self.used + 1;
        config.write_u8(PRIMARY_BUS, bus);
        config.write_u8(SECONDARY_BUS, secondary);
        config.write_u8(SUBORDINATE_BUS, limit);
        bridge.set_buses(secondary, limit);
        self.enter(secondary, limit, Some(bridge), false);
        self.used = secondary;
    }

    /// Whether numbers below the highest one in use are nobody's, and so may stay those of a bridge on this bus: firmware has numbered in another order, or the bridge was
    /// taken out and is found again.
    fn is_hole(&self, first: u8, last: u8, bus: u8) -> bool {
        let found = self.found.iter().filter_map(|function| function.buses());
        let others = self.taken.iter().copied().chain(found);
        // What is above has the numbers of all that is behind it.
        let mut others = others.filter(|(start, end)| !(*start..=*end).contains(&bus));
        first > bus && others.all(|(start, end)| last < start || end < first)
    }

    /// A bus has been walked.
    fn leave(&mut self) {
        let Some(level) = self.levels.pop() else { return };
        let Some(bridge) = level.bridge else { return };
        if self.levels.is_empty() {
            // The bridge that the walk started behind; its numbers are not ours to change.
            return;
        }
        if level.kept {
            self.used = self.used.max(level.limit).max(level.used_before);
            return;
        }
        let free = level.limit - self.used;
        if bridge.is_hot_plug_port() && free > SCARCE_BUSES {
            self.used = self.used.max((level.bus + RESERVED_BUSES).min(level.limit));
        }
        bridge.config.write_u8(SUBORDINATE_BUS, self.used);
        bridge.set_buses(level.bus, self.used);
        debug_assert!(self.segment == bridge.address().segment && Arc::strong_count(self.access) > 0);
    }
}
