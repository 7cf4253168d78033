//! The native hot-plug service (specs/pcie-port-bus.md, feature 17).
//!
//! # States of a slot
//!
//! | state | meaning | left by |
//! |---|---|---|
//! | *off* | power off, nothing behind | presence, or [`Slot::set_power`]: *on*; attention button: *waits for on* |
//! | *off by hand* | power off by [`Slot::set_power`], or by a power fault | a change of presence: *on* or *off*; [`Slot::set_power`]: *on*; attention button: *waits for on* |
//! | *waits for on* | the button was pressed; power indicator blinks | button again: *off*; five seconds or presence: *on* |
//! | *on* | power on, devices known | button: *waits for off*; device gone: *off*; power fault, [`Slot::set_power`]: *off by hand* |
//! | *waits for off* | the button was pressed; power indicator blinks | button again: *on*; five seconds: *off* |
//!
//! The handler reads the event bits, writes exactly these back (QEMU drops a clear that names a bit which is not set) and notes them, until there
//! are none. All else is done by `Slot::work` in the thread of the services, under the slot's lock.
//!
//! A slot that is switched off by hand keeps its power indicator blinking: its device stays where it is (QEMU takes an indicator that
//! is off for the permission to take it out) and comes back when the slot is switched on. That it is there when the port has been reset or had no power is no change.
//!
//! Power goes off only after drivers have let go of everything behind; a device that is gone already answers them with all ones. Until it is off nobody may look for
//! devices: he would find the one that is about to go, and its place would be taken when the next one comes.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use sched::Mutex;
use sync::SpinLock;

use super::drain::Drain;
use super::kind::{ServiceKind, SlotCapabilities, slot_capabilities};
use super::service::{Registers, ServiceDevice, ServiceDriver, ServiceId};
use super::worker::{self, Work};
use crate::interrupt::{Claim, Registration};
use crate::model::{Binding, DriverError, Identity};
use crate::pci::{self, Function, Hierarchy};

/// The driver's name.
pub const NAME: &str = "pciehp";
static IDS: [ServiceId; 1] = [ServiceId::new(None, ServiceKind::HotPlug)];

const CONTROL: u16 = 0x18;
const STATUS: u16 = 0x1a;

const BUTTON_PRESSED: u16 = 1 << 0;
const POWER_FAULT: u16 = 1 << 1;
const LATCH_CHANGED: u16 = 1 << 2;
const PRESENCE_CHANGED: u16 = 1 << 3;
const COMMAND_COMPLETED: u16 = 1 << 4;
const LATCH_OPEN: u16 = 1 << 5;
const PRESENT: u16 = 1 << 6;
const LINK_CHANGED: u16 = 1 << 8;
/// No event of the hardware's: presence is to be looked at because events may have been missed.
const LOOK: u16 = 1 << 15;
/// Events that the handler takes.
const EVENTS: u16 = BUTTON_PRESSED | POWER_FAULT | LATCH_CHANGED | PRESENCE_CHANGED | LINK_CHANGED;

/// In Slot Control, the same bits enable the events; this one enables the interrupt for them.
const INTERRUPT: u16 = 1 << 5;
const ATTENTION_INDICATOR: u16 = 3 << 6;
const POWER_INDICATOR: u16 = 3 << 8;
const POWER_OFF: u16 = 1 << 10;

/// How long a pressed button can be pressed again to take it back.
const CANCEL_NS: u64 = 5_000_000_000;
/// Most looks at whether a command has completed, a millisecond apart; a second is what the specification allows.
const COMMAND_LOOKS: u32 = 1000;
/// Nobody speaks to a device for so long after its power came on (PCI Express, 6.6.1).
const SETTLE_MS: u64 = 100;
/// Most looks for a device after that, 20 ms apart: it has to answer within a second.
const DEVICE_LOOKS: u32 = 50;
/// Power that went off is really off after so long (PCI Express, 6.7.1.8), and may come on again.
const OFF_NS: u64 = 1_000_000_000;

/// What an indicator shows.
#[derive(Clone, Copy)]
enum Indicator {
    On = 1,
    Blink = 2,
    Off = 3,
}

/// Finding devices and taking them out: the machine's, or a model's.
pub(crate) trait Topology: Send + Sync {
    /// Finds what is behind a port.
    fn rescan(&self, port: &Arc<Function>) -> usize;

    /// Takes all that is behind a port out, and calls `power_off` before anybody can find it again.
    fn remove_behind(&self, port: &Function, power_off: &dyn Fn());

    /// Whether a function that is known behind a port answers no more, or is another one.
    fn is_replaced(&self, port: &Function) -> bool;
}

struct Machine;

impl Topology for Machine {
    fn rescan(&self, port: &Arc<Function>) -> usize {
        pci::rescan(Some(port))
    }

    fn remove_behind(&self, port: &Function, power_off: &dyn Fn()) {
        pci::remove_behind(port, power_off);
    }

    fn is_replaced(&self, port: &Function) -> bool {
        pci::hierarchy().is_some_and(|hierarchy| is_replaced_in(hierarchy, port))
    }
}

fn is_replaced_in(hierarchy: &Hierarchy, port: &Function) -> bool {
    hierarchy.behind(port).iter().any(|function| !function.is_still_there())
}

/// The state of a slot, and until when it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Off,
    OffByHand,
    WaitsForOn(u64),
    On,
    WaitsForOff(u64),
}

/// A slot behind a port.
pub struct Slot {
    device: Arc<ServiceDevice>,
    registers: Registers,
    /// What it can do.
    pub capabilities: SlotCapabilities,
    topology: Box<dyn Topology>,
    /// Which one it is: a driver that is bound again has another one.
    pub identity: Identity,
    state: Mutex<State>,
    /// Events that the handler has seen and nobody has looked at.
    events: AtomicU16,
    /// When its power went off, in nanoseconds of the clock; written under `state`.
    off_since_ns: AtomicU64,
    drain: Drain,
    /// The driver has let go: Slot Control is another one's. Held while that is written.
    is_released: SpinLock<bool>,
}

/// All slots with a driver.
static SLOTS: SpinLock<Vec<Arc<Slot>>> = SpinLock::named("hot-plug slots", Vec::new());

/// All slots with a driver, for `/sys/bus/pci/slots`.
pub fn slots() -> Vec<Arc<Slot>> {
    let wanted = SLOTS.lock().len() + 8;
    let mut copy = Vec::with_capacity(wanted);
    let slots = SLOTS.lock();
    let room = copy.capacity();
    copy.extend(slots.iter().take(room).cloned());
    copy
}

fn change_slots(change: impl FnOnce(&mut Vec<Arc<Slot>>)) {
    let mut new = slots();
    change(&mut new);
    let old = core::mem::replace(&mut *SLOTS.lock(), new);
    drop(old);
}

impl Slot {
    fn new(device: &Arc<ServiceDevice>, topology: Box<dyn Topology>) -> Option<Arc<Self>> {
        let capabilities = slot_capabilities(&device.port)?;
        let registers = device.registers.clone();
        let is_off = capabilities.has_power_controller() && registers.read_u16(CONTROL) & POWER_OFF != 0;
        let is_on = !is_off && registers.read_u16(STATUS) & PRESENT != 0;
        Some(Arc::new(Self {
            device: device.clone(),
            registers,
            capabilities,
            topology,
            identity: Identity::new(),
            state: Mutex::named("hot-plug slot", if is_on { State::On } else { State::Off }),
            events: AtomicU16::new(0),
            off_since_ns: AtomicU64::new(0),
            drain: Drain::new("status of a slot"),
            is_released: SpinLock::named("release of a slot", false),
        }))
    }

    /// The port above it.
    pub fn port(&self) -> &Arc<Function> {
        &self.device.port
    }

    /// Whether something is in it.
    pub fn is_occupied(&self) -> bool {
        self.registers.read_u16(STATUS) & PRESENT != 0
    }

    /// Whether its latch is open.
    pub fn is_latch_open(&self) -> bool {
        self.capabilities.has_latch_sensor() && self.registers.read_u16(STATUS) & LATCH_OPEN != 0
    }

    /// Whether it has power.
    pub fn has_power(&self) -> bool {
        !self.capabilities.has_power_controller() || self.registers.read_u16(CONTROL) & POWER_OFF == 0
    }

    /// What the attention indicator shows, as Linux numbers it: 0 off, 1 on, 2 blinking.
    pub fn attention(&self) -> u8 {
        match (self.registers.read_u16(CONTROL) & ATTENTION_INDICATOR) >> 6 {
            1 => 1,
            2 => 2,
            _ => 0,
        }
    }

    /// Sets the attention indicator.
    pub fn set_attention(&self, value: u8) {
        let _state = self.state.lock();
        let indicator = match value {
            0 => Indicator::Off,
            1 => Indicator::On,
            _ => Indicator::Blink,
        };
        self.command(ATTENTION_INDICATOR, (indicator as u16) << 6);
    }

    /// Switches power, with all that goes with it; what has it already, gets nothing. Fails once the driver has let go.
    pub fn set_power(&self, on: bool) -> Result<(), DriverError> {
        let mut state = self.state.lock();
        if *self.is_released.lock() {
            return Err(DriverError::NotFound);
        }
        if on && *state == State::On {
            return Ok(());
        }
        if on {
            return self.turn_on(&mut state);
        }
        self.turn_off(&mut state, Indicator::Blink)?;
        *state = State::OffByHand;
        Ok(())
    }

    /// The interrupt's handler.
    fn interrupted(&self) -> Claim {
        self.drain.interrupted(|| self.take_events())
    }

    /// Notes and clears the events that there are now; false if there are none.
    fn take_events(&self) -> bool {
        let status = self.registers.read_u16(STATUS);
        let events = status & EVENTS;
        // All ones come from a port that is gone.
        if events == 0 || status == u16::MAX {
            return false;
        }
        self.registers.write_u16(STATUS, events);
        self.events.fetch_or(events, Ordering::Relaxed);
        true
    }

    /// Changes Slot Control, and waits until the slot has taken it. Nothing happens once the driver has let go.
    fn command(&self, mask: u16, value: u16) {
        {
            let is_released = self.is_released.lock();
            if *is_released {
                return;
            }
            // Whatever was completed before is not this one.
            if self.registers.read_u16(STATUS) & COMMAND_COMPLETED != 0 {
                self.registers.write_u16(STATUS, COMMAND_COMPLETED);
            }
            self.registers.modify_u16(CONTROL, mask, value);
        }
        if self.capabilities.completes_silently() {
            return;
        }
        for _ in 0..COMMAND_LOOKS {
            if self.registers.read_u16(STATUS) & COMMAND_COMPLETED != 0 {
                self.registers.write_u16(STATUS, COMMAND_COMPLETED);
                return;
            }
            if !cfg!(target_os = "none") {
                return;
            }
            worker::sleep_ms(1);
        }
        log::warn!("{}: slot {} did not take a command", self.port().address(), self.capabilities.number());
    }

    fn set_power_indicator(&self, indicator: Indicator) {
        self.command(POWER_INDICATOR, (indicator as u16) << 8);
    }

    fn turn_on(&self, state: &mut State) -> Result<(), DriverError> {
        if !self.is_occupied() || self.is_latch_open() {
            self.set_power_indicator(Indicator::Off);
            *state = State::Off;
            return Err(DriverError::NotFound);
        }
        worker::sleep_ms(rest_ms(self.off_since_ns.load(Ordering::Relaxed), machine::time::now_ns()));
        self.command(POWER_OFF | POWER_INDICATOR, (Indicator::Blink as u16) << 8);
        worker::sleep_ms(SETTLE_MS);
        let mut found = 0;
        for _ in 0..DEVICE_LOOKS {
            found = self.topology.rescan(self.port());
            if found > 0 || !cfg!(target_os = "none") {
                break;
            }
            worker::sleep_ms(20);
        }
        let indicators = (Indicator::On as u16) << 8 | (Indicator::Off as u16) << 6;
        self.command(POWER_INDICATOR | ATTENTION_INDICATOR, indicators);
        *state = State::On;
        let number = self.capabilities.number();
        log::info!("{}: slot {number}: power on, {found} functions", self.port().address());
        Ok(())
    }

    /// The power indicator shows whether the device may be taken out.
    fn turn_off(&self, state: &mut State, indicator: Indicator) -> Result<(), DriverError> {
        self.topology.remove_behind(self.port(), &|| {
            self.command(POWER_OFF | POWER_INDICATOR, POWER_OFF | (indicator as u16) << 8);
        });
        self.off_since_ns.store(machine::time::now_ns(), Ordering::Relaxed);
        *state = State::Off;
        log::info!("{}: slot {}: power off", self.port().address(), self.capabilities.number());
        Ok(())
    }

    fn button(&self, state: &mut State, now_ns: u64) {
        *state = match *state {
            State::Off | State::OffByHand => State::WaitsForOn(now_ns + CANCEL_NS),
            State::On => State::WaitsForOff(now_ns + CANCEL_NS),
            State::WaitsForOn(_) => State::Off,
            State::WaitsForOff(_) => State::On,
        };
        self.set_power_indicator(match *state {
            State::Off | State::OffByHand => Indicator::Off,
            State::On => Indicator::On,
            State::WaitsForOn(_) | State::WaitsForOff(_) => Indicator::Blink,
        });
    }

    /// What is in the slot draws more than it may: its power goes off, or has gone, and the attention indicator asks for somebody. It comes on again by hand, by the button, or
    /// when what is in it has changed.
    fn power_fault(&self, state: &mut State) {
        log::warn!("{}: power fault in slot {}", self.port().address(), self.capabilities.number());
        if matches!(*state, State::On | State::WaitsForOff(_)) && self.turn_off(state, Indicator::Off).is_ok()
        {
            *state = State::OffByHand;
        }
        self.command(ATTENTION_INDICATOR, (Indicator::On as u16) << 6);
    }

    /// Something appeared, disappeared, or the link changed; `is_change`: the hardware says that it is presence that has changed.
    fn presence(&self, state: &mut State, is_change: bool) {
        let is_on = matches!(*state, State::On | State::WaitsForOff(_));
        let is_occupied = self.is_occupied();
        if *state == State::OffByHand && !is_occupied {
            self.set_power_indicator(Indicator::Off);
            *state = State::Off;
        }
        let result = match (is_on, is_occupied) {
            (false, true) if *state == State::OffByHand && !is_change => Ok(()),
            (false, true) => self.turn_on(state),
            (true, false) => self.turn_off(state, Indicator::Off),
            // Out and in again: what is there now may be another one.
            (true, true) if self.topology.is_replaced(self.port()) => {
                self.turn_off(state, Indicator::Off).and_then(|()| self.turn_on(state))
            }
            _ => Ok(()),
        };
        if let Err(error) = result {
            log::debug!("{}: {error:?}", self.port().address());
        }
    }

    fn enable(&self) {
        let pending = self.registers.read_u16(STATUS) & (EVENTS | COMMAND_COMPLETED);
        if pending != 0 {
            self.registers.write_u16(STATUS, pending);
        }
        let mut events = PRESENCE_CHANGED | INTERRUPT;
        if self.capabilities.has_attention_button() {
            events |= BUTTON_PRESSED;
        }
        if self.capabilities.has_power_controller() {
            events |= POWER_FAULT;
        }
        self.registers.modify_u16(CONTROL, EVENTS & 0x1f | INTERRUPT | COMMAND_COMPLETED, events);
        // What came before the interrupt was on is found by looking.
        self.events.fetch_or(LOOK, Ordering::Relaxed);
        worker::kick();
    }

    fn disable(&self) {
        self.registers.modify_u16(CONTROL, EVENTS & 0x1f | INTERRUPT | COMMAND_COMPLETED, 0);
    }
}

/// How long power that went off then has to stay off.
fn rest_ms(off_since_ns: u64, now_ns: u64) -> u64 {
    match off_since_ns {
        0 => 0,
        since => (since + OFF_NS).saturating_sub(now_ns).div_ceil(1_000_000),
    }
}

impl Work for Slot {
    fn work(&self, now_ns: u64) -> Option<u64> {
        if *self.is_released.lock() {
            return None;
        }
        let again = self.drain.finish(now_ns, || self.take_events());
        let events = self.events.swap(0, Ordering::Relaxed);
        let mut state = self.state.lock();
        if events & BUTTON_PRESSED != 0 {
            self.button(&mut state, now_ns);
        }
        if events & POWER_FAULT != 0 {
            self.power_fault(&mut state);
        }
        if events & (PRESENCE_CHANGED | LINK_CHANGED | LOOK) != 0 {
            self.presence(&mut state, events & PRESENCE_CHANGED != 0);
        }
        // What is due now has no more to wait for; failing leaves it off, which is logged.
        match *state {
            State::WaitsForOn(due) if due <= now_ns => drop(self.turn_on(&mut state)),
            State::WaitsForOff(due) if due <= now_ns => drop(self.turn_off(&mut state, Indicator::Off)),
            _ => {}
        }
        let due = match *state {
            State::WaitsForOn(due) | State::WaitsForOff(due) => Some(due),
            State::Off | State::OffByHand | State::On => None,
        };
        due.into_iter().chain(again).min()
    }
}

/// The driver's hold on a slot.
struct Held {
    slot: Arc<Slot>,
    handler: SpinLock<Option<Registration>>,
}

fn probe(device: &Arc<ServiceDevice>, _: &ServiceId) -> Result<Arc<dyn Binding>, DriverError> {
    Ok(take(device, Box::new(Machine))?)
}

fn take(device: &Arc<ServiceDevice>, topology: Box<dyn Topology>) -> Result<Arc<Held>, DriverError> {
    let interrupt = device.interrupt.as_ref().ok_or(DriverError::NotSupported)?;
    let slot = Slot::new(device, topology).ok_or(DriverError::NotSupported)?;
    let own = slot.clone();
    let handler = interrupt.register(NAME, Box::new(move || own.interrupted()));
    let handler = handler.ok_or(DriverError::Exhausted)?;
    worker::add(&slot);
    slot.enable();
    change_slots(|slots| slots.push(slot.clone()));
    Ok(Arc::new(Held { slot, handler: SpinLock::named("handler of a slot", Some(handler)) }))
}

impl Binding for Held {
    /// Does not wait for work under way, which may itself wait for the bus that the driver is taken from; it changes the slot no more.
    fn remove(&self) {
        *self.slot.is_released.lock() = true;
        self.slot.disable();
        let handler = self.handler.lock().take();
        drop(handler);
        change_slots(|slots| slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot)));
    }

    fn suspend(&self) {
        self.slot.disable();
    }

    fn resume(&self) {
        self.slot.enable();
    }
}

/// Registers the driver.
pub(super) fn register() -> Result<(), DriverError> {
    super::service::register(ServiceDriver::new(NAME, &IDS, probe))
}

#[cfg(test)]
#[path = "hot_plug_tests.rs"]
mod tests;
