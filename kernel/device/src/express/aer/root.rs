//! The service of root ports.
//!
//! The handler reads the root's status and source, clears the status, and puts both into a queue of [`QUEUE`] notes, until the status has no
//! message; a note that finds no room is counted and logged as lost. The thread of the services takes them out: finds the agents, reports, counts, clears, recovers.
//!
//! Injected errors ([`inject`]) go the same way, with what they claim the agent has noted in place of its registers.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use sync::{IrqSpinLock, SpinLock};

use super::agent;
use super::error::{Details, Severity};
use crate::express::drain::Drain;
use crate::express::notes::Notes;
use crate::express::recovery::{Outcome, recover};
use crate::express::service::{ServiceDevice, ServiceId};
use crate::express::worker::{self, Work};
use crate::interrupt::{Claim, Registration};
use crate::model::{Binding, DriverError};
use crate::pci::{self, Address, BUS, Function, Hierarchy};

const COMMAND: u16 = 0x2c;
const STATUS: u16 = 0x30;
const SOURCE: u16 = 0x34;
/// Command: interrupt on all three severities.
const INTERRUPTS: u32 = 7;

const CORRECTABLE: u32 = 1 << 0;
const SEVERAL_CORRECTABLE: u32 = 1 << 1;
const UNCORRECTABLE: u32 = 1 << 2;
const SEVERAL_UNCORRECTABLE: u32 = 1 << 3;
/// The first uncorrectable one was fatal.
const FIRST_FATAL: u32 = 1 << 4;
const NON_FATAL: u32 = 1 << 5;
const FATAL: u32 = 1 << 6;
/// A message has come. Only the second bit of a pair is set when its message came while the first was cleared.
const MESSAGES: u32 = CORRECTABLE | SEVERAL_CORRECTABLE | UNCORRECTABLE | SEVERAL_UNCORRECTABLE;
/// All that is cleared by writing it.
const CLEARED: u32 = 0x7f;
/// Root Control: system errors on the three severities, which would reach firmware instead of us.
const SYSTEM_ERRORS: u16 = 7;

/// Notes that may wait. A storm of errors loses what is beyond.
const QUEUE: usize = 128;

/// An error that a program claims to have happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Injection {
    /// The agent.
    pub address: Address,
    /// Its uncorrectable errors.
    pub uncorrectable: u32,
    /// Its correctable errors.
    pub correctable: u32,
    /// The header of the packet in question.
    pub header: [u32; 4],
}

/// What the handler has seen.
#[derive(Clone, Copy)]
enum Note {
    Message { status: u32, source: u32 },
    Injected(Injection),
}

/// How many messages of a severity the root's status tells of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Count {
    One,
    Several,
    /// Others than the first, which an earlier note has.
    More,
}

/// The service of one root port.
pub(super) struct Root {
    device: Arc<ServiceDevice>,
    queue: IrqSpinLock<Notes<Note, QUEUE>>,
    drain: Drain,
    lost: AtomicU64,
    lost_reported: AtomicU64,
    totals: [AtomicU64; 3],
}

static ROOTS: SpinLock<Vec<Arc<Root>>> = SpinLock::named("error reporting of root ports", Vec::new());

fn roots() -> Vec<Arc<Root>> {
    let wanted = ROOTS.lock().len() + 4;
    let mut copy = Vec::with_capacity(wanted);
    let roots = ROOTS.lock();
    let room = copy.capacity();
    copy.extend(roots.iter().take(room).cloned());
    copy
}

fn change_roots(change: impl FnOnce(&mut Vec<Arc<Root>>)) {
    let mut new = roots();
    change(&mut new);
    let old = core::mem::replace(&mut *ROOTS.lock(), new);
    drop(old);
}

/// How many messages of a severity a root port has received; None if it is none with this service.
pub fn root_totals(port: &Function, severity: Severity) -> Option<u64> {
    let root = roots().into_iter().find(|root| root.device.port.address() == port.address())?;
    Some(root.totals[severity as usize].load(Ordering::Relaxed))
}

/// Has the root port above a function receive an error of it that did not happen. Fails if there is no such function or root port.
pub fn inject(injection: Injection) -> Result<(), DriverError> {
    let function = pci::find(injection.address).ok_or(DriverError::NotFound)?;
    let mut top = function.address();
    let mut above = function.upstream;
    while let Some(bridge) = above {
        top = bridge;
        above = pci::find(bridge).and_then(|function| function.upstream);
    }
    let root = roots().into_iter().find(|root| root.device.port.address() == top);
    root.ok_or(DriverError::NotFound)?.note(Note::Injected(injection));
    worker::kick();
    Ok(())
}

impl Root {
    pub(super) fn new(device: &Arc<ServiceDevice>) -> Arc<Self> {
        Arc::new(Self {
            device: device.clone(),
            queue: IrqSpinLock::named("notes of errors", Notes::new()),
            drain: Drain::new("error status of a root port"),
            lost: AtomicU64::new(0),
            lost_reported: AtomicU64::new(0),
            totals: [const { AtomicU64::new(0) }; 3],
        })
    }

    fn note(&self, note: Note) {
        if !self.queue.lock().push(note) {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The interrupt's handler.
    pub(super) fn interrupted(&self) -> Claim {
        self.drain.interrupted(|| self.take_messages())
    }

    /// Notes and clears the messages that there are now; false if there are none.
    fn take_messages(&self) -> bool {
        let registers = &self.device.registers;
        let status = registers.read_u32(STATUS);
        if status & MESSAGES == 0 || status == u32::MAX {
            return false;
        }
        let source = registers.read_u32(SOURCE);
        registers.write_u32(STATUS, status & CLEARED);
        self.note(Note::Message { status, source });
        true
    }

    pub(super) fn enable(&self) {
        let registers = &self.device.registers;
        self.device.modify_root_control(SYSTEM_ERRORS, 0);
        let old = registers.read_u32(STATUS) & CLEARED;
        if old != 0 {
            registers.write_u32(STATUS, old);
        }
        registers.write_u32(COMMAND, INTERRUPTS);
    }

    fn disable(&self) {
        self.device.registers.write_u32(COMMAND, 0);
    }

    /// Does what was noted, as many notes as the queue can have: what comes meanwhile must not keep the thread from the other services. False
    /// if some may be left.
    pub(super) fn process(&self, hierarchy: &Hierarchy) -> bool {
        let mut is_empty = false;
        for _ in 0..QUEUE {
            let note = self.queue.lock().pop();
            match note {
                Some(Note::Message { status, source }) => self.received(hierarchy, status, source),
                Some(Note::Injected(injection)) => self.injected(hierarchy, &injection),
                None => {
                    is_empty = true;
                    break;
                }
            }
        }
        let lost = self.lost.load(Ordering::Relaxed);
        let new = lost - self.lost_reported.swap(lost, Ordering::Relaxed);
        if new > 0 {
            log::error!("{}: AER: {new} error messages lost", self.device.port.address());
        }
        is_empty
    }

    /// As if a program had claimed it.
    #[cfg(test)]
    pub(super) fn note_injected(&self, injection: Injection) {
        self.note(Note::Injected(injection));
    }

    /// How many notes found no room.
    #[cfg(test)]
    pub(super) fn lost_count(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    fn received(&self, hierarchy: &Hierarchy, status: u32, source: u32) {
        let count = |first: u32, several: u32| match (status & first != 0, status & several != 0) {
            (true, false) => Some(Count::One),
            (true, true) => Some(Count::Several),
            (false, true) => Some(Count::More),
            (false, false) => None,
        };
        if let Some(count) = count(CORRECTABLE, SEVERAL_CORRECTABLE) {
            self.message(hierarchy, Severity::Correctable, source as u16, count);
        }
        if let Some(count) = count(UNCORRECTABLE, SEVERAL_UNCORRECTABLE) {
            let source = (source >> 16) as u16;
            let is_first_fatal = status & FIRST_FATAL != 0;
            match (status & NON_FATAL != 0, status & FATAL != 0) {
                // The source is that of the first.
                (true, true) if is_first_fatal => {
                    self.message(hierarchy, Severity::Fatal, source, count);
                    self.message(hierarchy, Severity::NonFatal, source, Count::More);
                }
                (true, true) => {
                    self.message(hierarchy, Severity::NonFatal, source, count);
                    self.message(hierarchy, Severity::Fatal, source, Count::More);
                }
                (_, true) => self.message(hierarchy, Severity::Fatal, source, count),
                (_, false) => self.message(hierarchy, Severity::NonFatal, source, count),
            }
        }
    }

    fn announce(&self, severity: Severity, agent: Address, several: bool) {
        self.totals[severity as usize].fetch_add(1, Ordering::Relaxed);
        let word = if several { "Multiple " } else { "" };
        log::warn!(
            "{}: AER: {word}{severity} error message received from {agent}",
            self.device.port.address()
        );
    }

    /// One message of the root port's: finds who noted errors of this severity.
    fn message(&self, hierarchy: &Hierarchy, severity: Severity, source: u16, count: Count) {
        let port = &self.device.port;
        let agent = Address::from_requester(port.address().segment, source);
        self.announce(severity, agent, count != Count::One);
        let below = hierarchy.subtree(port);
        let noted = |function: &&Arc<Function>| agent::has_noted(function, severity);
        let named = below.iter().find(|function| function.address() == agent);
        // The source is that of the first message, which an earlier note may have dealt with.
        let named = if count == Count::More { named.filter(noted) } else { named };
        let mut agents: Vec<_> = named.into_iter().cloned().collect();
        // Who has sent the others, or uses another number than its own, has noted it himself.
        if count != Count::One || named.is_none() {
            let others = below.iter().filter(|function| function.address() != agent).filter(noted);
            agents.extend(others.cloned());
        }
        if agents.is_empty() && count != Count::More {
            log::error!("{}: AER: can't find the agent {agent}", port.address());
        }
        for function in agents {
            match agent::details(&function, severity) {
                Some(details) => handle(hierarchy, &function, &details, true),
                None => unreadable(hierarchy, &function, severity),
            }
        }
    }

    fn injected(&self, hierarchy: &Hierarchy, injection: &Injection) {
        let Some(function) = hierarchy.find(injection.address) else { return };
        /// What the specification says is fatal after reset.
        const FATAL_BY_DEFAULT: u32 = 0x0046_2030;
        let claims = [
            (Severity::Correctable, injection.correctable),
            (Severity::NonFatal, injection.uncorrectable & !FATAL_BY_DEFAULT),
            (Severity::Fatal, injection.uncorrectable & FATAL_BY_DEFAULT),
        ];
        for (severity, status) in claims.into_iter().filter(|(_, status)| *status != 0) {
            self.announce(severity, injection.address, false);
            let is_correctable = severity == Severity::Correctable;
            let first = (!is_correctable).then(|| status.trailing_zeros());
            let header = (!is_correctable).then_some(injection.header);
            let details = Details { severity, status, mask: 0, first, header };
            handle(hierarchy, &function, &details, false);
        }
    }
}

/// Reports an error, counts it, clears it, and has everybody recover.
fn handle(hierarchy: &Hierarchy, function: &Arc<Function>, details: &Details, clear: bool) {
    agent::report(function, details);
    function.errors.count(details);
    if clear {
        agent::clear(function, details);
    }
    if details.severity != Severity::Correctable {
        recover_link(hierarchy, function, details.severity == Severity::Fatal);
    }
}

/// An agent whose registers say nothing: it answers no more, or somebody else has cleared them.
fn unreadable(hierarchy: &Hierarchy, function: &Arc<Function>, severity: Severity) {
    let address = function.address();
    log::error!("{address}: PCIe Bus Error: severity={severity}, type=Inaccessible, (Unregistered Agent ID)");
    function.errors.count(&Details { severity, status: 0, mask: 0, first: None, header: None });
    if severity == Severity::Fatal {
        recover_link(hierarchy, function, true);
    }
}

/// Recovery of what is on the agent's link: behind the port above it, or behind itself if it is a port that leads down.
///
/// Functions and drivers stay as they are meanwhile: a driver that took a function between the two ends of a reset would lose with it what it had set up,
/// and one that let go would be asked about a device that is another one's.
fn recover_link(hierarchy: &Hierarchy, agent: &Arc<Function>, is_fatal: bool) {
    let leads_down = agent.port().is_some_and(|port| port != crate::express::PortKind::Upstream);
    let port = if leads_down {
        Some(agent.clone())
    } else {
        agent.upstream.and_then(|bridge| hierarchy.find(bridge))
    };
    let Some(port) = port else { return };
    let _held = pci::hold();
    let mut behind = hierarchy.behind(&port);
    behind.reverse();
    let drivers: Vec<_> = behind.iter().filter_map(|function| BUS.attached(function)?.binding()).collect();
    let address = port.address();
    let tell = |callback: &str| log::info!("{address}: AER: broadcast {callback} message");
    let outcome = recover(&drivers, is_fatal, tell, || pci::reset_behind(&port, &behind));
    match outcome {
        Outcome::Recovered => log::warn!("{address}: AER: device recovery successful"),
        Outcome::Failed => log::error!("{address}: AER: device recovery failed"),
    }
}

impl Work for Root {
    fn work(&self, now_ns: u64) -> Option<u64> {
        let again = self.drain.finish(now_ns, || self.take_messages());
        let is_done = pci::hierarchy().is_none_or(|hierarchy| self.process(hierarchy));
        if is_done { again } else { Some(now_ns) }
    }
}

struct Held {
    root: Arc<Root>,
    handler: SpinLock<Option<Registration>>,
}

pub(super) fn probe(device: &Arc<ServiceDevice>, _: &ServiceId) -> Result<Arc<dyn Binding>, DriverError> {
    let interrupt = device.interrupt.as_ref().ok_or(DriverError::NotSupported)?;
    let root = Root::new(device);
    let own = root.clone();
    let handler = interrupt.register(super::NAME, Box::new(move || own.interrupted()));
    let handler = handler.ok_or(DriverError::Exhausted)?;
    worker::add(&root);
    change_roots(|roots| roots.push(root.clone()));
    agent::enable_reporting(&device.port);
    if let Some(hierarchy) = pci::hierarchy() {
        hierarchy.behind(&device.port).iter().for_each(|function| agent::enable_reporting(function));
    }
    root.enable();
    Ok(Arc::new(Held { root, handler: SpinLock::named("handler of errors", Some(handler)) }))
}

impl Binding for Held {
    fn remove(&self) {
        self.root.disable();
        let handler = self.handler.lock().take();
        drop(handler);
        change_roots(|roots| roots.retain(|root| !Arc::ptr_eq(root, &self.root)));
    }

    fn suspend(&self) {
        self.root.disable();
    }

    fn resume(&self) {
        self.root.enable();
    }
}
