//! Calls on other CPUs through message boxes (specs/fiasco-mp.md §G).
//!
//! The boxes are an n×n matrix: the box of (sender, target) carries one request of the sender to the
//! target and the target's answer. States of a box: EMPTY → (sender writes function and argument,
//! then publishes) REQUEST → (target has run the function) EMPTY, which the sender takes as the answer.
//!
//! Rules:
//! - A CPU has at most one call outstanding and runs no other thread until it is answered.
//! - While it waits it serves the requests of others, so two CPUs that call each other, even with
//!   interrupts off, both make progress.
//! - It waits spinning for a moment; after that, if it has interrupts on, it halts, and says so, and the answer comes
//!   with an interrupt. In a virtual machine with fewer processors than ours, the target may not be running
//!   at all, and a spinning CPU would keep it from running until its time slice ends.
//! - A called function runs with interrupts off, is short, takes no lock that somebody may hold while
//!   calling, and never calls remotely itself (checked).
//! - Order: if the answer and a later request of the same partner are both there, the answer counts
//!   first and the request waits for its interrupt. That is why the wait loop looks for requests
//!   *before* it looks for its answers: a request that it then serves was sent before the answer.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use machine::cpu::{self, CpuId, CpuSet, MAX_CPUS};
use machine::ipi::{self, Ipi};
use machine::{interrupt, preempt};

use crate::CachePadded;

const EMPTY: u32 = 0;
const REQUEST: u32 = 1;

/// How often a caller looks for answers before it halts: somewhat longer than a call takes when all CPUs really run.
const SPINS_MAX: u32 = 16;

struct MessageBox {
    /// EMPTY or REQUEST. The sender sets REQUEST, the target sets EMPTY.
    kind: AtomicU32,
    /// A `fn(usize)`; written by the sender while EMPTY.
    function: AtomicUsize,
    /// Its argument; written by the sender while EMPTY.
    argument: AtomicUsize,
}

struct Receiver {
    /// Bit n: CPU n has put a request into its box. Senders set, the target clears.
    arrived: AtomicU64,
    /// Whether the CPU waits for an answer. Written by the CPU itself.
    calling: AtomicBool,
    /// Whether the CPU halts, or is about to, until an answer comes. Set by the CPU itself, cleared by it and by who answers.
    halted: AtomicBool,
    /// Whether the CPU is inside a called function. Written by the CPU itself.
    serving: AtomicBool,
    boxes: [MessageBox; MAX_CPUS],
}

static RECEIVERS: [CachePadded<Receiver>; MAX_CPUS] = [const {
    CachePadded::new(Receiver {
        arrived: AtomicU64::new(0),
        calling: AtomicBool::new(false),
        halted: AtomicBool::new(false),
        serving: AtomicBool::new(false),
        boxes: [const {
            MessageBox {
                kind: AtomicU32::new(EMPTY),
                function: AtomicUsize::new(0),
                argument: AtomicUsize::new(0),
            }
        }; MAX_CPUS],
    })
}; MAX_CPUS];

/// Connects the message boxes to their interrupt. Once, at start-up, before the second CPU runs.
pub fn initialize() {
    ipi::set_handler(Ipi::Call, serve);
}

/// Runs `function(argument)` on every CPU of the set, this one included if it is a member, and
/// returns when all have done so. Works with interrupts off; not from interrupt handlers.
pub fn call(targets: CpuSet, function: fn(usize), argument: usize) {
    let _preemption = preempt::disable();
    assert!(!interrupt::in_interrupt(), "remote calls are made by threads");
    let this = cpu::current();
    let own = &RECEIVERS[this.index()];
    assert!(!own.serving.load(Ordering::Relaxed), "a called function never calls remotely");
    assert!(!own.calling.swap(true, Ordering::Relaxed), "a CPU has one call outstanding");

    let others = targets.intersection(cpu::online()).difference(CpuSet::only(this));
    for target in others.iter() {
        request(this, target, function, argument);
    }
    if targets.contains(this) {
        let _interrupts = interrupt::disable();
        function(argument);
    }
    await_answers(this, others);
    own.calling.store(false, Ordering::Relaxed);
}

fn request(sender: CpuId, target: CpuId, function: fn(usize), argument: usize) {
    let receiver = &RECEIVERS[target.index()];
    let message = &receiver.boxes[sender.index()];
    debug_assert_eq!(message.kind.load(Ordering::Relaxed), EMPTY, "the last call was answered");
    message.function.store(function as usize, Ordering::Relaxed);
    message.argument.store(argument, Ordering::Relaxed);
    // Release: pairs with the Acquire in `serve`.
    message.kind.store(REQUEST, Ordering::Release);
    // AcqRel: the request is in its box before the bit says so.
    let before = receiver.arrived.fetch_or(CpuSet::only(sender).bits(), Ordering::AcqRel);
    if before == 0 {
        ipi::send(target, Ipi::Call);
    }
}

fn await_answers(this: CpuId, mut waiting: CpuSet) {
    let own = &RECEIVERS[this.index()];
    let may_halt = interrupt::are_enabled();
    let mut spins = 0;
    while !waiting.is_empty() {
        // Requests first, answers second: see the module's theory.
        let requested = own.arrived.load(Ordering::Acquire) != 0;
        for target in waiting.iter() {
            // Acquire: pairs with the Release in `serve`; the function's effects are visible.
            if RECEIVERS[target.index()].boxes[this.index()].kind.load(Ordering::Acquire) == EMPTY {
                waiting.remove(target);
            }
        }
        if waiting.is_empty() {
            break;
        }
        if requested {
            let _interrupts = interrupt::disable();
            serve();
        } else if may_halt && spins >= SPINS_MAX {
            halt_until_answered(this, waiting);
            spins = 0;
        } else {
            machine::cpu::relax();
            spins += 1;
        }
    }
}

/// Halts until somebody answers or any other interrupt comes. Interrupts are on.
#[inline(never)]
fn halt_until_answered(this: CpuId, waiting: CpuSet) {
    let own = &RECEIVERS[this.index()];
    interrupt::disable_unguarded();
    // SeqCst: the announcement is before the look for answers; who answers does so before it looks for the announcement.
    own.halted.store(true, Ordering::SeqCst);
    let answered =
        |target: CpuId| RECEIVERS[target.index()].boxes[this.index()].kind.load(Ordering::SeqCst) == EMPTY;
    if own.arrived.load(Ordering::SeqCst) == 0 && !waiting.iter().any(answered) {
        interrupt::enable_and_halt();
    } else {
        interrupt::enable();
    }
    own.halted.store(false, Ordering::Relaxed);
}

/// Runs what other CPUs have asked this one for. The handler of [`Ipi::Call`]; interrupts are off.
pub fn serve() {
    let this = cpu::current();
    let receiver = &RECEIVERS[this.index()];
    // Acquire: pairs with the AcqRel in `request`.
    let senders = CpuSet::from_bits(receiver.arrived.swap(0, Ordering::AcqRel));
    for sender in senders.iter() {
        let message = &receiver.boxes[sender.index()];
        if message.kind.load(Ordering::Acquire) != REQUEST {
            continue;
        }
        let function = message.function.load(Ordering::Relaxed);
        let argument = message.argument.load(Ordering::Relaxed);
        // SAFETY: `request` stored a `fn(usize)` before REQUEST, which was seen with Acquire.
        let function = unsafe { core::mem::transmute::<usize, fn(usize)>(function) };
        receiver.serving.store(true, Ordering::Relaxed);
        function(argument);
        receiver.serving.store(false, Ordering::Relaxed);
        // The function's effects are visible to the sender that sees EMPTY. SeqCst: see `halt_until_answered`.
        message.kind.store(EMPTY, Ordering::SeqCst);
        let halted = &RECEIVERS[sender.index()].halted;
        if halted.load(Ordering::SeqCst) && halted.swap(false, Ordering::Relaxed) {
            ipi::send(sender, Ipi::Call);
        }
    }
}
