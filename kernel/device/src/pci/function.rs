//! A function of a PCI device: what enumeration finds out about it once, and its state.
//!
//! Locking: `regions` and `windows` are written by whoever assigns addresses (under the hierarchy's lock) and may be read by anybody.

use alloc::string::String;
use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::{AtomicU32, Ordering};

use sync::SpinLock;

use super::Address;
use super::capability;
use super::config::Config;
use super::region::{self, ROM_REGION, Region, Regions};
use super::registers::*;
use super::window::Windows;
use crate::express::PortKind;
use crate::express::aer::ErrorCounters;
use crate::model::BusDevice;

/// What a function says it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Identity {
    /// Who made it.
    pub vendor: u16,
    /// Which of the vendor's devices it is.
    pub device: u16,
    /// Who made what it is a part of.
    pub subsystem_vendor: u16,
    /// Which.
    pub subsystem: u16,
    /// Class, subclass and programming interface: 24 bits.
    pub class: u32,
    /// Revision.
    pub revision: u8,
}

/// A function's PCI Express capability.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Express {
    /// Where it is.
    pub offset: u16,
    /// Its first register, which says what the rest is.
    pub flags: u16,
}

impl Express {
    /// Type of device or port.
    pub fn device_type(&self) -> u8 {
        (self.flags >> 4 & 0xf) as u8
    }

    /// Whether there is a slot behind the port.
    pub fn has_slot(&self) -> bool {
        self.flags & 1 << 8 != 0
    }

    /// Which message interrupts for hot-plug and power management.
    pub fn message_number(&self) -> u8 {
        (self.flags >> 9 & 0x1f) as u8
    }
}

/// A function that was found.
pub struct Function {
    /// Its configuration space.
    pub config: Arc<Config>,
    /// What it says it is.
    pub identity: Identity,
    /// The first byte of its layout, without the bit for several functions.
    pub header_type: u8,
    /// The bridge above it; None right below the root.
    pub upstream: Option<Address>,
    /// Its PCI Express capability.
    pub express: Option<Express>,
    /// The errors it has reported.
    pub errors: ErrorCounters,
    /// Its interrupt pin, 1 is INTA; 0 is none.
    pub pin: u8,
    regions: SpinLock<Regions>,
    windows: SpinLock<Windows>,
    /// Bus behind a bridge in the low byte, highest one behind it in the next; 0 for others.
    buses: AtomicU32,
    /// How many have asked for it to be enabled.
    enabled: AtomicU32,
    /// The number of its interrupt, as shown.
    interrupt: AtomicU32,
    /// The numbers of its interrupts by message.
    messages: SpinLock<Option<Arc<[u32]>>>,
    /// The only driver that may have it, if somebody has said so.
    driver_override: SpinLock<Option<Arc<str>>>,
}

impl Function {
    /// Reads what the function at a place is. None if no function answers.
    pub(crate) fn probe(config: Config, upstream: Option<Address>) -> Option<Self> {
        let ids = config.read_u32(VENDOR);
        if matches!(ids as u16, 0 | 0xffff) {
            return None;
        }
        let class = config.read_u32(CLASS_REVISION);
        let header_type = config.read_u8(HEADER_TYPE) & 0x7f;
        let (subsystem_vendor, subsystem) = match header_type {
            0 => (config.read_u16(SUBSYSTEM_VENDOR), config.read_u16(SUBSYSTEM)),
            1 => capability::find(&config, CAPABILITY_SUBSYSTEM)
                .map_or((0, 0), |offset| (config.read_u16(offset + 4), config.read_u16(offset + 6))),
            _ => (0, 0),
        };
        let identity = Identity {
            vendor: ids as u16,
            device: (ids >> 16) as u16,
            subsystem_vendor,
            subsystem,
            class: class >> 8,
            revision: class as u8,
        };
        let express = capability::find(&config, CAPABILITY_EXPRESS)
            .map(|offset| Express { offset, flags: config.read_u16(offset + 2) });
        let (base_registers, is_bridge) = match header_type {
            0 => (6, false),
            1 => (2, true),
            _ => (0, false),
        };
        let regions = region::measure(&config, base_registers, is_bridge);
        let windows = if is_bridge { Windows::read(&config) } else { Windows::NONE };
        let pin = config.read_u8(INTERRUPT_PIN);
        let line = config.read_u8(INTERRUPT_LINE);
        Some(Self {
            identity,
            header_type,
            upstream,
            express,
            errors: ErrorCounters::new(),
            pin: if pin <= 4 { pin } else { 0 },
            regions: SpinLock::named("PCI regions", regions),
            windows: SpinLock::named("PCI windows", windows),
            buses: AtomicU32::new(0),
            enabled: AtomicU32::new(0),
            messages: SpinLock::named("PCI messages", None),
            driver_override: SpinLock::named("PCI driver override", None),
            interrupt: AtomicU32::new(if pin == 0 || line == 0xff { 0 } else { line.into() }),
            config: Arc::new(config),
        })
    }

    /// Where it is.
    pub fn address(&self) -> Address {
        self.config.address()
    }

    /// Whether it is a bridge to another PCI bus.
    pub fn is_bridge(&self) -> bool {
        self.header_type == 1
    }

    /// The bus behind a bridge and the highest one behind it.
    pub fn buses(&self) -> Option<(u8, u8)> {
        let buses = self.buses.load(Ordering::Relaxed);
        (buses != 0).then_some((buses as u8, (buses >> 8) as u8))
    }

    pub(crate) fn set_buses(&self, secondary: u8, subordinate: u8) {
        self.buses.store(u32::from(secondary) | u32::from(subordinate) << 8, Ordering::Relaxed);
    }

    /// What kind of PCI Express port it is, if it is one.
    pub fn port(&self) -> Option<PortKind> {
        let express = self.express.filter(|_| self.is_bridge())?;
        PortKind::of_device_type(express.device_type())
    }

    /// Whether devices can come and go behind it while the machine runs.
    pub fn is_hot_plug_port(&self) -> bool {
        crate::express::slot_capabilities(self).is_some_and(|slot| slot.is_hot_plug_capable())
    }

    /// What it wants addresses for, and which it has.
    pub fn regions(&self) -> Regions {
        *self.regions.lock()
    }

    /// One of its regions, if it has an address.
    pub fn region(&self, index: usize) -> Option<Region> {
        self.regions.lock().get(index).copied().flatten().filter(|region| region.start != 0)
    }

    pub(crate) fn set_region_start(&self, index: usize, start: u64) {
        let region = {
            let mut regions = self.regions.lock();
            let Some(region) = &mut regions[index] else { return };
            region.start = start;
            *region
        };
        region::write_address(&self.config, index, &region, self.is_bridge());
    }

    /// Whether the function that was found still answers: another one of the same type would have lost the addresses that this one was given.
    pub fn is_still_there(&self) -> bool {
        let ids = u32::from(self.identity.vendor) | u32::from(self.identity.device) << 16;
        let regions = self.regions();
        let has_address = |(index, region): (usize, &Option<Region>)| {
            region.is_none_or(|region| region.start == 0 || region::has_address(&self.config, index, &region))
        };
        self.config.read_u32(VENDOR) == ids && regions[..ROM_REGION].iter().enumerate().all(has_address)
    }

    /// A bridge's windows.
    pub fn windows(&self) -> Windows {
        *self.windows.lock()
    }

    pub(crate) fn set_windows(&self, windows: Windows) {
        *self.windows.lock() = windows;
        windows.write(&self.config);
    }

    /// Lets the function answer to its addresses and reach memory. Balanced by [`Function::disable`].
    pub fn enable(&self) {
        self.enabled.fetch_add(1, Ordering::Relaxed);
        let bits = COMMAND_IO | COMMAND_MEMORY | COMMAND_MASTER;
        self.config.modify_u16(COMMAND, bits, bits);
    }

    /// Takes an [`Function::enable`] back; with the last one the function stops reaching memory.
    pub fn disable(&self) {
        let before =
            self.enabled.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        if before == Ok(1) && !self.is_bridge() {
            self.config.modify_u16(COMMAND, COMMAND_MASTER, 0);
        }
    }

    /// How many have enabled it.
    pub fn enable_count(&self) -> u32 {
        self.enabled.load(Ordering::Relaxed)
    }

    /// The number of its interrupt; 0: none.
    pub fn interrupt(&self) -> u32 {
        self.interrupt.load(Ordering::Relaxed)
    }

    pub(crate) fn set_interrupt(&self, number: u32) {
        self.interrupt.store(number, Ordering::Relaxed);
    }

    /// The numbers of the interrupts that it raises by messages.
    pub fn messages(&self) -> Option<Arc<[u32]>> {
        self.messages.lock().clone()
    }

    pub(crate) fn set_messages(&self, numbers: Option<Arc<[u32]>>) {
        let old = core::mem::replace(&mut *self.messages.lock(), numbers);
        drop(old);
    }

    /// The only driver that may have it, whatever that one's table says; None: any whose table has it.
    pub fn driver_override(&self) -> Option<Arc<str>> {
        self.driver_override.lock().clone()
    }

    /// Names the only driver that may have it from now on. The one that has it keeps it.
    pub fn set_driver_override(&self, name: Option<Arc<str>>) {
        let old = core::mem::replace(&mut *self.driver_override.lock(), name);
        drop(old);
    }

    /// As Linux's module tools look it up.
    pub fn write_modalias(&self, out: &mut dyn Write) -> core::fmt::Result {
        let Identity { vendor, device, subsystem_vendor, subsystem, class, .. } = self.identity;
        write!(
            out,
            "pci:v{vendor:08X}d{device:08X}sv{subsystem_vendor:08X}sd{subsystem:08X}bc{:02X}sc{:02X}i{:02X}",
            class >> 16 & 0xff,
            class >> 8 & 0xff,
            class & 0xff
        )
    }
}

impl BusDevice for Function {
    fn name(&self) -> String {
        alloc::format!("{}", self.address())
    }

    fn subsystem(&self) -> &'static str {
        "pci"
    }

    fn path(&self) -> String {
        super::machine_bus::path(self)
    }

    fn describe(&self, out: &mut String) {
        let Identity { vendor, device, subsystem_vendor, subsystem, class, .. } = self.identity;
        // Writing into a string does not fail.
        let _ = writeln!(out, "PCI_CLASS={class:X}\nPCI_ID={vendor:04X}:{device:04X}");
        let _ = writeln!(out, "PCI_SUBSYS_ID={subsystem_vendor:04X}:{subsystem:04X}");
        let _ = write!(out, "PCI_SLOT_NAME={}\nMODALIAS=", self.address());
        let _ = self.write_modalias(out);
        out.push('\n');
    }
}

impl core::fmt::Debug for Function {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Identity { vendor, device, .. } = self.identity;
        write!(formatter, "Function({} {vendor:04x}:{device:04x})", self.address())
    }
}
