//! Service devices, their bus, and how drivers for them are registered (specs/pcie-port-bus.md, features 4 to 11).
//!
//! # Porting a driver for a whole port to a service
//! 1. Write the id table as [`ServiceId`]s: the port's vendor and device, its kind, the service, and data of the driver's own for each entry.
//! 2. Have the probe function take a [`ServiceDevice`] instead of a function, and the entry that is for it.
//! 3. Call [`register`] instead of registering with the PCI bus.
//!
//! # States of a driver
//! *Registered* → (a service device matches: probed) *running* for that device, as one of many; without a match it stays registered, idle, until a port comes that has one. A device that goes, a
//! write to `unbind` or [`unregister`] → `remove`, for each device that it runs for. *Unregistered* is the end, and can be followed by another registration.
//!
//! # What a service driver may touch
//! Its own capability, through [`Registers`], which reaches nothing else; and the bits of Device Control and Root Control that belong to its
//! service, through [`ServiceDevice::modify_device_control`] and [`ServiceDevice::modify_root_control`], which lock. It
//! registers its handler with the interrupt it was given, as one of several. How the port interrupts is not its business, nor whether
//! the port is enabled.

use alloc::string::String;
use alloc::sync::Arc;

use super::kind::{PortKind, ServiceKind};
use crate::interrupt::Interrupt;
use crate::model::{Binding, Bus, BusDevice, Driver, DriverError};
use crate::pci::{ANY, Config, Function};

const DEVICE_CONTROL: u16 = 0x08;
const ROOT_CONTROL: u16 = 0x1c;

/// All service devices, for their drivers.
pub static PORT_BUS: Bus<ServiceDevice> = Bus::new("pci_express", "port bus");

/// A part of configuration space: one capability.
#[derive(Clone)]
pub struct Registers {
    config: Arc<Config>,
    offset: u16,
    bytes: u16,
}

impl Registers {
    pub(super) fn new(config: &Arc<Config>, offset: u16, bytes: u16) -> Self {
        Self { config: config.clone(), offset, bytes }
    }

    fn place(&self, register: u16, bytes: u16) -> u16 {
        assert!(register + bytes <= self.bytes, "a register outside of the service's capability");
        self.offset + register
    }

    /// Reads 16 bits.
    pub fn read_u16(&self, register: u16) -> u16 {
        self.config.read_u16(self.place(register, 2))
    }

    /// Reads 32 bits.
    pub fn read_u32(&self, register: u16) -> u32 {
        self.config.read_u32(self.place(register, 4))
    }

    /// Writes 16 bits.
    pub fn write_u16(&self, register: u16, value: u16) {
        self.config.write_u16(self.place(register, 2), value);
    }

    /// Writes 32 bits.
    pub fn write_u32(&self, register: u16, value: u32) {
        self.config.write_u32(self.place(register, 4), value);
    }

    /// Replaces the bits of `mask`; returns what is written.
    pub fn modify_u16(&self, register: u16, mask: u16, value: u16) -> u16 {
        self.config.modify_u16(self.place(register, 2), mask, value)
    }
}

/// How a port interrupts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InterruptMode {
    /// By messages of a table.
    Table,
    /// By one message.
    Message,
    /// By its pin.
    Line,
}

/// One service of one port.
pub struct ServiceDevice {
    /// The port.
    pub port: Arc<Function>,
    /// What kind of port that is.
    pub kind: PortKind,
    /// Which service.
    pub service: ServiceKind,
    /// Its interrupt, which it may share; only a service without any need for one lacks it.
    pub interrupt: Option<Arc<Interrupt>>,
    /// How that comes.
    pub mode: Option<InterruptMode>,
    /// The service's capability.
    pub registers: Registers,
    pub(super) name: String,
}

impl ServiceDevice {
    fn modify(&self, register: u16, mask: u16, value: u16) {
        if let Some(express) = self.port.express {
            self.port.config.modify_u16(express.offset + register, mask, value);
        }
    }

    /// Changes bits of the port's Device Control that belong to the service.
    pub fn modify_device_control(&self, mask: u16, value: u16) {
        self.modify(DEVICE_CONTROL, mask, value);
    }

    /// Changes bits of a root port's Root Control that belong to the service.
    pub fn modify_root_control(&self, mask: u16, value: u16) {
        self.modify(ROOT_CONTROL, mask, value);
    }
}

impl BusDevice for ServiceDevice {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn subsystem(&self) -> &'static str {
        "pci_express"
    }

    fn path(&self) -> String {
        alloc::format!("{}/{}", self.port.path(), self.name)
    }
}

/// Which service devices a driver is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceId {
    /// The port's vendor, or any.
    pub vendor: u16,
    /// The port's device id, or any.
    pub device: u16,
    /// The kind of port; None: any.
    pub port: Option<PortKind>,
    /// The service.
    pub service: ServiceKind,
    /// What the driver wants to know of devices of this entry.
    pub data: usize,
}

impl ServiceId {
    /// A service of ports of a kind, whoever made them.
    pub const fn new(port: Option<PortKind>, service: ServiceKind) -> Self {
        Self { vendor: ANY, device: ANY, port, service, data: 0 }
    }

    fn matches(&self, device: &ServiceDevice) -> bool {
        let identity = device.port.identity;
        self.service == device.service
            && self.port.is_none_or(|port| port == device.kind)
            && (self.vendor == ANY || self.vendor == identity.vendor)
            && (self.device == ANY || self.device == identity.device)
    }
}

/// What a driver does with a service device that its table has, by the first entry that is for it.
pub type ServiceProbe = fn(&Arc<ServiceDevice>, &ServiceId) -> Result<Arc<dyn Binding>, DriverError>;

/// A driver for services.
pub struct ServiceDriver {
    name: &'static str,
    ids: &'static [ServiceId],
    probe: ServiceProbe,
}

impl ServiceDriver {
    /// A driver with an id table.
    pub const fn new(name: &'static str, ids: &'static [ServiceId], probe: ServiceProbe) -> Self {
        Self { name, ids, probe }
    }

    /// The first entry that is for a device.
    fn entry(&self, device: &ServiceDevice) -> Option<&'static ServiceId> {
        self.ids.iter().find(|id| id.matches(device))
    }
}

impl Driver<ServiceDevice> for ServiceDriver {
    fn name(&self) -> &str {
        self.name
    }

    fn matches(&self, device: &ServiceDevice) -> bool {
        self.entry(device).is_some()
    }

    fn probe(&self, device: &Arc<ServiceDevice>) -> Result<Arc<dyn Binding>, DriverError> {
        (self.probe)(device, self.entry(device).ok_or(DriverError::NotFound)?)
    }
}

/// Registers a service driver; it is offered every service device that there is or will be. Succeeds whether there is one or not.
pub fn register(driver: ServiceDriver) -> Result<(), DriverError> {
    PORT_BUS.register(Arc::new(driver))
}

/// Undoes [`register`].
pub fn unregister(name: &str) -> Result<(), DriverError> {
    PORT_BUS.unregister(name)
}
