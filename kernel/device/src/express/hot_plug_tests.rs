//! The states of a slot, on a modelled port.

use super::*;
use crate::express::{InterruptMode, PortKind};
use crate::interrupt::{Interrupt, Source};
use crate::pci::fake::{FakeFunction, FakeMachine};
use crate::pci::{Address, Hierarchy, Range, Root, WindowKind, Windows};

const SECOND: u64 = 1_000_000_000;
/// Where the model has the port's PCI Express capability.
const EXPRESS: u16 = 0x40;

struct Model {
    machine: Arc<FakeMachine>,
    hierarchy: Arc<Hierarchy>,
    held: Arc<Held>,
    meanwhile: Arc<Meanwhile>,
    afterwards: Arc<Meanwhile>,
    interrupt: Arc<Interrupt>,
}

/// What happens while devices are taken out, and as soon as others may look for devices again.
type Meanwhile = SpinLock<Option<Box<dyn FnOnce() + Send>>>;

struct ModelTopology(Arc<Hierarchy>, Arc<Meanwhile>, Arc<Meanwhile>);

impl Topology for ModelTopology {
    fn rescan(&self, port: &Arc<Function>) -> usize {
        self.0.rescan(Some(port)).len()
    }

    fn remove_behind(&self, port: &Function, power_off: &dyn Fn()) {
        let gone = self.0.behind(port);
        self.0.forget(&gone);
        let happen = |what: &Meanwhile| {
            let what = what.lock().take();
            what.into_iter().for_each(|happens| happens());
        };
        happen(&self.1);
        power_off();
        happen(&self.2);
    }

    fn is_replaced(&self, port: &Function) -> bool {
        is_replaced_in(&self.0, port)
    }
}

/// A root port with an empty slot without power.
fn model() -> Model {
    let mut windows = Windows::NONE;
    windows.set(WindowKind::Memory, Range { start: 0xc000_0000, end: 0xe000_0000 });
    let root = Root { segment: 0, first_bus: 0, last_bus: 255, windows };
    let port = FakeFunction::port(1, 4, Some(0x4_005b | 1 << 19));
    let machine = FakeMachine::new(alloc::vec![FakeFunction::endpoint(0, 0, 1, 1, 0x06_0000), port]);
    machine.with(1, |port| port.set(EXPRESS + CONTROL, 2, 0x7c0));
    let hierarchy = Arc::new(Hierarchy::new(machine.clone(), root));
    hierarchy.enumerate();
    let port = hierarchy.find(Address::new(0, 0, 1, 0)).unwrap();
    let interrupt = Interrupt::allocate(Source::Message).unwrap();
    let device = Arc::new(ServiceDevice {
        registers: Registers::new(&port.config, port.express.unwrap().offset, 0x3c),
        port,
        kind: PortKind::Root,
        service: ServiceKind::HotPlug,
        interrupt: Some(interrupt.clone()),
        mode: Some(InterruptMode::Message),
        name: "test".into(),
    });
    let [meanwhile, afterwards] = [(); 2].map(|()| Arc::new(SpinLock::new(None)));
    let topology = ModelTopology(hierarchy.clone(), meanwhile.clone(), afterwards.clone());
    let held = take(&device, Box::new(topology)).unwrap();
    let model = Model { machine, hierarchy, held, interrupt, meanwhile, afterwards };
    assert_eq!(model.work(0), None);
    model
}

impl Model {
    /// The slot's hardware says that something happened.
    fn event(&self, events: u16, present: bool) {
        self.machine.with(1, |port| {
            let presence = if present { PRESENT } else { 0 };
            port.set(EXPRESS + STATUS, 2, u32::from(events | presence));
        });
        self.interrupt.simulate();
        let left = self.machine.with(1, |port| port.get(EXPRESS + STATUS, 2)) as u16;
        assert_eq!(left & EVENTS, 0, "the handler clears what it has seen");
    }

    fn work(&self, now_ns: u64) -> Option<u64> {
        self.held.slot.work(now_ns)
    }

    fn plug(&self) {
        self.machine.plug(FakeFunction::endpoint(0, 0, 0x1af4, 0x1041, 0x02_0000).behind(1).base(1, 4096, 0));
        self.event(BUTTON_PRESSED | PRESENCE_CHANGED, true);
    }

    fn behind(&self) -> usize {
        self.hierarchy.functions().len() - 2
    }

    fn control(&self) -> u16 {
        self.machine.with(1, |port| port.get(EXPRESS + CONTROL, 2)) as u16
    }

    fn power_indicator(&self) -> u16 {
        (self.control() & POWER_INDICATOR) >> 8
    }
}

#[test]
fn device_that_is_plugged_in_gets_power_and_is_found() {
    let model = model();
    assert_eq!(model.behind(), 0);
    model.plug();
    assert_eq!(model.work(SECOND), None);
    assert_eq!((model.behind(), model.power_indicator()), (1, Indicator::On as u16));
    assert_eq!(model.control() & POWER_OFF, 0);
}

#[test]
fn event_that_comes_while_another_is_cleared_is_noted() {
    let model = model();
    // A port that sends messages sends none while any event is left.
    model.machine.with(1, |port| port.set_after_write(EXPRESS + STATUS, BUTTON_PRESSED.into()));
    model.event(PRESENCE_CHANGED, true);
    assert_eq!(model.held.slot.events.load(Ordering::Relaxed), PRESENCE_CHANGED | BUTTON_PRESSED);
}

#[test]
fn button_takes_a_device_out_after_five_seconds() {
    let model = model();
    model.plug();
    model.work(SECOND);
    model.event(BUTTON_PRESSED, true);
    assert_eq!(model.work(2 * SECOND), Some(7 * SECOND));
    assert_eq!((model.behind(), model.power_indicator()), (1, Indicator::Blink as u16));
    assert_eq!(model.work(6 * SECOND), Some(7 * SECOND));
    assert_eq!(model.work(7 * SECOND), None);
    assert_eq!((model.behind(), model.power_indicator()), (0, Indicator::Off as u16));
    assert_ne!(model.control() & POWER_OFF, 0);
}

#[test]
fn button_pressed_again_takes_it_back() {
    let model = model();
    model.plug();
    model.work(SECOND);
    model.event(BUTTON_PRESSED, true);
    model.work(2 * SECOND);
    model.event(BUTTON_PRESSED, true);
    assert_eq!(model.work(3 * SECOND), None);
    assert_eq!(model.work(100 * SECOND), None);
    assert_eq!((model.behind(), model.power_indicator()), (1, Indicator::On as u16));
}

#[test]
fn device_that_is_pulled_out_is_forgotten_at_once() {
    let model = model();
    model.plug();
    model.work(SECOND);
    let function = model.hierarchy.functions().pop().unwrap();
    model.machine.with(2, |device| device.present = false);
    model.event(PRESENCE_CHANGED, false);
    model.work(SECOND);
    assert_eq!(model.behind(), 0);
    assert!(function.config.is_gone());
}

#[test]
fn device_that_is_swapped_for_one_of_the_same_type_is_another_one() {
    let model = model();
    model.plug();
    model.work(SECOND);
    let first = model.hierarchy.functions().pop().unwrap();
    // The same one, looked at again.
    model.event(PRESENCE_CHANGED, true);
    model.work(SECOND);
    assert!(!first.config.is_gone());
    model.machine.with(2, |device| device.present = false);
    model.plug();
    // The link alone says so: no button is pressed.
    model.held.slot.events.store(PRESENCE_CHANGED, Ordering::Relaxed);
    model.work(SECOND);
    let second = model.hierarchy.functions().pop().unwrap();
    assert!(first.config.is_gone() && !second.config.is_gone());
    assert_eq!(second.address(), first.address());
    let address = model.machine.with(3, |device| device.get(crate::pci::registers::BASE_ADDRESS + 4, 4));
    assert_eq!(Some(u64::from(address)), second.region(1).map(|region| region.start));
}

#[test]
fn power_can_be_switched_by_hand() {
    let model = model();
    assert_eq!(model.held.slot.set_power(true), Err(DriverError::NotFound));
    model.plug();
    model.work(SECOND);
    model.held.slot.set_power(false).unwrap();
    assert_eq!((model.behind(), model.held.slot.has_power()), (0, false));
    assert_eq!(model.power_indicator(), Indicator::Blink as u16);
    model.held.slot.set_power(true).unwrap();
    assert_eq!((model.behind(), model.held.slot.has_power()), (1, true));
}

#[test]
fn slot_that_has_power_is_left_alone_when_it_is_switched_on() {
    let model = model();
    model.plug();
    model.work(SECOND);
    // Its presence is not looked at, nor what is behind it.
    model.machine.with(1, |port| port.set(EXPRESS + STATUS, 2, 0));
    model.held.slot.set_power(true).unwrap();
    assert_eq!((model.behind(), model.held.slot.has_power()), (1, true));
    assert_eq!(model.power_indicator(), Indicator::On as u16);
}

#[test]
fn driver_that_lets_go_leaves_interrupts_off() {
    let model = model();
    Binding::remove(&*model.held);
    assert_eq!(model.control() & INTERRUPT, 0);
    assert!(slots().iter().all(|slot| !Arc::ptr_eq(slot, &model.held.slot)));
}

#[test]
fn slot_is_not_switched_by_a_driver_that_has_let_go() {
    // While the slot waits for on: nobody is left to switch it on.
    let model = model();
    model.event(BUTTON_PRESSED, true);
    let due = model.work(SECOND).unwrap();
    Binding::remove(&*model.held);
    assert_eq!(model.work(due), None);
    assert_ne!(model.control() & POWER_OFF, 0);
    // While work is under way.
    let model = self::model();
    model.plug();
    model.work(SECOND);
    let held = model.held.clone();
    *model.meanwhile.lock() = Some(Box::new(move || Binding::remove(&*held)));
    model.held.slot.set_power(false).unwrap();
    assert_eq!((model.behind(), model.control() & POWER_OFF), (0, 0));
    assert_eq!(model.power_indicator(), Indicator::On as u16);
    // By a program that has had its file open since before.
    let port = model.held.slot.port().clone();
    assert_eq!(model.hierarchy.rescan(Some(&port)).len(), 1);
    for on in [false, true] {
        assert_eq!(model.held.slot.set_power(on), Err(DriverError::NotFound));
    }
    assert_eq!((model.behind(), model.control() & POWER_OFF), (1, 0));
}

#[test]
fn power_fault_switches_a_slot_off_until_somebody_has_looked_at_it() {
    let model = model();
    model.plug();
    model.work(SECOND);
    model.event(POWER_FAULT, true);
    assert_eq!(model.work(2 * SECOND), None);
    assert_eq!((model.behind(), model.held.slot.has_power(), model.held.slot.attention()), (0, false, 1));
    // A look at the slot alone does not switch it on again.
    model.held.slot.events.store(LOOK, Ordering::Relaxed);
    model.work(3 * SECOND);
    assert_eq!(model.behind(), 0);
    model.held.slot.set_power(true).unwrap();
    assert_eq!((model.behind(), model.held.slot.has_power(), model.held.slot.attention()), (1, true, 0));
}

#[test]
fn power_stays_off_for_a_second() {
    assert_eq!((rest_ms(0, 5), rest_ms(SECOND, 3 * SECOND), rest_ms(SECOND, 2 * SECOND)), (0, 0, 0));
    assert_eq!((rest_ms(SECOND, SECOND), rest_ms(SECOND, 2 * SECOND - 1)), (1000, 1));
}

#[test]
fn device_that_is_taken_out_is_not_found_again_before_its_power_is_off() {
    let model = model();
    for round in 0..2 {
        model.plug();
        model.work(SECOND);
        assert_eq!(model.behind(), 1, "round {round}");
        let (hierarchy, port) = (model.hierarchy.clone(), model.held.slot.port().clone());
        // A program looks for new devices as soon as it can.
        *model.afterwards.lock() = Some(Box::new(move || assert!(hierarchy.rescan(Some(&port)).is_empty())));
        model.held.slot.set_power(false).unwrap();
        assert!(model.afterwards.lock().is_none());
        assert_eq!(model.behind(), 0);
        model.machine.with(2 + round, |device| device.present = false);
        model.event(PRESENCE_CHANGED, false);
        model.work(SECOND);
    }
}

#[test]
fn fifty_rounds_leave_nothing_behind() {
    let model = model();
    for round in 0..50 {
        model.plug();
        model.work(round * 10 * SECOND);
        assert_eq!(model.behind(), 1);
        model.event(BUTTON_PRESSED, true);
        let due = model.work(round * 10 * SECOND).unwrap();
        model.work(due);
        assert_eq!(model.behind(), 0, "round {round}");
        model.machine.with(2 + round as usize, |device| device.present = false);
        model.event(PRESENCE_CHANGED, false);
        model.work(due);
    }
}

#[test]
fn slot_that_was_switched_off_by_hand_stays_off_when_its_port_was_reset() {
    let model = model();
    model.plug();
    model.work(SECOND);
    model.held.slot.set_power(false).unwrap();
    // After the reset of a port its services are set up again.
    Binding::resume(&*model.held);
    assert_eq!(model.work(2 * SECOND), None);
    assert_eq!((model.behind(), model.power_indicator()), (0, Indicator::Blink as u16));
    assert_ne!(model.control() & POWER_OFF, 0);
    // By hand it comes on again.
    model.held.slot.set_power(true).unwrap();
    assert_eq!(model.behind(), 1);
    // What is taken out of a slot that is off leaves one like any other.
    model.held.slot.set_power(false).unwrap();
    model.event(PRESENCE_CHANGED, false);
    model.work(3 * SECOND);
    assert_eq!(model.power_indicator(), Indicator::Off as u16);
    model.event(PRESENCE_CHANGED, true);
    model.work(4 * SECOND);
    assert_eq!((model.behind(), model.power_indicator()), (1, Indicator::On as u16));
}
