//! Errors on a modelled hierarchy: a root port, and behind it a switch with two devices.

use alloc::sync::Arc;
use alloc::vec::Vec;

use super::root::Root;
use super::*;
use crate::express::service::Registers;
use crate::express::{ChannelState, ErrorHandlers, InterruptMode, Verdict};
use crate::interrupt::Claim;
use crate::pci::fake::{FakeFunction, FakeMachine};
use crate::pci::registers::{COMMAND, COMMAND_SERR};
use crate::pci::{Address, BUS, Function, Hierarchy, PciDriver, PciId, Range, WindowKind, Windows};
use sync::SpinLock;

const AER: u16 = 0x100;
const ROOT_STATUS: u16 = AER + 0x30;
const SOURCE: u16 = AER + 0x34;
/// A vendor that only these tests' devices have.
const VENDOR: u16 = 0x7e57;

struct Model {
    machine: Arc<FakeMachine>,
    hierarchy: Hierarchy,
    root: Arc<Root>,
}

/// The functions by index: host, root port, upstream port, two downstream ports, two devices.
fn model(segment: u16) -> Model {
    let with_aer = |mut function: FakeFunction| {
        function.aer();
        function
    };
    let device = |behind: usize| {
        let mut device = FakeFunction::endpoint(0, 0, VENDOR, segment, 0x02_0000).base(1, 4096, 0);
        device.express(0, None);
        with_aer(device).behind(behind)
    };
    let machine = FakeMachine::new(alloc::vec![
        FakeFunction::endpoint(0, 0, 1, 1, 0x06_0000),
        with_aer(FakeFunction::port(1, 4, None)),
        with_aer(FakeFunction::port(0, 5, None)).behind(1),
        with_aer(FakeFunction::port(0, 6, None)).behind(2),
        with_aer(FakeFunction::port(1, 6, None)).behind(2),
        device(3),
        device(4),
    ]);
    let mut windows = Windows::NONE;
    windows.set(WindowKind::Memory, Range { start: 0xc000_0000, end: 0xe000_0000 });
    let root = crate::pci::Root { segment, first_bus: 0, last_bus: 255, windows };
    let hierarchy = Hierarchy::new(machine.clone(), root);
    hierarchy.enumerate();
    let port = hierarchy.find(Address::new(segment, 0, 1, 0)).unwrap();
    let device = Arc::new(ServiceDevice {
        registers: Registers::new(&port.config, AER, 0x38),
        port,
        kind: PortKind::Root,
        service: ServiceKind::Aer,
        interrupt: None,
        mode: Some(InterruptMode::Line),
        name: "test".into(),
    });
    let root = Root::new(&device);
    root.enable();
    Model { machine, hierarchy, root }
}

impl Model {
    fn device(&self, index: usize) -> Arc<Function> {
        self.hierarchy
            .functions()
            .into_iter()
            .filter(|function| function.identity.vendor == VENDOR)
            .nth(index)
            .unwrap()
    }

    /// A device notes an error and its message reaches the root port.
    fn error(&self, index: usize, register: u16, status: u32, root_status: u32) {
        let source = u32::from(self.device(index).address().requester());
        self.machine.with(5 + index, |device| {
            device.set(AER + register, 4, status);
            (0..4).for_each(|word| device.set(AER + 0x1c + 4 * word, 4, u32::from(word + 1) << 24));
        });
        self.machine.with(1, |port| {
            port.set(ROOT_STATUS, 4, root_status);
            port.set(SOURCE, 4, if root_status & 4 != 0 { source << 16 } else { source });
        });
        assert_eq!(self.root.interrupted(), Claim::Mine);
        assert_eq!(self.root.interrupted(), Claim::NotMine);
        self.root.process(&self.hierarchy);
    }

    fn noted(&self, index: usize, register: u16) -> u32 {
        self.machine.with(5 + index, |device| device.get(AER + register, 4))
    }
}

#[test]
fn non_fatal_error_is_counted_and_cleared_at_its_agent_only() {
    let model = model(0x100);
    model.error(0, 4, 1 << 12, 0x24);
    let (agent, other) = (model.device(0), model.device(1));
    assert_eq!((agent.errors.total(Severity::NonFatal), agent.errors.of(Severity::NonFatal, 12)), (1, 1));
    assert_eq!(agent.errors.total(Severity::Fatal) + other.errors.total(Severity::NonFatal), 0);
    assert_eq!(model.noted(0, 4), 0);
}

#[test]
fn details_tell_first_error_and_header() {
    let model = model(0x101);
    model.machine.with(5, |device| {
        device.set(AER + 4, 4, 1 << 12 | 1 << 4);
        device.set(AER + 0x18, 4, 12);
        device.set(AER + 0x1c, 4, 0x0100_0000);
    });
    let details = agent::details(&model.device(0), Severity::NonFatal).unwrap();
    assert_eq!((details.status, details.first), (1 << 12, Some(12)));
    assert_eq!(details.header.unwrap()[0], 0x0100_0000);
    assert_eq!(error::layer(Severity::NonFatal, 1 << 12), "Transaction Layer");
    // Of the data link layer there is no packet to show.
    let fatal = agent::details(&model.device(0), Severity::Fatal).unwrap();
    assert_eq!((fatal.status, fatal.header), (1 << 4, None));
    assert_eq!(error::layer(Severity::Fatal, 1 << 4), "Data Link Layer");
}

#[test]
fn correctable_error_is_counted_without_recovery() {
    let model = model(0x102);
    model.error(1, 0x10, 1 << 6, 0x1);
    assert_eq!(model.device(1).errors.of(Severity::Correctable, 6), 1);
    assert_eq!(model.noted(1, 0x10), 0);
}

#[test]
fn several_messages_have_all_agents_looked_for() {
    let model = model(0x103);
    model.machine.with(6, |device| device.set(AER + 4, 4, 1 << 20));
    model.error(0, 4, 1 << 12, 0x2c);
    for index in 0..2 {
        assert_eq!(model.device(index).errors.total(Severity::NonFatal), 1);
        assert_eq!(model.noted(index, 4), 0);
    }
}

/// The root port says that both came, and which first: each severity has its agent, and what that has noted is cleared.
#[test]
fn non_fatal_and_fatal_messages_at_once_are_told_apart() {
    for (segment, is_first_fatal) in [(0x10a, false), (0x10b, true)] {
        let model = model(segment);
        // The first device has sent the first message.
        let [first, second] = if is_first_fatal { [1 << 4, 1 << 12] } else { [1 << 12, 1 << 4] };
        model.machine.with(6, |device| device.set(AER + 4, 4, second));
        model.error(0, 4, first, if is_first_fatal { 0x7c } else { 0x6c });
        let (fatal, other) = if is_first_fatal {
            (model.device(0), model.device(1))
        } else {
            (model.device(1), model.device(0))
        };
        let counts = |function: &Function| Severity::ALL.map(|severity| function.errors.total(severity));
        assert_eq!((counts(&fatal), counts(&other)), ([0, 0, 1], [0, 1, 0]), "{is_first_fatal}");
        assert_eq!((model.noted(0, 4), model.noted(1, 4)), (0, 0));
    }
}

#[test]
fn message_that_comes_while_another_is_cleared_is_counted() {
    let model = model(0x106);
    let source = u32::from(model.device(1).address().requester());
    model.machine.with(6, |device| device.set(AER + 0x10, 4, 1 << 6));
    model.machine.with(1, |port| port.set_after_write(ROOT_STATUS, 1));
    model.machine.with(5, |device| device.set(AER + 4, 4, 1 << 12));
    let uncorrectable = u32::from(model.device(0).address().requester());
    model.machine.with(1, |port| {
        port.set(ROOT_STATUS, 4, 0x24);
        port.set(SOURCE, 4, uncorrectable << 16 | source);
    });
    assert_eq!(model.root.interrupted(), Claim::Mine);
    assert_eq!(model.machine.with(1, |port| port.get(ROOT_STATUS, 4)), 0);
    model.root.process(&model.hierarchy);
    assert_eq!(model.device(0).errors.total(Severity::NonFatal), 1);
    assert_eq!(model.device(1).errors.total(Severity::Correctable), 1);
}

/// The first message's bit is cleared, that for more of them comes just before.
#[test]
fn second_message_that_comes_while_the_first_is_cleared_has_its_agent_found() {
    let model = model(0x107);
    model.machine.with(6, |device| device.set(AER + 0x10, 4, 1 << 6));
    model.machine.with(1, |port| port.set_after_write(ROOT_STATUS, 2));
    model.error(0, 0x10, 1 << 6, 0x1);
    assert_eq!(model.machine.with(1, |port| port.get(ROOT_STATUS, 4)), 0);
    for index in 0..2 {
        let agent = model.device(index);
        assert_eq!(
            (agent.errors.total(Severity::Correctable), agent.errors.of(Severity::Correctable, 6)),
            (1, 1)
        );
        assert_eq!(model.noted(index, 0x10), 0);
    }
}

#[test]
fn a_thousand_messages_are_all_counted_or_counted_as_lost() {
    let model = model(0x104);
    let source = u32::from(model.device(0).address().requester());
    for _ in 0..1000 {
        model.machine.with(5, |device| device.set(AER + 4, 4, 1 << 12));
        model.machine.with(1, |port| {
            port.set(ROOT_STATUS, 4, 0x24);
            port.set(SOURCE, 4, source << 16);
        });
        model.root.interrupted();
    }
    model.root.process(&model.hierarchy);
    let counted = model.device(0).errors.total(Severity::NonFatal);
    assert_eq!(counted + model.root.lost_count(), 1000);
}

#[test]
fn nothing_is_given_back_to_a_function_that_did_not_answer_before_the_reset() {
    let model = model(0x108);
    let device = model.device(0);
    assert!(crate::pci::is_saved(&device));
    model.machine.with(5, |device| device.present = false);
    assert!(!crate::pci::is_saved(&device));
}

/// What drivers have heard, of all tests.
static LOG: SpinLock<Vec<(Address, &'static str)>> = SpinLock::new(Vec::new());

struct Listening(Address);

impl Binding for Listening {
    fn remove(&self) {}

    fn error_handlers(&self) -> Option<&dyn ErrorHandlers> {
        Some(self)
    }
}

impl Listening {
    fn heard(&self, what: &'static str) {
        assert!(BUS.try_hold().is_none(), "drivers come and go between the callbacks of a recovery");
        LOG.lock().push((self.0, what));
    }
}

impl ErrorHandlers for Listening {
    fn error_detected(&self, state: ChannelState) -> Verdict {
        self.heard(if state == ChannelState::Frozen { "frozen" } else { "detected" });
        if state == ChannelState::Frozen { Verdict::NeedReset } else { Verdict::CanRecover }
    }

    fn mmio_enabled(&self) -> Verdict {
        self.heard("mmio enabled");
        Verdict::Recovered
    }

    fn slot_reset(&self) -> Verdict {
        self.heard("slot reset");
        Verdict::Recovered
    }

    fn resume(&self) {
        self.heard("resume");
    }
}

fn listen(function: &Arc<Function>) -> Result<Arc<dyn Binding>, DriverError> {
    Ok(Arc::new(Listening(function.address())))
}

/// What was heard in a segment since the last time.
fn heard(segment: u16) -> Vec<(Address, &'static str)> {
    let mut log = LOG.lock();
    let (own, others): (Vec<_>, Vec<_>) = log.iter().partition(|(address, _)| address.segment == segment);
    *log = others;
    own
}

/// Has drivers that listen, for devices and for bridges.
fn listening(segment: u16, name: &'static str, ids: &'static [PciId]) -> Model {
    let model = model(segment);
    BUS.register(Arc::new(PciDriver::new(name, ids, listen))).unwrap();
    for function in model.hierarchy.functions() {
        enable_reporting(&function);
        BUS.add(function);
    }
    model
}

#[test]
fn only_the_agent_s_link_recovers_and_a_reset_leaves_addresses_as_they_were() {
    static IDS: [PciId; 1] = [PciId::device(VENDOR, 0x105)];
    let model = listening(0x105, "listening", &IDS);
    let agent = model.device(0);
    assert_ne!(agent.config.read_u16(COMMAND) & COMMAND_SERR, 0);
    model.error(0, 4, 1 << 12, 0x24);
    let callbacks =
        |names: &[&'static str]| -> Vec<_> { names.iter().map(|name| (agent.address(), *name)).collect() };
    assert_eq!(heard(0x105), callbacks(&["detected", "mmio enabled", "resume"]));
    let before = model.machine.with(5, |device| device.get(0x14, 4));
    model.error(0, 4, 1 << 4, 0x54);
    assert_eq!(heard(0x105), callbacks(&["frozen", "slot reset", "resume"]));
    assert_eq!(model.machine.with(5, |device| device.get(0x14, 4)), before);
    assert_eq!(agent.errors.total(Severity::Fatal), 1);
}

/// An error of a switch's upper link: all drivers of the tree hear one callback before any hears the next, bridges before what is behind them.
#[test]
fn each_callback_goes_through_the_whole_tree_before_the_next_begins() {
    static IDS: [PciId; 2] = [PciId::device(VENDOR, 0x109), PciId::class(0x06_0400, 0xff_ff00)];
    let model = listening(0x109, "listening to a tree", &IDS);
    let functions = model.hierarchy.functions();
    let (host_and_root, tree) = functions.split_at(2);
    assert_eq!((host_and_root[1].port(), tree.len()), (Some(PortKind::Root), 5));
    let callbacks = |names: [&'static str; 3]| -> Vec<_> {
        let through = |name| tree.iter().map(move |function| (function.address(), name));
        names.into_iter().flat_map(through).collect()
    };
    let inject = |uncorrectable: u32, correctable: u32| {
        let address = tree[0].address();
        model.root.note_injected(Injection { address, uncorrectable, correctable, header: [0; 4] });
        model.root.process(&model.hierarchy);
    };
    inject(1 << 12, 0);
    assert_eq!(heard(0x109), callbacks(["detected", "mmio enabled", "resume"]));
    inject(1 << 4, 0);
    assert_eq!(heard(0x109), callbacks(["frozen", "slot reset", "resume"]));
    inject(0, 1 << 6);
    assert_eq!(heard(0x109), []);
}
