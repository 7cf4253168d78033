//! A limit on how often a device may interrupt (specs/scalability.md §M4).
//!
//! A device that interrupts without end leaves its processor nothing: handlers come before softirqs, and softirqs before threads. So when an
//! interrupt has come more often than `kernel.irq_max_per_jiffy` says within a jiffy ([`JIFFY_NS`]), it is masked at its source until the jiffy
//! is over.
//!
//! States of an interrupt: *open* → (so many within a jiffy) *masked* → (tick) *open*. A timer is the tick, armed when one is masked: without
//! a flood there is none. It is armed only if it isn't already, so that no device's flood keeps another device masked.
//!
//! Nothing is lost. A device whose entry in its table of messages is masked remembers in the entry's pending bit that it wanted to interrupt, and
//! sends the message when it is unmasked (PCI 6.8.2.9); a line that is level-triggered is still up then. A message that was on its way
//! when the entry was masked is handled as usual. Interrupts that can't be masked so are not limited: the one message of a function without a
//! table, an entry among several that raise the same, and edges of ISA lines, which don't come here.
//!
//! The cost without a flood is one increment and one comparison, on the cache line that holds the lock under which handlers run. The clock is read
//! once in `irq_max_per_jiffy` interrupts.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use machine::cpu::CpuId;
use machine::interrupt::Vector;
use machine::time;
use sched::timer::Timer;
use sync::Once;

use crate::mmio::Window;

/// A jiffy, in nanoseconds.
pub const JIFFY_NS: u64 = time::COARSE_NS;

/// 250,000 a second. A healthy disk's queue stays below, also when each request is told by itself; and a processor of today has time left when
/// it handles so many.
static MAX_PER_JIFFY: AtomicU32 = AtomicU32::new(1_000);

static TICK: Once<Option<Arc<Timer>>> = Once::new();

/// How often an interrupt may come within a jiffy; 0: as often as it likes.
pub fn max_per_jiffy() -> u32 {
    match MAX_PER_JIFFY.load(Relaxed) {
        u32::MAX => 0,
        most => most,
    }
}

/// Sets how often an interrupt may come within a jiffy; 0: as often as it likes.
pub fn set_max_per_jiffy(most: u32) {
    MAX_PER_JIFFY.store(if most == 0 { u32::MAX } else { most }, Relaxed);
}

/// How to mask an interrupt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gate {
    /// It can't be.
    None,
    /// Several entries raise it.
    Several,
    /// In the I/O APIC.
    Line(u32),
    /// In the entry at this offset of a function's table of messages.
    Entry(Window, usize),
}

/// Of an entry: the word with the mask.
pub(crate) const ENTRY_MASK: usize = 12;
/// Of the word: the entry is masked.
pub(crate) const ENTRY_MASKED: u32 = 1;

impl Gate {
    fn set(&self, is_masked: bool) {
        match *self {
            Gate::None | Gate::Several => {}
            Gate::Line(line) if is_masked => machine::interrupt::mask_line(line),
            Gate::Line(line) => machine::interrupt::unmask_line(line),
            Gate::Entry(table, entry) => {
                table.write_u32(entry + ENTRY_MASK, if is_masked { ENTRY_MASKED } else { 0 });
            }
        }
    }
}

/// What the limit knows of an interrupt; under the lock of its handlers.
pub(crate) struct Limit {
    /// Interrupts since `since_ns`.
    count: u32,
    since_ns: u64,
    is_masked: bool,
    pub(crate) gate: Gate,
    /// How often it has been masked.
    pub(crate) strikes: u64,
}

impl Limit {
    pub(crate) const fn new(gate: Gate) -> Self {
        Self { count: 0, since_ns: 0, is_masked: false, gate, strikes: 0 }
    }

    /// An entry of a table raises it. Several entries that do are not masked: `Entry` is the only one.
    pub(crate) fn set_entry(&mut self, table: Window, entry: usize) {
        self.gate = match self.gate {
            Gate::None => Gate::Entry(table, entry),
            Gate::Entry(known, offset) if known.is_same(&table) && offset == entry => return,
            Gate::Line(_) | Gate::Entry(..) | Gate::Several => Gate::Several,
        };
    }

    /// Has the interrupt come to another processor from now on; false, and nothing changed, if its source can't be told. A source that is masked, or was
    /// given up, stays so.
    pub(crate) fn redirect(&self, vector: Vector, cpu: CpuId, given_up: bool) -> bool {
        match self.gate {
            Gate::None | Gate::Several => return false,
            Gate::Line(line) => {
                // That also unmasks it.
                if !machine::interrupt::route_line(line, vector, cpu) {
                    return false;
                }
            }
            Gate::Entry(table, entry) => {
                let Some(message) = vector.message(cpu) else { return false };
                // An entry is changed while it is masked (PCI 6.8.2); what it wanted to say meanwhile it says afterwards.
                self.gate.set(true);
                table.write_u32(entry, message.address as u32);
                table.write_u32(entry + 4, (message.address >> 32) as u32);
            }
        }
        self.gate.set(self.is_masked || given_up);
        true
    }

    /// An interrupt has come.
    #[inline(always)]
    pub(crate) fn count(&mut self) {
        self.count += 1;
        if self.count >= MAX_PER_JIFFY.load(Relaxed) {
            self.strike_if_exceeded();
        }
    }

    #[cold]
    fn strike_if_exceeded(&mut self) {
        let end_ns = self.since_ns + JIFFY_NS;
        let Some(Some(tick)) = TICK.get() else { return };
        if self.is_exceeded(time::now_ns())
            && !self.is_masked
            && !matches!(self.gate, Gate::None | Gate::Several)
        {
            self.is_masked = true;
            self.strikes += 1;
            self.gate.set(true);
            // The tick takes this lock, and finds what was masked before it began: a timer that is armed hasn't been here yet.
            if tick.expiry_ns().is_none() {
                tick.arm(end_ns);
            }
        }
    }

    /// So many have come: whether that took less than a jiffy. The next ones are counted from now on.
    fn is_exceeded(&mut self, now_ns: u64) -> bool {
        let elapsed_ns = now_ns.saturating_sub(self.since_ns);
        self.count = 0;
        self.since_ns = now_ns;
        elapsed_ns < JIFFY_NS
    }

    /// A tick. A line that was given up (`keep_masked`) stays masked.
    fn open(&mut self, keep_masked: bool) {
        if self.is_masked {
            self.is_masked = false;
            if !keep_masked {
                self.gate.set(false);
            }
        }
    }
}

/// What is called with a limit, and with whether its interrupt was given up.
pub(crate) type Visit<'a> = dyn FnMut(&mut Limit, bool) + 'a;

/// Opens what is masked: at each tick, with a function that is called with each interrupt and whether it was given up.
pub(crate) fn start(for_each: fn(&mut Visit<'_>)) {
    TICK.call_once(|| {
        Timer::new(Box::new(move || for_each(&mut |limit, given_up| limit.open(given_up)))).ok()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_within_a_jiffy_are_too_many_and_the_next_are_counted_from_there() {
        let mut limit = Limit::new(Gate::None);
        let now_ns = 10 * JIFFY_NS;
        assert!(!limit.is_exceeded(now_ns));
        assert!(limit.is_exceeded(now_ns + JIFFY_NS - 1));
        assert!(!limit.is_exceeded(now_ns + 2 * JIFFY_NS - 1));
        assert_eq!(limit.count, 0);
    }

    #[test]
    fn a_tick_opens_what_is_masked_unless_it_was_given_up() {
        let table = Window::fake(16);
        let mut limit = Limit::new(Gate::Entry(table, 0));
        for (given_up, left) in [(false, 0), (true, ENTRY_MASKED)] {
            limit.gate.set(true);
            limit.is_masked = true;
            assert_eq!(table.read_u32(12), ENTRY_MASKED);
            limit.open(given_up);
            assert_eq!((table.read_u32(12), limit.is_masked), (left, false));
        }
    }

    #[test]
    fn none_is_counted_as_no_limit() {
        let usual = max_per_jiffy();
        set_max_per_jiffy(0);
        assert_eq!(max_per_jiffy(), 0);
        let mut limit = Limit::new(Gate::None);
        (0..10_000).for_each(|_| limit.count());
        assert_eq!((limit.count, limit.strikes), (10_000, 0));
        set_max_per_jiffy(usual);
    }
}
