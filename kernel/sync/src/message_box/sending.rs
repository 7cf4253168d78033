//! Sending a request and waiting for the answer.
//!
//! The waiting CPU spins for a moment. After that, if it has interrupts on, it halts and says so, and the answer comes with an
//! interrupt: in a virtual machine with fewer processors than ours the target may not be running at all, and a
//! spinning CPU would keep it from running until its time slice ends. With interrupts off it spins on, unless the sender
//! allows it to take interrupts while it halts ([`request_halting`]).
//!
//! Interrupts may be on while a CPU waits. Then requests are also served by the interrupt, which takes the same turn as the loop: it looks for requests
//! first, and postpones them when all answers are there. From that moment until the sender has taken the answer out of its box, no
//! request is handled ([`Own::settled`]): it may be later than the answer. Their interrupts are used up then, and so may be that of a request
//! which came between the look and the serving of others, when the word was not empty. So whoever postpones leaves a note
//! ([`Own::rescan`]), and the CPU looks once more when it has taken the answer ([`conclude`]): at once if interrupts are on, else by
//! interrupting itself, so that the requests are handled when it switches them on, and has made of the answer what it makes of it.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use machine::cpu::{self, CpuId, CpuSet, MAX_CPUS};
use machine::ipi::{self, Ipi};
use machine::{debugger, interrupt, preempt, time_window};

use super::protocol::{Matrix, Turn, WORDS, bits};
use super::request::{self, Kind, Request, Response};
use super::{defects, statistics};
use crate::{PerCpu, per_cpu};

/// How often a sender looks for answers before it halts: somewhat longer than a call takes when all CPUs really run.
const SPINS_MAX: u32 = 16;

/// The time window between the two looks of a CPU that waits.
pub const BETWEEN_LOOKS: u32 = 1;

/// The time window in which a CPU knows that its answer is there, and has not taken it yet. Interrupts are as the sender has them.
pub const BEFORE_TAKING: u32 = 2;

/// The boxes: 64 bytes for each pair of processors that can be, 256 KiB.
pub(super) static MATRIX: Matrix<MAX_CPUS> = Matrix::new();

/// What a CPU knows of its own request. Written by that CPU, except `halted`.
struct Own {
    /// Whether a request is outstanding.
    sending: AtomicBool,
    /// The CPUs that it waits for.
    waiting: AtomicU64,
    /// Whether it halts, or is about to, until an answer comes. Set by the CPU itself, cleared by it and by who answers.
    halted: AtomicBool,
    /// Handlers that it is in; more than one only where a test breaks the rules.
    handlers: AtomicU32,
    /// All answers are there, and the sender has not taken them yet: requests wait until it has.
    settled: AtomicBool,
    /// Requests were postponed whose interrupt is used up.
    rescan: AtomicBool,
}

static OWN: PerCpu<Own> = per_cpu!(Own {
    sending: AtomicBool::new(false),
    waiting: AtomicU64::new(0),
    halted: AtomicBool::new(false),
    handlers: AtomicU32::new(0),
    settled: AtomicBool::new(false),
    rescan: AtomicBool::new(false),
});

/// Connects the message boxes to their interrupt. Once, at start-up, before the second CPU runs.
pub(crate) fn initialize() {
    ipi::set_handler(Ipi::Call, arrival);
}

/// Has another CPU handle a request, and returns its answer. Works with interrupts off, and with them on; from threads and softirqs' threads, not
/// from interrupt handlers, and not with a spin lock held. Other CPUs' requests are handled meanwhile, but no other thread runs. On the
/// target being this CPU the handler is just called.
///
/// With interrupts off, answers and later requests of a partner are seen in the order in which they were sent; with them on
/// as well.
pub fn request(target: CpuId, request: Request) -> Response {
    debug_assert!(!matches!(request.kind, Kind::Call | Kind::FlushTlb), "see `remote::call`");
    crate::classes::may_call_remotely();
    let _preemption = preempt::disable();
    let this = cpu::current();
    let own = begin(this);
    assert!(own.handlers.load(Ordering::Relaxed) == 0, "a handler sends no request");
    let answer = exchange(this, own, target, &request, interrupt::are_enabled());
    own.sending.store(false, Ordering::Relaxed);
    answer
}

/// Like [`request()`] with interrupts off, but the CPU may halt while it waits, and takes interrupts then. No other thread runs, and
/// requests are handled as they would be anyway; so it is for callers to whom it makes no difference what other interrupts do. Interrupts are
/// off when the answer comes, before any later request of the partner is handled.
pub fn request_halting(target: CpuId, request: Request) -> Response {
    debug_assert!(!interrupt::are_enabled(), "else `request` halts");
    crate::classes::may_call_remotely();
    let _preemption = preempt::disable();
    let this = cpu::current();
    let own = begin(this);
    assert!(own.handlers.load(Ordering::Relaxed) == 0, "a handler sends no request");
    let answer = exchange(this, own, target, &request, true);
    own.sending.store(false, Ordering::Relaxed);
    answer
}

/// A request that a handler sends although handlers must not: for the test that shows what the rule is good for. None when the
/// handler's CPU has a request outstanding itself.
pub fn request_from_handler(target: CpuId, request: Request) -> Option<Response> {
    let this = cpu::current();
    let own = OWN.of(this);
    if own.sending.swap(true, Ordering::Relaxed) {
        return None;
    }
    let answer = exchange(this, own, target, &request, interrupt::are_enabled());
    own.sending.store(false, Ordering::Relaxed);
    Some(answer)
}

/// Runs `function(argument)` on every CPU of the set, this one included if it is a member.
pub(crate) fn call(kind: Kind, targets: CpuSet, function: fn(usize), argument: usize) {
    debug_assert!(matches!(kind, Kind::Call | Kind::FlushTlb), "these two carry functions");
    crate::classes::may_call_remotely();
    let _preemption = preempt::disable();
    let this = cpu::current();
    let own = begin(this);
    assert!(own.handlers.load(Ordering::Relaxed) == 0, "a called function never calls remotely");
    let others = targets.intersection(cpu::online()).difference(CpuSet::only(this));
    let mut words = [0; WORDS];
    (words[0], words[1]) = (function as usize as u64, argument as u64);
    // Before the first request: an interrupt that comes in between takes turns for all.
    own.waiting.store(0, Ordering::Relaxed);
    for target in others.iter() {
        post(this, own, target, kind, &words);
    }
    if targets.contains(this) {
        let _interrupts = interrupt::disable();
        function(argument);
    }
    if !others.is_empty() {
        await_answers(this, own, interrupt::are_enabled());
        conclude(this, own);
    }
    own.sending.store(false, Ordering::Relaxed);
}

/// Whether this CPU waits for an answer. The caller cannot migrate.
pub fn is_waiting(cpu: CpuId) -> bool {
    OWN.of(cpu).waiting.load(Ordering::Relaxed) != 0
}

/// Whether a CPU is in a handler.
pub fn in_handler(cpu: CpuId) -> bool {
    OWN.of(cpu).handlers.load(Ordering::Relaxed) != 0
}

fn begin(this: CpuId) -> &'static Own {
    let own = OWN.of(this);
    assert!(!interrupt::in_interrupt(), "requests are sent by threads");
    assert!(!own.sending.swap(true, Ordering::Relaxed), "a CPU has one request outstanding");
    own
}

fn exchange(this: CpuId, own: &Own, target: CpuId, request: &Request, may_halt: bool) -> Response {
    if target == this {
        let _interrupts = interrupt::disable();
        return enter_handler(own, this, request.kind as u32, request.words);
    }
    own.waiting.store(0, Ordering::Relaxed);
    post(this, own, target, request.kind, &request.words);
    await_answers(this, own, may_halt);
    let answer = MATRIX.answer(this.index(), target.index());
    conclude(this, own);
    answer
}

fn post(this: CpuId, own: &Own, target: CpuId, kind: Kind, words: &[u64; WORDS]) {
    // The box is taken when `waiting` says so: an interrupt in between must not take the empty box for an answer.
    let wants_interrupt = {
        let _interrupts = interrupt::disable();
        let wants_interrupt = MATRIX.post(this.index(), target.index(), kind as u32, words);
        own.waiting.store(own.waiting.load(Ordering::Relaxed) | 1 << target.index(), Ordering::Relaxed);
        wants_interrupt
    };
    statistics::note_sent(kind);
    if wants_interrupt {
        ipi::send(target, Ipi::Call);
    }
}

/// Handles one request on this CPU. Interrupts are off.
fn enter_handler(own: &Own, sender: CpuId, kind: u32, words: [u64; WORDS]) -> Response {
    let depth = own.handlers.load(Ordering::Relaxed);
    own.handlers.store(depth + 1, Ordering::Relaxed);
    statistics::note_handled(kind);
    let answer = request::handle(sender, kind, words);
    own.handlers.store(depth, Ordering::Relaxed);
    answer
}

/// Takes one turn; see `protocol`. Interrupts are off.
fn take_turn(this: CpuId, own: &Own) -> Turn {
    let mut waiting = own.waiting.load(Ordering::Relaxed);
    let handle = |sender, kind, words| enter_handler(own, CpuId::from_index(sender), kind, words);
    let turn =
        MATRIX.turn(this.index(), &mut waiting, defects::departure(), || time_window!(BETWEEN_LOOKS), handle);
    own.waiting.store(waiting, Ordering::Relaxed);
    match turn {
        Turn::Served(answered) => rouse(answered),
        Turn::Answered { postponed } => {
            own.settled.store(true, Ordering::Relaxed);
            if postponed {
                own.rescan.store(true, Ordering::Relaxed);
            }
        }
        Turn::Nothing => {}
    }
    turn
}

fn await_answers(this: CpuId, own: &Own, may_halt: bool) {
    let mut spins = 0;
    loop {
        let waiting = own.waiting.load(Ordering::Relaxed);
        if defects::are_in() || !is_quiet(this, waiting) {
            let interrupts = interrupt::disable();
            let turn = take_turn(this, own);
            drop(interrupts);
            if let Turn::Answered { .. } = turn {
                time_window!(BEFORE_TAKING);
                return;
            }
        }
        if debugger::is_requested() {
            debugger::join();
        }
        if may_halt && spins >= SPINS_MAX {
            halt_until_answered(this, own);
            spins = 0;
        } else {
            cpu::relax();
            spins += 1;
        }
    }
}

/// The sender has taken its answers: requests that came meanwhile have their turn.
#[inline(always)]
fn conclude(this: CpuId, own: &Own) {
    // Relaxed, both: this CPU's own.
    own.settled.store(false, Ordering::Relaxed);
    if own.rescan.load(Ordering::Relaxed) {
        own.rescan.store(false, Ordering::Relaxed);
        if interrupt::are_enabled() {
            let _interrupts = interrupt::disable();
            arrival();
        } else {
            ipi::send(this, Ipi::Call);
        }
    }
}

/// Whether nothing has come for a CPU that waits. If so a turn, which is taken with interrupts off, would do nothing.
#[inline(always)]
fn is_quiet(this: CpuId, waiting: u64) -> bool {
    MATRIX.arrived(this.index()) == 0 && waiting != 0 && MATRIX.answered(this.index(), waiting) == 0
}

/// Halts until somebody answers or any other interrupt comes, with interrupts on meanwhile; afterwards they are as before.
#[inline(never)]
fn halt_until_answered(this: CpuId, own: &Own) {
    let _interrupts = interrupt::disable();
    // SeqCst: the announcement is before the look for answers; who answers does so before it looks for the announcement.
    own.halted.store(true, Ordering::SeqCst);
    let waiting = own.waiting.load(Ordering::Relaxed);
    if is_quiet(this, waiting) {
        interrupt::enable_and_halt();
        interrupt::disable_unguarded();
    }
    own.halted.store(false, Ordering::Relaxed);
}

/// Interrupts those of the answered CPUs that halt.
fn rouse(answered: u64) {
    for sender in bits(answered).map(CpuId::from_index) {
        let halted = &OWN.of(sender).halted;
        if halted.load(Ordering::SeqCst) && halted.swap(false, Ordering::Relaxed) {
            ipi::send(sender, Ipi::Call);
        }
    }
}

/// Handles the requests that are in this CPU's boxes, without waiting for their interrupt: for who knows that one is there. Interrupts
/// are off.
pub fn serve() {
    debug_assert!(!interrupt::are_enabled(), "else the interrupt does it");
    arrival();
}

/// Requests have arrived: the handler of [`Ipi::Call`]. Interrupts are off.
fn arrival() {
    // A handler may read under RCU, also on a CPU that idled until now.
    crate::rcu::idle_exit();
    let this = cpu::current();
    let own = OWN.of(this);
    if own.waiting.load(Ordering::Relaxed) != 0 {
        take_turn(this, own);
        return;
    }
    if own.settled.load(Ordering::Relaxed) {
        own.rescan.store(true, Ordering::Relaxed);
        return;
    }
    let senders = MATRIX.arrived(this.index());
    let handle = |sender, kind, words| enter_handler(own, CpuId::from_index(sender), kind, words);
    rouse(MATRIX.serve(this.index(), senders, handle));
    if MATRIX.arrived(this.index()) != 0 {
        // Who came after the look, while the word was not empty, has sent no interrupt.
        ipi::send(this, Ipi::Call);
    }
}
