//! What leads to the debugger, and what is handled without stopping anybody.
//!
//! Every trap that machine's `debugger` module forwards is a local request, except the debugger's own interrupt and the non-maskable
//! one that follows it: those only ask this processor to come. (Taking breakpoint instructions alone for local requests was a bug of
//! Fiasco's: hardware breakpoints then stopped one processor, and nobody else.)
//!
//! Handled locally (transition b): hardware breakpoints that are only counted.
//!
//! The button is pressed whenever somebody likes, so also when this processor is inside already. As long as the session goes on it is
//! what was wanted. When the session is over and the processor is on its way out, the press is a request for the next one.
//!
//! The debugger is off unless `debugger=on` is on the command line: a machine without anybody at its serial port is rather reported
//! on and ended. Tests switch it on for themselves, without faults.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use machine::cpu::{self, CpuId, CpuSet};
use machine::debugger::{self, Cause};
use machine::ipi::{self, Ipi};
use machine::{TrapFrame, console, time, time_window};
use sync::message_box::{self, Kind};

use super::rendezvous::{Next, Platform, Rendezvous};
use super::{commands, session, watches};

/// Resume flag: the instruction at an execution breakpoint is executed when it is returned to.
const RESUME: u64 = 1 << 16;
/// The key that enters the debugger at the first serial port: Ctrl-].
const ENTRY_KEY: u8 = 0x1d;

/// A processor has noted that a session is over, and is still inside.
pub const LEAVING: u32 = 0x5000;

/// Nothing enters.
const OFF: u32 = 0;
/// What asks for the debugger enters.
const ON: u32 = 1;
/// Faults and panics enter, too.
const WITH_FAULTS: u32 = 2;

static LEVEL: AtomicU32 = AtomicU32::new(OFF);
pub(super) static RENDEZVOUS: Rendezvous = Rendezvous::new();

static SESSIONS: AtomicU64 = AtomicU64::new(0);
static SPURIOUS: AtomicU64 = AtomicU64::new(0);
static LOCAL: AtomicU64 = AtomicU64::new(0);
static TURNS: AtomicU64 = AtomicU64::new(0);
/// Instances that are active now, and the most there ever were.
static ACTIVE: AtomicU32 = AtomicU32::new(0);
static MOST_ACTIVE: AtomicU32 = AtomicU32::new(0);

/// Fiasco's bug `dbg_vec3` is in: only breakpoint instructions are local requests.
static ONLY_VECTOR_3: AtomicBool = AtomicBool::new(false);

/// Puts a historic bug in, for the tests that must notice it (specs/fiasco-mp.md, item 51), or takes it out; `dbg_vec3` is the only one.
pub fn inject_defect(is_in: bool) {
    ONLY_VECTOR_3.store(is_in, Relaxed);
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Statistics {
    /// Times that all processors stopped and went on.
    pub sessions: u64,
    /// Times that a processor came and nobody wanted it.
    pub spurious: u64,
    /// Requests that were handled without stopping anybody.
    pub local: u64,
    /// Turns of active instances: a session has one, and one more for each change of the processor.
    pub turns: u64,
    /// The most instances that were active at a time.
    pub most_active: u32,
}

/// What has happened so far.
pub fn statistics() -> Statistics {
    Statistics {
        sessions: SESSIONS.load(Relaxed),
        spurious: SPURIOUS.load(Relaxed),
        local: LOCAL.load(Relaxed),
        turns: TURNS.load(Relaxed),
        most_active: MOST_ACTIVE.load(Relaxed),
    }
}

/// Registers the debugger; it stays off. Once, at start-up.
pub fn initialize() {
    debugger::set_hook(enter);
    message_box::set_handler(Kind::EnterDebugger, |_, words| {
        debugger::breakpoint();
        words
    });
}

/// Switches the debugger on, with or without entering on faults, or off.
pub fn enable(on: bool, with_faults: bool) {
    LEVEL.store(if !on { OFF } else { ON + u32::from(with_faults) }, Relaxed);
}

/// Has the first serial port enter the debugger: by a break, or by Ctrl-]. Once.
///
/// # Errors
/// When no interrupt controller serves the port.
pub fn listen() -> Result<(), machine::interrupt::ConnectError> {
    console::listen(|_| {
        let mut wanted = console::take_break();
        while let Some(byte) = console::read_byte() {
            wanted |= byte == ENTRY_KEY;
        }
        if wanted {
            debugger::breakpoint();
        }
    })
}

struct Machine;

impl Platform for Machine {
    fn online(&self) -> CpuSet {
        cpu::online()
    }

    fn requests(&self) -> CpuSet {
        debugger::requests()
    }

    fn add_request(&self, cpu: CpuId) {
        debugger::add_request(cpu);
    }

    fn clear_requests(&self, cpus: CpuSet) {
        debugger::clear_requests(cpus);
    }

    fn summon(&self, cpu: CpuId) {
        ipi::send(cpu, Ipi::Debugger);
    }

    fn summon_unmasked(&self, cpu: CpuId) {
        // Should it arrive when the session is over, it is not taken for the button.
        ipi::send_non_maskable(cpu);
    }

    fn now_ns(&self) -> u64 {
        time::now_ns()
    }

    fn relax(&self) {
        cpu::relax();
    }

    fn rest_while(&self, waits: &dyn Fn() -> bool) {
        debugger::rest_while(waits);
    }

    fn wake(&self, cpu: CpuId) {
        debugger::wake(cpu);
    }
}

/// The processors that take part in the session.
pub(super) fn present() -> CpuSet {
    RENDEZVOUS.present(&Machine)
}

/// A processor comes, with interrupts off, on the stack of the trap. False: what led here is not for the debugger.
fn enter(cause: Cause, frame: &mut TrapFrame) -> bool {
    let asks_only = matches!(cause, Cause::Summons | Cause::Button);
    let level = LEVEL.load(Relaxed);
    if level == OFF || (cause == Cause::Fault && level != WITH_FAULTS) {
        return asks_only;
    }
    if debugger::set_inside(true) {
        if cause == Cause::Button && !present().contains(cpu::current()) {
            debugger::add_request(cpu::current());
            session::note_button();
        }
        // It is here already; a trap of the debugger itself is a bug like any other.
        return asks_only;
    }
    visit(cause, frame);
    while !leave() {
        visit(Cause::Button, frame);
    }
    true
}

/// This processor goes on; or not, if the button was pressed on its way out: then it is inside again.
fn leave() -> bool {
    debugger::set_inside(false);
    let is_wanted = debugger::requests().contains(cpu::current());
    if is_wanted {
        debugger::set_inside(true);
    }
    !is_wanted
}

/// What leads here is handled locally, or by a session.
fn visit(cause: Cause, frame: &mut TrapFrame) {
    let control = debugger::disarm();
    let hits = if cause == Cause::Watch { debugger::take_hits() } else { 0 };
    let mut armed_anew = false;
    if cause == Cause::Watch && watches::count(hits) {
        LOCAL.fetch_add(1, Relaxed);
    } else {
        session::note(cause, hits, frame);
        let this = cpu::current();
        let is_local = match ONLY_VECTOR_3.load(Relaxed) {
            false => cause != Cause::Summons,
            true => cause == Cause::Breakpoint,
        };
        if !RENDEZVOUS.enter(&Machine, this, is_local, &mut drive) {
            SPURIOUS.fetch_add(1, Relaxed);
        }
        session::forget();
        time_window!(LEAVING);
        armed_anew = watches::apply();
    }
    if cause == Cause::Watch {
        frame.rflags |= RESUME;
    }
    if !armed_anew {
        debugger::rearm(control);
    }
}

/// The turn of the active instance.
fn drive() -> Next {
    let active = ACTIVE.fetch_add(1, Relaxed) + 1;
    MOST_ACTIVE.fetch_max(active, Relaxed);
    TURNS.fetch_add(1, Relaxed);
    let next = commands::dialogue();
    if next == Next::Continue {
        SESSIONS.fetch_add(1, Relaxed);
    }
    ACTIVE.fetch_sub(1, Relaxed);
    next
}
