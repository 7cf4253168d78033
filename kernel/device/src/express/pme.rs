//! The service for power management events: a device behind a root port wants to be woken.
//!
//! The root port says which one by its requester id. The event is cleared there, then at the device, and user space is told (`change`). Ports of
//! switches have a service device and nothing to do: their messages go to the root.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};

use sync::{IrqSpinLock, SpinLock};

use super::drain::Drain;
use super::kind::{PortKind, ServiceKind};
use super::notes::Notes;
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
/// Requesters that may wait.
const QUEUE: usize = 64;

static IDS: [ServiceId; 1] = [ServiceId::new(Some(PortKind::Root), ServiceKind::Pme)];

struct Events {
    device: Arc<ServiceDevice>,
    /// Requesters that nobody has looked at.
    noted: IrqSpinLock<Notes<u16, QUEUE>>,
    drain: Drain,
    /// Events that found no room there.
    lost: AtomicU64,
    seen: AtomicU64,
}

impl Events {
    fn new(device: &Arc<ServiceDevice>) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            noted: IrqSpinLock::named("noted power events", Notes::new()),
            drain: Drain::new("status of power events"),
            lost: AtomicU64::new(0),
            seen: AtomicU64::new(0),
        })
    }

    fn interrupted(&self) -> Claim {
        self.drain.interrupted(|| self.take_event())
    }

    /// Notes and clears the event that there is now; false if there is none. The port then shows the next that waits there.
    fn take_event(&self) -> bool {
        let status = self.device.registers.read_u32(ROOT_STATUS);
        if status & EVENT == 0 || status == u32::MAX {
            return false;
        }
        self.device.registers.write_u32(ROOT_STATUS, EVENT);
        if !self.noted.lock().push(status as u16) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    fn handle(&self, requester: u16) {
        self.seen.fetch_add(1, Ordering::Relaxed);
        let segment = self.device.port.address().segment;
        let requester = Address::from_requester(segment, requester);
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
    }
}

impl Work for Events {
    fn work(&self, now_ns: u64) -> Option<u64> {
        let again = self.drain.finish(now_ns, || self.take_event());
        loop {
            let requester = self.noted.lock().pop();
            let Some(requester) = requester else { break };
            self.handle(requester);
        }
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            log::error!("{}: {lost} power events lost", self.device.port.address());
        }
        again
    }
}

struct Held {
    events: Arc<Events>,
    handler: SpinLock<Option<Registration>>,
}

fn probe(device: &Arc<ServiceDevice>, _: &ServiceId) -> Result<Arc<dyn Binding>, DriverError> {
    let interrupt = device.interrupt.as_ref().ok_or(DriverError::NotSupported)?;
    let events = Events::new(device);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::express::InterruptMode;
    use crate::express::service::Registers;
    use crate::pci::fake::{FakeFunction, FakeMachine};
    use crate::pci::{Hierarchy, Root, Windows};

    /// Where the model has the port's PCI Express capability.
    const EXPRESS: u16 = 0x40;

    #[test]
    fn event_that_comes_while_another_is_cleared_is_noted() {
        let machine = FakeMachine::new(alloc::vec![
            FakeFunction::endpoint(0, 0, 1, 1, 0x06_0000),
            FakeFunction::port(1, 4, None)
        ]);
        let root = Root { segment: 0x230, first_bus: 0, last_bus: 255, windows: Windows::NONE };
        let hierarchy = Hierarchy::new(machine.clone(), root);
        hierarchy.enumerate();
        let port = hierarchy.find(Address::new(0x230, 0, 1, 0)).unwrap();
        let events = Events::new(&Arc::new(ServiceDevice {
            registers: Registers::new(&port.config, EXPRESS, 0x3c),
            port,
            kind: PortKind::Root,
            service: ServiceKind::Pme,
            interrupt: None,
            mode: Some(InterruptMode::Message),
            name: "test".into(),
        }));
        // The second requester has bits that the first one has not: the model sets them beside those.
        machine.with(1, |port| {
            port.set_after_write(EXPRESS + ROOT_STATUS, EVENT | 0x0208);
            port.set(EXPRESS + ROOT_STATUS, 4, EVENT | 0x0200);
        });
        assert_eq!(events.interrupted(), Claim::Mine);
        assert_eq!(machine.with(1, |port| port.get(EXPRESS + ROOT_STATUS, 4)) & EVENT, 0);
        assert_eq!(events.interrupted(), Claim::NotMine);
        let mut noted = events.noted.lock();
        assert_eq!([noted.pop(), noted.pop(), noted.pop()], [Some(0x0200), Some(0x0208), None]);
        drop(noted);
        assert_eq!(events.work(0), None);
    }
}
