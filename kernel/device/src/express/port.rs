//! The port bus driver: an ordinary PCI driver for bridges that has every PCI Express port (specs/pcie-port-bus.md, features 2, 4 and 10).
//!
//! Probing enables the port, sets up its interrupts and adds a service device for each service; removal undoes it in reverse order. On the command
//! line `pcie_ports=compat` leaves ports alone, `pci=noaer` leaves error reporting out.

use alloc::sync::Arc;
use alloc::vec::Vec;

use sync::Once;

use super::kind::{PortKind, ServiceKind, ServiceSet, services_of};
use super::recovery::{ChannelState, ErrorHandlers, Verdict};
use super::service::{PORT_BUS, Registers, ServiceDevice};
use super::vectors::{self, Offer, Vectors};
use super::{aer, hot_plug, pme, virtual_channel};
use crate::interrupt::{Interrupt, Source};
use crate::model::{Binding, DriverError};
use crate::pci::registers::{BRIDGE_CONTROL, BRIDGE_SERR, EXTENDED_AER, EXTENDED_VIRTUAL_CHANNEL};
use crate::pci::{BUS, Function, PciDriver, PciId, capability, table_size};

/// The name of the port bus driver.
pub const NAME: &str = "pcieport";
static IDS: [PciId; 1] = [PciId::class(0x06_0400, 0xff_ff00)];

/// Bytes of the PCI Express capability, of version 2.
const EXPRESS_BYTES: u16 = 0x3c;
/// Bytes of the capability for advanced error reporting.
const AER_BYTES: u16 = 0x38;
/// Bytes of the capability for virtual channels, without its tables.
const VIRTUAL_CHANNEL_BYTES: u16 = 0x1c;
/// Where the number of the message for errors is.
const ROOT_STATUS: u16 = 0x30;

/// Registers the port bus driver and the drivers of all services. Once; later calls do nothing.
pub fn initialize() {
    static ONCE: Once<()> = Once::new();
    ONCE.call_once(|| {
        if machine::boot::info().option("pcie_ports") == Some("compat") {
            return;
        }
        let services = [aer::register(), hot_plug::register(), pme::register(), virtual_channel::register()];
        let driver = PciDriver::new(NAME, &IDS, probe);
        for result in services.into_iter().chain([BUS.register(Arc::new(driver))]) {
            if let Err(error) = result {
                log::error!("a driver for PCI Express ports is registered twice: {error:?}");
            }
        }
    });
}

/// A port, as it offers interrupts.
struct PortOffer<'a>(&'a Arc<Function>);

impl Offer for PortOffer<'_> {
    fn table_size(&self) -> usize {
        table_size(self.0)
    }

    fn message_number(&self, service: ServiceKind) -> usize {
        match service {
            ServiceKind::Aer => capability::find_extended(&self.0.config, EXTENDED_AER)
                .map_or(0, |offset| self.0.config.read_u32(offset + ROOT_STATUS) as usize >> 27),
            _ => self.0.express.map_or(0, |express| express.message_number().into()),
        }
    }

    fn vector(&self) -> Option<Arc<Interrupt>> {
        Interrupt::allocate(Source::Message)
    }

    fn enable_table(&self, interrupts: &[Arc<Interrupt>]) -> bool {
        self.0.enable_table(interrupts)
    }

    fn enable_message(&self, interrupt: &Arc<Interrupt>) -> bool {
        self.0.enable_message(interrupt)
    }

    fn line(&self) -> Option<Arc<Interrupt>> {
        crate::pci::line_interrupt(self.0)
    }
}

/// Takes a bridge, if it is a port.
pub(crate) fn probe(function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
    let kind = function.port().ok_or(DriverError::NotSupported)?;
    function.enable();
    function.config.modify_u16(BRIDGE_CONTROL, BRIDGE_SERR, BRIDGE_SERR);
    let services = wanted(services_of(function));
    let vectors = vectors::assign(services, &PortOffer(function));
    let mut devices = Vec::new();
    for service in services.iter() {
        let interrupt = vectors.interrupts[usize::from(service.digit())].clone();
        if interrupt.is_none() && service != ServiceKind::VirtualChannel {
            log::warn!("{}: no interrupt for {service:?}", function.address());
            continue;
        }
        let Some(name) = service.device_name(kind, function.address()) else { continue };
        let Some(registers) = registers_of(function, service) else { continue };
        let (port, mode) = (function.clone(), vectors.mode);
        let device = Arc::new(ServiceDevice { port, kind, service, interrupt, mode, registers, name });
        PORT_BUS.add(device.clone());
        devices.push(device);
    }
    Ok(Arc::new(Port { function: function.clone(), kind, devices, vectors }))
}

fn wanted(services: ServiceSet) -> ServiceSet {
    let without_aer = machine::boot::info().option("pci") == Some("noaer");
    let mut wanted = ServiceSet::default();
    for service in services.iter().filter(|service| !(without_aer && *service == ServiceKind::Aer)) {
        wanted.insert(service);
    }
    wanted
}

/// The part of configuration space that is a service's.
fn registers_of(function: &Function, service: ServiceKind) -> Option<Registers> {
    let extended = |id, bytes| {
        let offset = capability::find_extended(&function.config, id)?;
        Some(Registers::new(&function.config, offset, bytes))
    };
    match service {
        ServiceKind::Aer => extended(EXTENDED_AER, AER_BYTES),
        ServiceKind::VirtualChannel => extended(EXTENDED_VIRTUAL_CHANNEL, VIRTUAL_CHANNEL_BYTES),
        ServiceKind::HotPlug | ServiceKind::Pme => {
            function.express.map(|express| Registers::new(&function.config, express.offset, EXPRESS_BYTES))
        }
    }
}

/// The driver's hold on a port.
struct Port {
    function: Arc<Function>,
    kind: PortKind,
    devices: Vec<Arc<ServiceDevice>>,
    vectors: Vectors,
}

impl Port {
    fn services(&self) -> impl Iterator<Item = Arc<dyn Binding>> {
        self.devices.iter().filter_map(|device| PORT_BUS.attached(device)?.binding())
    }
}

impl Binding for Port {
    fn remove(&self) {
        for device in self.devices.iter().rev() {
            PORT_BUS.remove(device);
        }
        self.function.disable_messages();
        self.function.disable();
    }

    fn suspend(&self) {
        self.services().for_each(|service| service.suspend());
    }

    fn resume(&self) {
        self.services().for_each(|service| service.resume());
    }

    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        Some(self)
    }
}

/// A port goes on after a reset when its services have been set up again. A root port is never reset.
impl ErrorHandlers for Port {
    fn error_detected(&self, state: ChannelState) -> Verdict {
        match (state, self.kind) {
            (ChannelState::Failed, _) => Verdict::Disconnect,
            (_, PortKind::Root) => Verdict::None,
            _ => Verdict::CanRecover,
        }
    }

    fn slot_reset(&self) -> Verdict {
        if !self.vectors.restore(&PortOffer(&self.function)) {
            log::error!("{}: its interrupts can't be set up again", self.function.address());
            return Verdict::Disconnect;
        }
        Binding::resume(self);
        Verdict::Recovered
    }
}
