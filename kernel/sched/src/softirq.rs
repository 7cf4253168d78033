//! Softirqs: work that interrupt handlers put off to the end of the interrupt.
//!
//! A raised softirq runs on the CPU that raised it, with interrupts on and preemption off, at the first of: the end of the
//! outermost interrupt, if that interrupted neither an atomic section nor a softirq; the end of the atomic section
//! otherwise. So a softirq never runs inside an atomic section of its CPU, and what it shares with threads needs plain spin locks
//! only. Leaving a softirq run is a quiescent state for RCU.
//!
//! Budget: a run handles at most `ROUNDS` rounds and `BUDGET_NS`; what is raised after that is left to the CPU's
//! `ksoftirqd` thread, which competes with user programs as an ordinary thread. While it is at it, or when softirqs have used
//! up what they may take of the CPU for now (`softirq_budget`), interrupts raise without running, but for timers and the like.
//! So no flood of packets starves user programs (specs/scalability.md §I); `starvation` sees to it that none does.
//!
//! The time that each softirq takes is counted, with interrupts that come in its midst: between two handlers the clock is read once.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use machine::cpu::{self, CpuId, CpuSet};
use machine::{interrupt, preempt, time};
use memory::OutOfMemory;
use sync::{PerCpu, per_cpu, rcu};

use crate::softirq_budget::{Allowance, Window};
use crate::starvation::{self, Deferred};
use crate::thread::{Builder, ThreadRef, current};
use crate::wait;

/// Rounds over the pending softirqs before the rest is left to the thread.
const ROUNDS: u32 = 10;
/// Time after which the rest is left to the thread.
const BUDGET_NS: u64 = 2_000_000;

/// The softirqs, in the order in which they run, under the names of `/proc/softirqs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Softirq {
    High,
    Timer,
    NetworkTransmit,
    NetworkReceive,
    Block,
    Tasklet,
    Sched,
    Rcu,
}

/// How many softirqs there are.
pub const COUNT: usize = 8;
/// Their names in `/proc/softirqs`.
pub const NAMES: [&str; COUNT] = ["HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "TASKLET", "SCHED", "RCU"];

/// Softirqs that others wait for, and that are bounded by themselves.
const URGENT: u32 = 1 << Softirq::Timer as u32 | 1 << Softirq::Sched as u32 | 1 << Softirq::Rcu as u32;

struct Local {
    /// Bit n: softirq n is raised. Written by this CPU only, also from its interrupts.
    pending: AtomicU32,
    /// Whether a run is going on.
    running: AtomicBool,
    /// Whether the thread has taken over.
    handed_over: AtomicBool,
    /// How often each has run, and for how long. Written by this CPU only, not from its interrupts.
    counts: [AtomicU64; COUNT],
    times_ns: [AtomicU64; COUNT],
    busy_ns: AtomicU64,
    window: Window,
    /// This CPU's `ksoftirqd`, null before it exists.
    thread: AtomicPtr<crate::Thread>,
}

static LOCAL: PerCpu<Local> = per_cpu!(Local {
    pending: AtomicU32::new(0),
    running: AtomicBool::new(false),
    handed_over: AtomicBool::new(false),
    counts: [const { AtomicU64::new(0) }; COUNT],
    times_ns: [const { AtomicU64::new(0) }; COUNT],
    busy_ns: AtomicU64::new(0),
    window: Window::new(),
    thread: AtomicPtr::new(core::ptr::null_mut()),
});

/// Reads the quota from the command line. Once, at start-up.
pub(crate) fn initialize() {
    let quota = machine::boot::info().option("softirq.quota");
    if let Some(percent) = quota.and_then(|text| text.parse().ok()) {
        crate::softirq_budget::set_quota_percent(percent);
    }
}

fn nothing() {}

/// `fn()`s.
static HANDLERS: [AtomicPtr<()>; COUNT] = [const { AtomicPtr::new(nothing as fn() as *mut ()) }; COUNT];

/// Sets what a softirq does: a function that must not sleep.
pub fn register(softirq: Softirq, handler: fn()) {
    // Release: pairs with the Acquire in `run_pending`.
    HANDLERS[softirq as usize].store(handler as *mut (), Ordering::Release);
}

/// Makes the softirq run soon on this CPU. From any context.
pub fn raise(softirq: Softirq) {
    let _preemption = preempt::disable();
    let local = LOCAL.this();
    local.pending.fetch_or(1 << softirq as u32, Ordering::Relaxed);
    if !interrupt::in_interrupt() && !local.running.load(Ordering::Relaxed) {
        // The end of the atomic section runs it: of the guard above, if nothing else.
        preempt::set_need_resched(true);
    }
}

/// Makes the softirq run at the end of the next interrupt on this CPU, or when another one is raised. With interrupts off,
/// from any context; it costs one instruction.
pub(crate) fn raise_unhurried(softirq: Softirq) {
    LOCAL.of(cpu::current()).pending.fetch_or(1 << softirq as u32, Ordering::Relaxed);
}

/// An interrupt is at its end: runs what is pending, if it is the outermost one. Interrupts are off.
pub(crate) fn interrupt_exit() {
    starvation::note_interrupt();
    if interrupt::nesting() > 1 {
        return;
    }
    let local = LOCAL.this();
    if local.pending.load(Ordering::Relaxed) == 0 || local.running.load(Ordering::Relaxed) {
        return;
    }
    if preempt::count() != 0 {
        preempt::set_need_resched(true);
        return;
    }
    rcu::idle_exit();
    run(local);
}

/// Runs what is pending where preemption has just become possible.
pub(crate) fn run_deferred() {
    if LOCAL.of(cpu::current()).pending.load(Ordering::Relaxed) == 0 || interrupt::in_interrupt() {
        return;
    }
    let preemption = preempt::disable();
    let interrupts = interrupt::disable();
    let local = LOCAL.this();
    if !local.running.load(Ordering::Relaxed) {
        run(local);
    }
    // In this order: with interrupts off the end of the guard does not come back here; the caller goes on to
    // rescheduling.
    drop(preemption);
    drop(interrupts);
}

/// Handles pending softirqs within the budget; interrupts are off before and after, and on meanwhile.
fn run(local: &Local) {
    let _preemption = preempt::disable();
    let start_ns = time::now_ns();
    let is_handed_over = local.handed_over.load(Ordering::Relaxed);
    let allowed = match local.window.allowance(start_ns, is_handed_over) {
        Allowance::All => u32::MAX,
        Allowance::Urgent => URGENT,
        Allowance::Nothing => 0,
    };
    let deferred = Deferred::begin(start_ns);
    let mut rounds = 0;
    let mut count = 0;
    let mut now_ns = start_ns;
    while local.pending.load(Ordering::Relaxed) & allowed != 0
        && rounds < ROUNDS
        && now_ns - start_ns <= BUDGET_NS
    {
        let ran;
        (ran, now_ns) = run_pending(local, allowed, now_ns);
        count += ran;
        rounds += 1;
    }
    if local.pending.load(Ordering::Relaxed) != 0 && !is_handed_over {
        hand_over(local);
    }
    if let Some(deferred) = deferred {
        deferred.end(now_ns);
    }
    if count > 0 {
        local.busy_ns.fetch_add(now_ns - start_ns, Ordering::Relaxed);
        local.window.charge(now_ns - start_ns);
        rcu::softirqs_ran(count, now_ns);
    }
    starvation::look(now_ns);
    // Whoever needs rescheduling is told by the end of the interrupt or section, unless that was a raise only.
}

/// One round of those that may run, begun at `now_ns`; returns how many softirqs ran, and the time then. Interrupts are off before
/// and after, and on meanwhile.
fn run_pending(local: &Local, allowed: u32, mut now_ns: u64) -> (u64, u64) {
    let pending = local.pending.fetch_and(!allowed, Ordering::Relaxed) & allowed;
    local.running.store(true, Ordering::Relaxed);
    sync::classes::enter_softirq();
    interrupt::enable();
    for (number, handler) in HANDLERS.iter().enumerate() {
        if pending & (1 << number) != 0 {
            let handler = handler.load(Ordering::Acquire);
            // SAFETY: the slots hold `fn()`s only, see `register`.
            let handler = unsafe { core::mem::transmute::<*mut (), fn()>(handler) };
            handler();
            rcu::softirq_exit();
            let end_ns = time::now_ns();
            let (count, time_ns) = (&local.counts[number], &local.times_ns[number]);
            count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            time_ns.store(time_ns.load(Ordering::Relaxed) + (end_ns - now_ns), Ordering::Relaxed);
            now_ns = end_ns;
        }
    }
    interrupt::disable_unguarded();
    sync::classes::leave_softirq();
    local.running.store(false, Ordering::Relaxed);
    (u64::from(pending.count_ones()), now_ns)
}

fn hand_over(local: &Local) {
    let thread = local.thread.load(Ordering::Acquire);
    // SAFETY: a `ksoftirqd` never ends.
    if let Some(thread) = unsafe { thread.as_ref() } {
        local.handed_over.store(true, Ordering::Relaxed);
        thread.wake();
    }
}

/// Makes this CPU's `ksoftirqd`.
///
/// # Errors
/// [`OutOfMemory`].
pub(crate) fn start_thread(cpu: CpuId) -> Result<(), OutOfMemory> {
    let local = LOCAL.of(cpu);
    if !local.thread.load(Ordering::Relaxed).is_null() {
        return Ok(());
    }
    let name = crate::thread::numbered_name("ksoftirqd/", cpu.index());
    let builder = Builder { name, affinity: CpuSet::only(cpu), ..Builder::new("") };
    let new = builder.prepare(alloc::boxed::Box::new(move || thread_body(LOCAL.of(cpu))))?;
    let thread: ThreadRef = new.thread().clone();
    local.thread.store(alloc::sync::Arc::into_raw(thread).cast_mut(), Ordering::Release);
    new.start();
    Ok(())
}

fn thread_body(local: &Local) {
    debug_assert!(!current().name().as_bytes().is_empty());
    loop {
        let _woken = wait::block_uninterruptible_idle(|| local.handed_over.load(Ordering::Relaxed));
        while local.pending.load(Ordering::Relaxed) != 0 {
            {
                let _preemption = preempt::disable();
                let _interrupts = interrupt::disable();
                let start_ns = time::now_ns();
                let deferred = Deferred::begin(start_ns);
                let (count, end_ns) = run_pending(local, u32::MAX, start_ns);
                if let Some(deferred) = deferred {
                    deferred.end(end_ns);
                }
                rcu::softirqs_ran(count, end_ns);
            }
            // The end of the sections above lets others run; this makes the round a quiescent state even if none wants to.
            crate::dispatch::schedule();
        }
        local.handed_over.store(false, Ordering::Relaxed);
        if local.pending.load(Ordering::Relaxed) != 0 {
            preempt::set_need_resched(true);
        }
    }
}

/// Whether this CPU's thread runs softirqs, or wants to.
pub(crate) fn is_handed_over() -> bool {
    LOCAL.of(cpu::current()).handed_over.load(Ordering::Relaxed)
}

/// Whether this CPU's softirqs have all run.
#[cfg(test)]
pub(crate) fn is_quiet() -> bool {
    LOCAL.with(|local| {
        local.pending.load(Ordering::Relaxed) == 0 && !local.handed_over.load(Ordering::Relaxed)
    })
}

/// How often a CPU has run a softirq.
pub fn count(cpu: CpuId, softirq: usize) -> u64 {
    LOCAL.of(cpu).counts[softirq].load(Ordering::Relaxed)
}

/// How long a CPU has run a softirq, in interrupts, atomic sections' ends and its thread.
pub fn time_ns(cpu: CpuId, softirq: usize) -> u64 {
    LOCAL.of(cpu).times_ns[softirq].load(Ordering::Relaxed)
}

/// How often a CPU has left softirqs to its thread because they had used up their quota.
pub fn refusals(cpu: CpuId) -> u64 {
    LOCAL.of(cpu).window.refusals()
}

/// Time a CPU has spent in softirqs.
pub fn busy_ns(cpu: CpuId) -> u64 {
    LOCAL.of(cpu).busy_ns.load(Ordering::Relaxed)
}
