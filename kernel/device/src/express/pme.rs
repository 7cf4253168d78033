//! The service for power management events: a device behind a root port wants to be woken.
//!
//! The root port says which one by its requester id. The event is cleared there, then at the device, and user space is told (`change`). Ports of
//! switches have a service device and nothing to do: their messages go to the root.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use sync::SpinLock;

use super::kind::{PortKind, ServiceKind};
use super::service::{ServiceDevice, ServiceDriver, ServiceId};
use super::worker::{self, Work};
use crate::interrupt::{Claim, Registration};
use crate::model::uevent::{self, Action};
use crate::model::{Binding, DriverError};
use crate::pci::registers::CAPABILITY_POWER;
use crate::pci::{self, Address, capability};

const ROOT_STATUS: u16 = 0x20;
const EVENT: u32 = 1 << 16;
/// Root Control: interrupt on events.
const INTERRUPT: u16 = 1 << 3;
/// Control and status of the capability for power management; the bit that says that the function has raised an event.
const POWER_STATUS: u16 = 4;
const POWER_EVENT: u16 = 1 << 15;
/// A noted requester: its id above this bit.
const NOTED: u32 = 1 << 16;

static IDS: [ServiceId; 1] = [ServiceId::new(Some(PortKind::Root), ServiceKind::Pme)];

struct Events {
    device: Arc<ServiceDevice>,
    /// The last requester that nobody has looked at.
    noted: AtomicU32,
    seen: AtomicU64,
}

impl Events {
    fn interrupted(&self) -> Claim {
        let status = self.device.registers.read_u32(ROOT_STATUS);
        if status & EVENT == 0 || status == u32::MAX {
            return Claim::NotMine;
        }
        self.device.registers.write_u32(ROOT_STATUS, EVENT);
        self.noted.store(NOTED | status & 0xffff, Ordering::Relaxed);
        worker::kick();
        Claim::Mine
    }
}

impl Work for Events {
    fn work(&self, _now_ns: u64) -> Option<u64> {
        let noted = self.noted.swap(0, Ordering::Relaxed);
        if noted & NOTED == 0 {
            return None;
        }
        self.seen.fetch_add(1, Ordering::Relaxed);
        let segment = self.device.port.address().segment;
        let requester = Address::from_requester(segment, noted as u16);
        match pci::find(requester) {
            Some(function) => {
                if let Some(offset) = capability::find(&function.config, CAPABILITY_POWER) {
                    function.config.modify_u16(offset + POWER_STATUS, POWER_EVENT, POWER_EVENT);
                }
                uevent::emit(Action::Change, &*function);
            }
            None => {
                log::warn!("{}: a power event of {requester}, which is not there", self.device.port.address())
            }
        }
        None
    }
}

struct Held {
    events: Arc<Events>,
    handler: SpinLock<Option<Registration>>,
}

fn probe(device: &Arc<ServiceDevice>) -> Result<Arc<dyn Binding>, DriverError> {
    let interrupt = device.interrupt.as_ref().ok_or(DriverError::NotSupported)?;
    let events =
        Arc::new(Events { device: device.clone(), noted: AtomicU32::new(0), seen: AtomicU64::new(0) });
    let own = events.clone();
    let handler = interrupt.register("PCIe PME", Box::new(move || own.interrupted()));
    let handler = handler.ok_or(DriverError::Exhausted)?;
    worker::add(&events);
    device.modify_root_control(INTERRUPT, INTERRUPT);
    Ok(Arc::new(Held { events, handler: SpinLock::named("handler of power events", Some(handler)) }))
}

impl Binding for Held {
    fn remove(&self) {
        self.events.device.modify_root_control(INTERRUPT, 0);
        let handler = self.handler.lock().take();
        drop(handler);
    }

    fn suspend(&self) {
        self.events.device.modify_root_control(INTERRUPT, 0);
    }

    fn resume(&self) {
        self.events.device.modify_root_control(INTERRUPT, INTERRUPT);
    }
}

/// Registers the driver.
pub(super) fn register() -> Result<(), DriverError> {
    super::service::register(ServiceDriver::new("pcie_pme", &IDS, probe))
}
