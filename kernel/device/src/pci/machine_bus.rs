//! This machine's PCI: found when somebody first wants it, one [`BUS`] for all drivers.
//!
//! Nothing is looked at during start-up. The first call of [`initialize`] finds the way to configuration space (ACPI's `MCFG`, else
//! what `_CBA` in its `DSDT` says, else the ports), decides what the host bridge passes on, enumerates and offers everything to drivers. A machine without ACPI tables and
//! without ports costs two port accesses.
//!
//! # What the host bridge passes on
//! ACPI says it in byte code that this kernel does not run. Instead: memory from [`HOLE_START`] to [`HOLE_END`] without the
//! configuration window, of which the largest piece is taken; ports from [`PORTS_START`]. That is so on QEMU's machines, and firmware's own
//! assignments, where they are complete, are kept in any case.
//!
//! # Lines
//! Pins are turned by the device number at each bridge on the way up, as the specification says. Which line of the I/O APIC a pin at the root
//! is wired to is known for the two host bridges of QEMU; others use what firmware has written into the function.
//!
//! Lock order: `TOPOLOGY`, the bus's lock, the port bus's lock.

use alloc::string::String;
use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, Ordering};

use sched::{Mutex, MutexGuard};
use sync::{Once, SpinLock};

use super::access::{self, Ecam};
use super::config::ConfigAccess;
use super::function::{Function, Identity};
use super::hierarchy::{Hierarchy, Root};
use super::window::{FreeRanges, Range, WindowKind, Windows};
use super::{Address, registers};
use crate::interrupt::{Interrupt, Source};
use crate::model::{Binding, Bus, Driver, DriverError};

/// Where memory addresses for devices may start.
const HOLE_START: u64 = 0xc000_0000;
/// Where the machine's own registers start.
const HOLE_END: u64 = 0xfe00_0000;
/// Where ports for devices start: all below may be the machine's own.
const PORTS_START: u64 = 0x1000;
/// One past the last port.
const PORTS_END: u64 = 0x1_0000;
/// Memory addresses above 4 GiB for devices: as many as all processors can address.
const HIGH_START: u64 = 1 << 38;
const HIGH_END: u64 = 1 << 39;

/// Intel's host bridge of q35.
const Q35: (u16, u16) = (0x8086, 0x29c0);
/// QEMU's generic host bridge, as microvm has it.
const GENERIC: (u16, u16) = (0x1b36, 0x0008);

/// All functions of the machine, for drivers.
pub static BUS: Bus<Function> = Bus::new("pci", "PCI bus");

static HIERARCHY: Once<Option<Hierarchy>> = Once::new();
/// Whether all functions that were there at start-up have been offered to the drivers.
static IS_COMPLETE: AtomicBool = AtomicBool::new(false);
/// Held while functions come and go.
static TOPOLOGY: Mutex<()> = Mutex::named("PCI topology", ());

/// The machine's hierarchy, if it was looked for and there is one.
pub fn hierarchy() -> Option<&'static Hierarchy> {
    HIERARCHY.get().and_then(Option::as_ref)
}

/// Finds everything and offers it to the drivers, unless that was done; waits for whoever is at it. May sleep.
pub fn initialize() {
    if IS_COMPLETE.load(Ordering::Acquire) {
        return;
    }
    let _topology = TOPOLOGY.lock();
    if IS_COMPLETE.load(Ordering::Acquire) {
        return;
    }
    find_all();
    // Release: who sees it sees the functions and their drivers.
    IS_COMPLETE.store(true, Ordering::Release);
}

/// With the topology held.
fn find_all() {
    let hierarchy = discover();
    if hierarchy.is_some() {
        crate::express::initialize();
    }
    if let Some(hierarchy) = &hierarchy {
        hierarchy.enumerate();
    }
    let Some(hierarchy) = HIERARCHY.call_once(|| hierarchy) else { return };
    for function in hierarchy.functions() {
        connect_line(hierarchy, &function);
        BUS.add(function);
    }
}

fn discover() -> Option<Hierarchy> {
    let table = machine::boot::firmware_table;
    let listed = table(*b"MCFG").map(access::parse_mcfg).unwrap_or_default().into_iter().next();
    let ecam = listed.or_else(|| access::parse_base_address(table(*b"DSDT")?));
    let in_memory = ecam.and_then(|ecam| Some((access::in_memory(ecam)?, Some(ecam))));
    let (access, ecam) = in_memory.or_else(|| Some((access::ports()?, None)))?;
    let (segment, first_bus, last_bus) =
        ecam.map_or((0, 0, u8::MAX), |ecam| (ecam.segment, ecam.first_bus, ecam.last_bus));
    let root = Root { segment, first_bus, last_bus, windows: root_windows(&access, ecam, first_bus) };
    Some(Hierarchy::new(access, root))
}

fn root_windows(access: &Arc<dyn ConfigAccess>, ecam: Option<Ecam>, first_bus: u8) -> Windows {
    let mut windows = Windows::NONE;
    let segment = ecam.map_or(0, |ecam| ecam.segment);
    let host = super::config::Config::new(access.clone(), Address::new(segment, first_bus, 0, 0));
    let id = (host.read_u16(registers::VENDOR), host.read_u16(registers::DEVICE));
    windows.set(WindowKind::Memory, memory_hole(ecam));
    // The generic host bridge passes on no ports, and above 4 GiB what differs between versions of QEMU.
    if id != GENERIC {
        windows.set(WindowKind::Io, Range { start: PORTS_START, end: PORTS_END });
    }
    if id == Q35 && highest_memory() < HIGH_START {
        windows.set(WindowKind::Prefetch, Range { start: HIGH_START, end: HIGH_END });
    }
    windows
}

fn highest_memory() -> u64 {
    let map = machine::boot::info().memory_map.iter();
    let memory = map.filter(|region| region.kind == machine::boot::MemoryKind::Usable);
    memory.map(|region| region.range.end.as_u64()).max().unwrap_or(0)
}

/// The largest piece of the hole below 4 GiB that nothing else is in.
fn memory_hole(ecam: Option<Ecam>) -> Range {
    let mut free = FreeRanges::new(Range { start: HOLE_START, end: HOLE_END });
    if let Some(ecam) = ecam {
        free.take(ecam.range());
    }
    for region in machine::boot::info().memory_map {
        free.take(Range { start: region.range.start.as_u64(), end: region.range.end.as_u64() });
    }
    free.largest()
}

/// The line of the I/O APICs that a function's pin is wired to.
fn line_of(hierarchy: &Hierarchy, function: &Function) -> Option<u32> {
    let mut pin = u32::from(function.pin.checked_sub(1)?);
    let mut device = u32::from(function.address().device());
    let mut above = function.upstream;
    while let Some(bridge) = above {
        pin = (pin + device) % 4;
        device = bridge.device().into();
        above = hierarchy.find(bridge)?.upstream;
    }
    let root = hierarchy.root();
    let host = hierarchy.find(Address::new(root.segment, root.first_bus, 0, 0))?;
    match (host.identity.vendor, host.identity.device) {
        // The chip's own devices have registers for their wiring, which are left as they are after reset.
        Q35 if (25..=31).contains(&device) && device != 30 => Some(16 + pin),
        Q35 if device == 30 => Some(20 + pin),
        Q35 => Some(20 + (device + pin) % 4),
        GENERIC => Some(12 + (device + pin) % 4),
        _ => Some(function.interrupt()).filter(|line| *line != 0),
    }
}

/// Notes the line of a function's pin as its interrupt.
fn connect_line(hierarchy: &Hierarchy, function: &Function) {
    function.set_interrupt(line_of(hierarchy, function).unwrap_or(0));
}

/// Interrupts of lines that are in use.
static LINES: SpinLock<Vec<(u32, Weak<Interrupt>)>> = SpinLock::named("PCI lines", Vec::new());

/// The interrupt of a function's pin, which it may share. None if it has no pin or nothing serves its line.
pub fn line_interrupt(function: &Function) -> Option<Arc<Interrupt>> {
    let line = line_of(hierarchy()?, function)?;
    // Held by whoever changes functions, and so drivers.
    let known =
        LINES.lock().iter().find(|(number, _)| *number == line).and_then(|(_, known)| known.upgrade());
    if known.is_some() {
        return known;
    }
    let interrupt = Interrupt::allocate(Source::Line(line))?;
    let wanted = LINES.lock().len() + 1;
    let mut room = Vec::with_capacity(wanted);
    {
        let mut lines = LINES.lock();
        room.extend(lines.drain(..).filter(|(number, known)| *number != line && known.strong_count() > 0));
        room.push((line, Arc::downgrade(&interrupt)));
        core::mem::swap(&mut *lines, &mut room);
    }
    drop(room);
    Some(interrupt)
}

/// All functions, found now if they were not.
pub fn functions() -> Vec<Arc<Function>> {
    initialize();
    hierarchy().map(Hierarchy::functions).unwrap_or_default()
}

/// The function at an address.
pub fn find(address: Address) -> Option<Arc<Function>> {
    hierarchy()?.find(address)
}

/// Looks for what is new behind a bridge, or everywhere, and offers it to drivers. Returns how many functions are new.
pub fn rescan(bridge: Option<&Arc<Function>>) -> usize {
    initialize();
    let _topology = TOPOLOGY.lock();
    let Some(hierarchy) = hierarchy() else { return 0 };
    let new = hierarchy.rescan(bridge);
    for function in &new {
        crate::express::aer::enable_reporting(function);
        connect_line(hierarchy, function);
        BUS.add(function.clone());
    }
    new.len()
}

/// No function comes or goes, and no driver gets or loses one, as long as it lives.
pub(crate) struct Held {
    _bus: MutexGuard<'static, ()>,
    _topology: MutexGuard<'static, ()>,
}

/// Has all stay as it is, in the order of the locks. May sleep.
pub(crate) fn hold() -> Held {
    let topology = TOPOLOGY.lock();
    Held { _bus: BUS.hold(), _topology: topology }
}

/// Takes functions, with all that is behind them, from their drivers and out of the hierarchy.
pub fn remove(functions: &[Arc<Function>]) {
    let _topology = TOPOLOGY.lock();
    if let Some(hierarchy) = hierarchy() {
        functions.iter().for_each(|function| take_out(hierarchy, &hierarchy.subtree(function)));
    }
}

/// Takes all that is behind a bridge out, deepest first, and calls `after` before anybody can look for functions again.
pub(crate) fn remove_behind(bridge: &Function, after: &dyn Fn()) {
    let _topology = TOPOLOGY.lock();
    if let Some(hierarchy) = hierarchy() {
        take_out(hierarchy, &hierarchy.behind(bridge));
    }
    after();
}

/// With the topology held.
fn take_out(hierarchy: &Hierarchy, gone: &[Arc<Function>]) {
    gone.iter().for_each(|function| BUS.remove(function));
    hierarchy.forget(gone);
}

/// Where a function is below `/sys`.
pub(super) fn path(function: &Function) -> String {
    let mut chain = alloc::vec![function.address()];
    let mut above = function.upstream;
    while let Some(bridge) = above {
        chain.push(bridge);
        above = find(bridge).and_then(|function| function.upstream);
    }
    let segment = function.address().segment;
    let first_bus = hierarchy().map_or(0, |hierarchy| hierarchy.root().first_bus);
    let mut path = alloc::format!("/devices/pci{segment:04x}:{first_bus:02x}");
    for address in chain.iter().rev() {
        // Writing into a string does not fail.
        let _ = write!(path, "/{address}");
    }
    path
}

/// Any vendor or device, in a [`PciId`].
pub const ANY: u16 = u16::MAX;

/// Which functions a driver is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciId {
    /// Vendor, or [`ANY`].
    pub vendor: u16,
    /// Device, or [`ANY`].
    pub device: u16,
    /// Class, as far as the mask has ones.
    pub class: u32,
    /// Which bits of the class count.
    pub class_mask: u32,
}

impl PciId {
    /// A device of a vendor.
    pub const fn device(vendor: u16, device: u16) -> Self {
        Self { vendor, device, class: 0, class_mask: 0 }
    }

    /// All devices of a class.
    pub const fn class(class: u32, class_mask: u32) -> Self {
        Self { vendor: ANY, device: ANY, class, class_mask }
    }

    /// Whether it is for such a function.
    pub fn matches(&self, identity: &Identity) -> bool {
        (self.vendor == ANY || self.vendor == identity.vendor)
            && (self.device == ANY || self.device == identity.device)
            && identity.class & self.class_mask == self.class & self.class_mask
    }

    /// As a program writes it to `new_id`: vendor and device in hexadecimal, perhaps subsystem's two, class and mask.
    fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace().map(|word| u32::from_str_radix(word, 16).ok());
        let mut short = || words.next().flatten().and_then(|value| u16::try_from(value).ok());
        let (vendor, device) = (short()?, short()?);
        let mut rest = words.skip(2);
        let (class, class_mask) = match rest.next() {
            None => (0, 0),
            Some(class) => (class?, rest.next().flatten().unwrap_or(0)),
        };
        Some(Self { vendor, device, class, class_mask })
    }
}

/// What a driver does with a function that its table has.
pub type ProbeFunction = fn(&Arc<Function>) -> Result<Arc<dyn Binding>, DriverError>;

/// A driver for PCI functions.
pub struct PciDriver {
    name: &'static str,
    ids: &'static [PciId],
    /// Added by user space.
    added: SpinLock<Vec<PciId>>,
    probe: ProbeFunction,
}

impl PciDriver {
    /// A driver with an id table.
    pub const fn new(name: &'static str, ids: &'static [PciId], probe: ProbeFunction) -> Self {
        Self { name, ids, added: SpinLock::named("added device ids", Vec::new()), probe }
    }
}

impl Driver<Function> for PciDriver {
    fn name(&self) -> &str {
        self.name
    }

    fn matches(&self, function: &Function) -> bool {
        if let Some(only) = function.driver_override() {
            return *only == *self.name;
        }
        let is_for = |id: &PciId| id.matches(&function.identity);
        self.ids.iter().any(is_for) || self.added.lock().iter().any(is_for)
    }

    fn probe(&self, function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
        (self.probe)(function)
    }

    fn add_id(&self, text: &str) -> Result<(), DriverError> {
        /// More than anybody tries by hand.
        const ADDED_MAX: usize = 64;
        let id = PciId::parse(text).ok_or(DriverError::Invalid)?;
        let mut room = Vec::with_capacity(ADDED_MAX);
        let mut added = self.added.lock();
        if added.len() >= ADDED_MAX {
            return Err(DriverError::Exhausted);
        }
        if added.capacity() == 0 {
            core::mem::swap(&mut *added, &mut room);
        }
        added.push(id);
        Ok(())
    }

    fn remove_id(&self, text: &str) -> Result<(), DriverError> {
        let id = PciId::parse(text).ok_or(DriverError::Invalid)?;
        let is_meant = |known: &PciId| {
            (known.vendor, known.device) == (id.vendor, id.device)
                && (known.class ^ id.class) & id.class_mask == 0
        };
        let mut added = self.added.lock();
        let place = added.iter().position(is_meant).ok_or(DriverError::NotFound)?;
        added.swap_remove(place);
        Ok(())
    }

    fn takes_ids(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_parsed_as_linux_does() {
        assert_eq!(PciId::parse("1af4 1041\n"), Some(PciId::device(0x1af4, 0x1041)));
        let full = PciId { vendor: 0x1af4, device: 1, class: 0x02_0000, class_mask: 0xff_ff00 };
        assert_eq!(PciId::parse("1af4 1 ffffffff ffffffff 20000 ffff00"), Some(full));
        for wrong in ["", "1af4", "x 1", "12345 1", "1 2 3 4 z"] {
            assert_eq!(PciId::parse(wrong), None, "{wrong}");
        }
        let identity = Identity { vendor: 0x1af4, device: 1, class: 0x02_0012, ..Identity::default() };
        assert!(full.matches(&identity) && PciId::class(0x02_0000, 0xff_0000).matches(&identity));
        assert!(!PciId::class(0x01_0000, 0xff_0000).matches(&identity));
    }

    #[test]
    fn hole_is_the_largest_piece_beside_the_configuration_window() {
        let ecam = |base| Some(Ecam { base, segment: 0, first_bus: 0, last_bus: 255 });
        assert_eq!(memory_hole(ecam(0xb000_0000)), Range { start: HOLE_START, end: HOLE_END });
        assert_eq!(memory_hole(ecam(0xe000_0000)), Range { start: HOLE_START, end: 0xe000_0000 });
    }
}
