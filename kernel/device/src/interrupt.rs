//! Interrupts of devices: several drivers may share one, each vector goes to one processor, and vectors are used again.
//!
//! # Slots
//! A vector, once taken from crate `machine`, belongs to a slot for good; slots are *free* or *taken* ([`Interrupt::allocate`],
//! its drop). The processor is chosen in turn among those that are online and allowed, so that devices spread over them (`affinity`).
//!
//! # Sharing
//! Handlers of a slot run one after the other on each interrupt, under the slot's lock with interrupts off: when [`Registration`] has been
//! dropped, the handler does not run and never will again. A handler says whether the interrupt was its own. An interrupt line whose
//! interrupts nobody claims ten thousand times in a row is masked: it would come for ever. One that comes too often is masked for a moment
//! (`interrupt_limit`).

mod affinity;

pub use affinity::{Affinity, NotMoved, affinity, default_affinity, set_affinity, set_default_affinity};

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt::Write;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use machine::cpu::{CpuId, CpuSet};
use machine::interrupt::{Message, Vector};
use sync::{IrqSpinLock, Once};

use crate::interrupt_limit::{self, ENTRY_MASK, Gate, Limit, Visit};
use crate::mmio::Window;

/// Slots, as many as there are vectors for devices.
const SLOTS: usize = 160;
/// Handlers that can share an interrupt. All service devices of a port, or the devices on one of four lines of a small machine.
const HANDLERS_MAX: usize = 32;
/// Interrupts in a row that nobody claims until the line is masked.
const UNCLAIMED_MAX: u32 = 10_000;
/// Interrupts by message are numbered from here on; lines have their own numbers, below.
const FIRST_MESSAGE_NUMBER: u32 = 64;

/// Whether an interrupt was a handler's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The device had raised it.
    Mine,
    /// The device had not.
    NotMine,
}

/// What runs on an interrupt, with interrupts off. May not sleep, allocate or register handlers.
pub type Handler = Box<dyn Fn() -> Claim + Send + Sync>;

/// How an interrupt comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// By a line of the I/O APICs.
    Line(u32),
    /// By a message that the device writes.
    Message,
}

struct Action {
    name: Arc<str>,
    id: u32,
    handler: Arc<Handler>,
}

/// What an interrupt does.
struct Actions {
    /// Has room for [`HANDLERS_MAX`] since the slot was first taken.
    list: Vec<Action>,
    limit: Limit,
    /// Where it may come to.
    allowed: CpuSet,
    /// Its driver chose the processor.
    is_placed: bool,
}

struct Slot {
    taken: AtomicBool,
    vector: Once<Vector>,
    /// Made by who takes the slot first; so the table is zero until then, and takes no room in the kernel's file.
    actions: Once<IrqSpinLock<Actions>>,
    unclaimed: AtomicU32,
    /// Line number plus 1 while the slot serves a line.
    line: AtomicU32,
    cpu: AtomicU32,
}

static SLOT: [Slot; SLOTS] = [const {
    Slot {
        taken: AtomicBool::new(false),
        vector: Once::new(),
        actions: Once::new(),
        unclaimed: AtomicU32::new(0),
        line: AtomicU32::new(0),
        cpu: AtomicU32::new(0),
    }
}; SLOTS];

/// Next name of a registration.
static NEXT_ID: AtomicU32 = AtomicU32::new(1);

impl Slot {
    fn actions(&self) -> &IrqSpinLock<Actions> {
        let none = || Actions {
            list: Vec::new(),
            limit: Limit::new(Gate::None),
            allowed: CpuSet::ALL,
            is_placed: false,
        };
        self.actions.call_once(|| IrqSpinLock::named("interrupt handlers", none()))
    }

    fn cpu(&self) -> CpuId {
        CpuId::from_index(self.cpu.load(Ordering::Relaxed) as usize)
    }

    /// Whether it was masked for good because nobody claims it: lines only. A message that nobody claims disturbs no other device.
    fn is_given_up(&self) -> bool {
        self.line.load(Ordering::Relaxed) != 0 && self.unclaimed.load(Ordering::Relaxed) >= UNCLAIMED_MAX
    }
}

/// Runs the handlers of a slot.
fn run(index: usize) {
    let slot = &SLOT[index];
    let mut claimed = false;
    let mut actions = slot.actions().lock();
    for action in &actions.list {
        claimed |= (action.handler)() == Claim::Mine;
    }
    actions.limit.count();
    drop(actions);
    if claimed {
        slot.unclaimed.store(0, Ordering::Relaxed);
        return;
    }
    // Relaxed: one processor takes the vector, or two while it is moved.
    let unclaimed = slot.unclaimed.fetch_add(1, Ordering::Relaxed) + 1;
    if unclaimed == UNCLAIMED_MAX
        && let Some(line) = slot.line.load(Ordering::Relaxed).checked_sub(1)
    {
        machine::interrupt::mask_line(line);
    }
}

/// Visits the limits of interrupts in use, and whether each was given up.
fn for_each_limit(visit: &mut Visit<'_>) {
    for slot in SLOT.iter().filter(|slot| slot.taken.load(Ordering::Acquire)) {
        let mut actions = slot.actions().lock();
        visit(&mut actions.limit, slot.is_given_up());
    }
}

/// An interrupt that belongs to its holders; given back when the last one drops it.
pub struct Interrupt {
    index: usize,
    vector: Vector,
    source: Source,
}

impl Interrupt {
    /// Takes a vector for a device that raises interrupts so. None if all are in use or nothing serves the line.
    pub fn allocate(source: Source) -> Option<Arc<Self>> {
        let allowed = default_affinity();
        let cpu = affinity::choose(allowed).unwrap_or(CpuId::BOOT);
        Self::take(source, cpu, allowed, false)
    }

    /// The same, on a certain processor, for good.
    pub fn allocate_on(source: Source, cpu: CpuId) -> Option<Arc<Self>> {
        Self::take(source, cpu, CpuSet::only(cpu), true)
    }

    fn take(source: Source, cpu: CpuId, allowed: CpuSet, is_placed: bool) -> Option<Arc<Self>> {
        let index = SLOT.iter().position(|slot| !slot.taken.swap(true, Ordering::AcqRel))?;
        let slot = &SLOT[index];
        let vector = match slot.vector.get() {
            Some(vector) => *vector,
            None => match machine::interrupt::allocate_vector(run, index) {
                Some(vector) => {
                    let room = Vec::with_capacity(HANDLERS_MAX);
                    slot.actions().lock().list = room;
                    interrupt_limit::start(for_each_limit);
                    *slot.vector.call_once(|| vector)
                }
                None => {
                    slot.taken.store(false, Ordering::Release);
                    return None;
                }
            },
        };
        slot.unclaimed.store(0, Ordering::Relaxed);
        slot.cpu.store(cpu.index() as u32, Ordering::Relaxed);
        let interrupt = Arc::new(Self { index, vector, source });
        let gate = match source {
            Source::Line(line) => Gate::Line(line),
            Source::Message => Gate::None,
        };
        {
            let mut actions = slot.actions().lock();
            (actions.limit, actions.allowed, actions.is_placed) = (Limit::new(gate), allowed, is_placed);
        }
        if let Source::Line(line) = source {
            slot.line.store(line + 1, Ordering::Relaxed);
            if !machine::interrupt::route_line(line, vector, cpu) {
                return None;
            }
        }
        Some(interrupt)
    }

    /// Its number as user space sees it.
    pub fn number(&self) -> u32 {
        match self.source {
            Source::Line(line) => line,
            Source::Message => FIRST_MESSAGE_NUMBER + self.index as u32,
        }
    }

    /// How it comes.
    pub fn source(&self) -> Source {
        self.source
    }

    /// What a device must write, and where, to raise it.
    pub fn message(&self) -> Option<Message> {
        self.vector.message(SLOT[self.index].cpu())
    }

    /// Has the entry at an offset of a function's table of messages raise it. False if nothing can.
    pub(crate) fn set_entry(&self, table: Window, entry: usize) -> bool {
        // Held, so that the entry has the processor that it is moved to meanwhile.
        let mut actions = SLOT[self.index].actions().lock();
        let Some(message) = self.message() else { return false };
        table.write_u32(entry, message.address as u32);
        table.write_u32(entry + 4, (message.address >> 32) as u32);
        table.write_u32(entry + 8, message.data);
        table.write_u32(entry + ENTRY_MASK, 0);
        actions.limit.set_entry(table, entry);
        true
    }

    /// Has a handler run on it, beside those that share it. None if too many do.
    pub fn register(self: &Arc<Self>, name: &str, handler: Handler) -> Option<Registration> {
        let (name, handler) = (Arc::from(name), Arc::new(handler));
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let mut actions = SLOT[self.index].actions().lock();
        if actions.list.len() >= HANDLERS_MAX {
            return None;
        }
        actions.list.push(Action { name, id, handler });
        Some(Registration { interrupt: self.clone(), id })
    }

    /// As if the device had raised it, on this processor: for injected errors and for tests.
    pub fn simulate(&self) {
        let _guard = machine::interrupt::disable();
        run(self.index);
    }
}

impl Drop for Interrupt {
    fn drop(&mut self) {
        let slot = &SLOT[self.index];
        let mut actions = slot.actions().lock();
        debug_assert!(actions.list.is_empty(), "registrations keep the interrupt");
        actions.limit = Limit::new(Gate::None);
        drop(actions);
        if let Some(line) = slot.line.swap(0, Ordering::Relaxed).checked_sub(1) {
            machine::interrupt::mask_line(line);
        }
        slot.taken.store(false, Ordering::Release);
    }
}

/// A handler that is registered while this lives.
pub struct Registration {
    interrupt: Arc<Interrupt>,
    id: u32,
}

impl Registration {
    /// The interrupt it is registered with.
    pub fn interrupt(&self) -> &Arc<Interrupt> {
        &self.interrupt
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let action = {
            let mut actions = SLOT[self.interrupt.index].actions().lock();
            let list = &mut actions.list;
            list.iter().position(|action| action.id == self.id).map(|index| list.remove(index))
        };
        // Freed with interrupts on.
        drop(action);
    }
}

/// Interrupts that are in use: number, how they come, counts by processor, and the names of who shares them.
pub fn for_each(mut visit: impl FnMut(u32, Source, Vector, &str)) {
    for (index, slot) in SLOT.iter().enumerate() {
        let Some(vector) = slot.vector.get().filter(|_| slot.taken.load(Ordering::Acquire)) else { continue };
        let mut names = [const { None }; HANDLERS_MAX];
        for (name, action) in names.iter_mut().zip(&slot.actions().lock().list) {
            *name = Some(action.name.clone());
        }
        let mut text = String::new();
        for (position, name) in names.iter().flatten().enumerate() {
            // Writing into a string does not fail.
            let _ = write!(text, "{}{name}", if position > 0 { ", " } else { "" });
        }
        let line = slot.line.load(Ordering::Relaxed).checked_sub(1);
        visit(number_of(index), line.map_or(Source::Message, Source::Line), *vector, &text);
    }
}

/// Interrupts in use that were masked because they came too often: number, and how often that was.
pub fn for_each_limited(mut visit: impl FnMut(u32, u64)) {
    for (index, slot) in SLOT.iter().enumerate().filter(|(_, slot)| slot.taken.load(Ordering::Acquire)) {
        let strikes = slot.actions().lock().limit.strikes;
        if strikes > 0 {
            visit(number_of(index), strikes);
        }
    }
}

/// The number of a slot's interrupt as user space sees it.
fn number_of(index: usize) -> u32 {
    match SLOT[index].line.load(Ordering::Relaxed).checked_sub(1) {
        Some(line) => line,
        None => FIRST_MESSAGE_NUMBER + index as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_interrupt_runs_all_handlers_until_they_are_dropped() {
        let interrupt = Interrupt::allocate(Source::Message).unwrap();
        let count = Arc::new([const { AtomicU32::new(0) }; 2]);
        let handler = |index: usize| -> Handler {
            let count = count.clone();
            Box::new(move || {
                count[index].fetch_add(1, Ordering::Relaxed);
                Claim::Mine
            })
        };
        let first = interrupt.register("first", handler(0)).unwrap();
        let second = interrupt.register("second", handler(1)).unwrap();
        interrupt.simulate();
        let mut names = String::new();
        for_each(|number, _, _, text| {
            if number == interrupt.number() {
                names = text.into();
            }
        });
        assert_eq!(names, "first, second");
        drop(first);
        interrupt.simulate();
        drop(second);
        interrupt.simulate();
        let seen = [0, 1].map(|index: usize| count[index].load(Ordering::Relaxed));
        assert_eq!(seen, [1, 2]);
    }

    #[test]
    fn vectors_are_used_again() {
        let mut last = None;
        for _ in 0..SLOTS * 3 {
            let interrupt = Interrupt::allocate(Source::Message).unwrap();
            assert!(interrupt.message().is_some());
            last = Some(interrupt.number());
        }
        assert!(last.is_some());
    }
}
