//! Which ports there are, which services, and which port has which (specs/pcie-port-bus.md, features 1, 3 and 4).

use alloc::string::String;

use crate::pci::registers::{CAPABILITY_POWER, EXTENDED_AER, EXTENDED_VIRTUAL_CHANNEL};
use crate::pci::{Address, Function, capability};

/// Where the slot capabilities are in the PCI Express capability.
const SLOT_CAPABILITIES: u16 = 0x14;

/// The three types of ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortKind {
    /// A link from the root complex starts here.
    Root,
    /// A switch's way up.
    Upstream,
    /// A switch's way down.
    Downstream,
}

impl PortKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Root, Self::Upstream, Self::Downstream];

    /// That of a device type in the PCI Express capability.
    pub const fn of_device_type(device_type: u8) -> Option<Self> {
        match device_type {
            4 => Some(Self::Root),
            5 => Some(Self::Upstream),
            6 => Some(Self::Downstream),
            _ => None,
        }
    }

    /// The digit in names of service devices.
    pub const fn digit(self) -> u8 {
        match self {
            Self::Root => 0,
            Self::Upstream => 1,
            Self::Downstream => 2,
        }
    }
}

/// The services that a port may offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ServiceKind {
    /// Power management events.
    Pme,
    /// Advanced error reporting.
    Aer,
    /// Native hot-plug.
    HotPlug,
    /// Virtual channels.
    VirtualChannel,
}

impl ServiceKind {
    /// All of them, in the order of their digits.
    pub const ALL: [Self; 4] = [Self::Pme, Self::Aer, Self::HotPlug, Self::VirtualChannel];

    /// The digit in names of service devices.
    pub const fn digit(self) -> u8 {
        self as u8
    }

    /// The name of the device for this service on a port; None for a configuration that PCI Express does not have.
    pub fn device_name(self, port: PortKind, address: Address) -> Option<String> {
        if self == Self::HotPlug && port == PortKind::Upstream {
            return None;
        }
        Some(alloc::format!("{address}:pcie{}{}", port.digit(), self.digit()))
    }
}

/// A set of services.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceSet(u8);

impl ServiceSet {
    /// Adds one.
    pub fn insert(&mut self, service: ServiceKind) {
        self.0 |= 1 << service.digit();
    }

    /// Whether it has one.
    pub fn contains(self, service: ServiceKind) -> bool {
        self.0 & 1 << service.digit() != 0
    }

    /// All it has.
    pub fn iter(self) -> impl Iterator<Item = ServiceKind> {
        ServiceKind::ALL.into_iter().filter(move |service| self.contains(*service))
    }

    /// How many.
    pub fn count(self) -> usize {
        self.0.count_ones() as usize
    }
}

/// What a slot can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotCapabilities(pub u32);

impl SlotCapabilities {
    /// There is an attention button.
    pub const fn has_attention_button(self) -> bool {
        self.0 & 1 << 0 != 0
    }

    /// Its power can be switched.
    pub const fn has_power_controller(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// It has a latch with a sensor.
    pub const fn has_latch_sensor(self) -> bool {
        self.0 & 1 << 2 != 0
    }

    /// Devices may come and go natively.
    pub const fn is_hot_plug_capable(self) -> bool {
        self.0 & 1 << 6 != 0
    }

    /// Commands complete at once, without saying so.
    pub const fn completes_silently(self) -> bool {
        self.0 & 1 << 18 != 0
    }

    /// The number on the chassis.
    pub const fn number(self) -> u32 {
        self.0 >> 19
    }
}

/// What the slot behind a port can do; None if there is no slot.
pub fn slot_capabilities(function: &Function) -> Option<SlotCapabilities> {
    let express = function.express.filter(|express| express.has_slot())?;
    let port = PortKind::of_device_type(express.device_type())?;
    // An upstream port has no slot, whatever its registers say.
    (port != PortKind::Upstream)
        .then(|| SlotCapabilities(function.config.read_u32(express.offset + SLOT_CAPABILITIES)))
}

/// The services that a port implements. A root port always hears of power management events.
pub fn services_of(function: &Function) -> ServiceSet {
    let mut services = ServiceSet::default();
    let Some(port) = function.port() else { return services };
    if port == PortKind::Root || capability::find(&function.config, CAPABILITY_POWER).is_some() {
        services.insert(ServiceKind::Pme);
    }
    if capability::find_extended(&function.config, EXTENDED_AER).is_some() {
        services.insert(ServiceKind::Aer);
    }
    if slot_capabilities(function).is_some_and(SlotCapabilities::is_hot_plug_capable) {
        services.insert(ServiceKind::HotPlug);
    }
    if capability::find_extended(&function.config, EXTENDED_VIRTUAL_CHANNEL).is_some() {
        services.insert(ServiceKind::VirtualChannel);
    }
    services
}
