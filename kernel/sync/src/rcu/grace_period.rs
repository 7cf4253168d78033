//! Grace periods of this machine: the time until every CPU that may be inside a read section has left it.
//!
//! `protocol` says what starts and ends one; here it meets CPUs. Each flavour is a [`Domain`] of its own. A bit in ACTIVE says that
//! a domain's grace period is running, so that a CPU at a quiescent state has to load one word when there is none.
//!
//! CPUs that stay silent are *forced*: idle ones are reported on their behalf, all others get a reschedule interrupt, whose
//! handler reports when it finds preemption enabled (that covers user mode, too). So a grace period ends although other CPUs
//! idle or run user code without ticks. *Hurrying* does the same by message boxes and waits for the answers, so the
//! grace period is over on return unless a CPU was inside an atomic section; that one reports at the section's end.
//!
//! Locking: a domain's START serialises starts, and holds them up while other CPUs are reported for; interrupts are off under it and nothing else is
//! locked. All else is atomic.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};

use machine::cpu::{self, CpuId, CpuSet, MAX_CPUS};
use machine::ipi::{self, Ipi};
use machine::{interrupt, preempt, time};

use super::flavour::{FLAVOURS, Kind};
use super::protocol::{Protocol, Start};
use super::trace::{self, Event};
use super::{parameters, statistics, tree};
use crate::{CachePadded, IrqSpinLock, PerCpu, per_cpu};

const WORDS: usize = tree::words_for(MAX_CPUS);

/// Grace periods of one flavour.
pub(super) struct Domain {
    kind: Kind,
    protocol: Protocol<WORDS>,
    start: IrqSpinLock<()>,
    /// When the running one started.
    started_ns: AtomicU64,
    /// How often silent CPUs were interrupted, asked by message box, and reported as stalled.
    forced: AtomicU64,
    hurried: AtomicU64,
    stalls: AtomicU64,
    /// When the running one is reported next. Written by who reports it.
    next_stall_ns: AtomicU64,
}

static DOMAINS: [CachePadded<Domain>; FLAVOURS] =
    [CachePadded::new(Domain::new(Kind::Classic)), CachePadded::new(Domain::new(Kind::Bh))];
/// The flavours whose grace periods are running. Written once at each start and end.
static ACTIVE: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));
/// Whether each CPU idles. Written by the CPU itself.
static IDLE: PerCpu<AtomicBool> = per_cpu!(AtomicBool::new(false));
/// A [`WaitHook`], null while nobody has registered one.
static WAIT_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sleeps until the condition holds; the condition becomes true without any wake-up.
pub type WaitHook = fn(&dyn Fn() -> bool);

/// Registers how a thread waits for a grace period; without, [`synchronize`] spins.
pub fn set_wait_hook(hook: WaitHook) {
    WAIT_HOOK.store(hook as *mut (), Ordering::Release);
}

/// The grace periods of a flavour.
pub(super) fn domain(kind: Kind) -> &'static Domain {
    &DOMAINS[kind as usize]
}

/// Number of the last completed grace period of the classic flavour.
pub fn completed() -> u64 {
    domain(Kind::Classic).completed()
}

impl Domain {
    const fn new(kind: Kind) -> Self {
        Self {
            kind,
            protocol: Protocol::new(MAX_CPUS),
            start: IrqSpinLock::named("start of a grace period", ()),
            started_ns: AtomicU64::new(0),
            forced: AtomicU64::new(0),
            hurried: AtomicU64::new(0),
            stalls: AtomicU64::new(0),
            next_stall_ns: AtomicU64::new(0),
        }
    }

    /// Number of the last completed grace period.
    pub(super) fn completed(&self) -> u64 {
        self.protocol.completed()
    }

    /// Asks for a grace period that starts from now on; returns its number.
    pub(super) fn request(&self) -> u64 {
        let number = self.protocol.request();
        self.start();
        number
    }

    /// Starts the next grace period if one is wanted and none is running.
    fn start(&self) {
        while self.protocol.should_start() {
            let result = {
                let _starting = self.start.lock();
                if !self.protocol.should_start() {
                    return;
                }
                let now_ns = time::now_ns();
                self.started_ns.store(now_ns, Ordering::Relaxed);
                self.next_stall_ns.store(now_ns + parameters::stall_ns(), Ordering::Relaxed);
                trace::record(Event::GracePeriodStart, self.kind, self.protocol.started() + 1);
                ACTIVE.fetch_or(self.kind.bit(), Ordering::Relaxed);
                let cpus = all_cpus();
                self.protocol.try_start(|index| {
                    let cpu = CpuId::from_index(index);
                    !cpus.contains(cpu) || is_quiescent(cpu)
                })
            };
            match result {
                Start::Over => self.complete(),
                Start::Running | Start::Nothing => return,
            }
        }
    }

    /// Nobody owes a quiescent state any more, which the caller was told.
    fn complete(&self) {
        let _preemption = preempt::disable();
        let now_ns = time::now_ns();
        let length_ns = now_ns.saturating_sub(self.started_ns.load(Ordering::Relaxed));
        // Before the end: after it, the next one may have started and set the bit again.
        ACTIVE.fetch_and(!self.kind.bit(), Ordering::Relaxed);
        self.protocol.complete();
        statistics::grace_period_ended(self.kind, now_ns, length_ns);
    }

    fn report(&self, cpu: CpuId) {
        if self.protocol.owes(cpu.index()) && self.protocol.report(cpu.index()) {
            self.complete();
            self.start();
        }
    }

    /// Reports the silent CPUs that can be seen to be quiescent; returns the others.
    fn report_for_others(&self) -> CpuSet {
        fence(Ordering::SeqCst);
        let (mut holdouts, mut is_over) = (CpuSet::EMPTY, false);
        {
            let _starts_wait = self.start.lock();
            for cpu in self.owing().iter() {
                if is_quiescent(cpu) {
                    is_over |= self.protocol.report(cpu.index());
                } else {
                    holdouts.insert(cpu);
                }
            }
        }
        if is_over {
            self.complete();
            self.start();
        }
        holdouts
    }

    /// The CPUs that owe a quiescent state.
    pub(super) fn owing(&self) -> CpuSet {
        const { assert!(WORDS == 1, "a set of CPUs is one word") };
        CpuSet::from_bits(self.protocol.owing(0))
    }

    fn force(&self) {
        if !self.is_active() {
            return;
        }
        let _preemption = preempt::disable();
        let holdouts = self.report_for_others();
        self.forced.fetch_add(1, Ordering::Relaxed);
        for cpu in holdouts.difference(CpuSet::only(cpu::current())).iter() {
            ipi::send(cpu, Ipi::Reschedule);
        }
    }

    /// Asks the silent CPUs by message box. In a thread, with preemption enabled.
    fn hurry(&self) {
        if !self.is_active() {
            return;
        }
        let holdouts = self.report_for_others();
        let others = holdouts.difference(CpuSet::only(cpu::current()));
        if !others.is_empty() {
            self.hurried.fetch_add(1, Ordering::Relaxed);
            crate::remote::call(others, answer, 0);
        }
    }

    fn is_active(&self) -> bool {
        ACTIVE.load(Ordering::Relaxed) & self.kind.bit() != 0
    }

    /// When the running grace period started, if one is.
    pub(super) fn running_since(&self) -> Option<u64> {
        self.is_active().then(|| self.started_ns.load(Ordering::Relaxed))
    }

    /// Started, completed and wanted numbers.
    pub(super) fn numbers(&self) -> [u64; 3] {
        [self.protocol.started(), self.protocol.completed(), self.protocol.wanted()]
    }

    /// How often silent CPUs were interrupted, asked, and reported as stalled.
    pub(super) fn urges(&self) -> [u64; 3] {
        [&self.forced, &self.hurried, &self.stalls].map(|count| count.load(Ordering::Relaxed))
    }

    /// Whether the running grace period has lasted too long. One load when none is running.
    #[inline]
    pub(super) fn stall_is_due(&self, now_ns: u64) -> bool {
        self.is_active()
            && now_ns >= self.next_stall_ns.load(Ordering::Relaxed)
            && parameters::stall_ns() != 0
    }

    /// Claims the report of a grace period that has lasted too long; returns its age.
    pub(super) fn claim_stall(&self, now_ns: u64) -> Option<u64> {
        let (due_ns, timeout_ns) = (self.next_stall_ns.load(Ordering::Relaxed), parameters::stall_ns());
        if !self.stall_is_due(now_ns) || now_ns < due_ns {
            return None;
        }
        self.next_stall_ns
            .compare_exchange(due_ns, now_ns + timeout_ns, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        self.stalls.fetch_add(1, Ordering::Relaxed);
        Some(now_ns.saturating_sub(self.started_ns.load(Ordering::Relaxed)))
    }
}

/// What a CPU does that was asked by message box.
fn answer(_nothing: usize) {
    if preempt::count() == 0 {
        quiescent();
    } else {
        // The end of the atomic section goes through the dispatcher, which reports.
        preempt::set_need_resched(true);
    }
}

/// Whether the CPU can be seen from here to be outside of any read section.
fn is_quiescent(cpu: CpuId) -> bool {
    #[cfg(not(target_os = "none"))]
    if machine::hosted::is_preemptible(cpu) {
        return true;
    }
    is_idle(cpu)
}

/// Whether the CPU idles.
pub(super) fn is_idle(cpu: CpuId) -> bool {
    IDLE.of(cpu).load(Ordering::SeqCst)
}

/// The CPUs that may be inside a read section.
pub(super) fn all_cpus() -> CpuSet {
    #[cfg(not(target_os = "none"))]
    return machine::hosted::cpus_in_use();
    #[cfg(target_os = "none")]
    cpu::online()
}

/// Reports that this CPU is outside of any read section. One load when no grace period is running.
///
/// The caller cannot migrate, and what it read under RCU before is of no concern any more.
#[inline(always)]
pub fn quiescent() {
    if ACTIVE.load(Ordering::Relaxed) != 0 {
        report_all();
    }
}

#[cold]
fn report_all() {
    let this = cpu::current();
    DOMAINS.iter().for_each(|domain| domain.report(this));
}

/// Reports that a softirq handler has ended: no reader of flavour `Bh` is on this CPU. One load when no grace period of
/// that flavour is running.
#[inline(always)]
pub fn softirq_exit() {
    if ACTIVE.load(Ordering::Relaxed) & Kind::Bh.bit() != 0 {
        domain(Kind::Bh).report(cpu::current());
    }
}

/// Tells that this CPU goes idle: it reads nothing under RCU until [`idle_exit`].
#[inline]
pub fn idle_enter() {
    IDLE.this().store(true, Ordering::Release);
    quiescent();
}

/// Tells that this CPU is no longer idle, or takes an interrupt that may read under RCU. Cheap if it
/// was not idle.
#[inline]
pub fn idle_exit() {
    let idle = IDLE.this();
    if idle.load(Ordering::Relaxed) {
        idle.store(false, Ordering::Relaxed);
        // Pairs with the fences in `request` and `try_start`: whoever still saw us idle has published what our later reads
        // see.
        fence(Ordering::SeqCst);
    }
}

/// Urges the running grace periods: reports idle CPUs on their behalf and interrupts the others. From any context.
pub fn force() {
    DOMAINS.iter().for_each(|domain| domain.force());
}

/// Urges the running grace periods by message boxes, and returns when all CPUs have answered. In a thread.
pub(super) fn hurry() {
    DOMAINS.iter().for_each(|domain| domain.hurry());
}

/// How many grace periods of a flavour were reported because they did not end.
pub fn stalls(kind: Kind) -> u64 {
    domain(kind).urges()[2]
}

/// Whether nobody but this thread can be inside a read section because nobody else runs.
fn is_alone() -> bool {
    cfg!(target_os = "none") && cpu::online().count() == 1
}

/// Waits until every read section that is running now has ended. May sleep.
pub fn synchronize() {
    wait_for_grace_period(Kind::Classic, Urgency::Usual);
}

/// Like [`synchronize`], without waiting for others to notice: they are asked by message box, which disturbs all of them.
pub fn synchronize_expedited() {
    wait_for_grace_period(Kind::Classic, Urgency::Hurry);
}

/// Waits until every read section of flavour `Bh` that is running now has ended. May sleep.
pub fn synchronize_bh() {
    let kind = if parameters::merges_bh() { Kind::Classic } else { Kind::Bh };
    wait_for_grace_period(kind, Urgency::Usual);
}

fn wait_for_grace_period(kind: Kind, urgency: Urgency) {
    assert_may_wait();
    if is_alone() {
        // This thread is in no read section, and no other one was preempted in one.
        return;
    }
    let domain = domain(kind);
    let number = domain.request();
    wait(urgency, &|| domain.completed() >= number);
}

/// How somebody waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Interrupting silent CPUs.
    Usual,
    /// Asking them by message box.
    Hurry,
}

fn assert_may_wait() {
    assert!(preempt::count() == 0 && !interrupt::in_interrupt(), "waiting for readers may sleep");
}

/// Waits for something that grace periods bring about, and urges them. May sleep.
pub(super) fn wait(urgency: Urgency, reached: &dyn Fn() -> bool) {
    assert_may_wait();
    let done = || {
        {
            let _preemption = preempt::disable();
            // The count is ours alone: this thread is in no read section.
            if preempt::count() == 1 {
                quiescent();
            }
        }
        match urgency {
            Urgency::Usual => force(),
            Urgency::Hurry if preempt::count() == 0 => hurry(),
            // The condition is looked at once more with the sleep announced, where no calls are made.
            Urgency::Hurry => force(),
        }
        reached()
    };
    let hook = WAIT_HOOK.load(Ordering::Acquire);
    if hook.is_null() {
        while !done() {
            machine::cpu::relax();
        }
    } else {
        // SAFETY: a non-null pointer was stored from a `WaitHook` in `set_wait_hook`.
        let hook = unsafe { core::mem::transmute::<*mut (), WaitHook>(hook) };
        hook(&done);
    }
}

/// Waits with preemption off until a grace period of `Bh` that starts now has ended: the CPU says that softirqs end.
#[cfg(test)]
pub(super) fn wait_in_section_for_test(kind: Kind) {
    assert_eq!(kind, Kind::Bh);
    let number = domain(kind).request();
    while domain(kind).completed() < number {
        softirq_exit();
        domain(kind).force();
        std::thread::yield_now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn grace_period_ends_without_readers() {
        for wait in [synchronize, synchronize_expedited] {
            let before = completed();
            wait();
            assert!(completed() > before);
        }
        let before = domain(Kind::Bh).completed();
        synchronize_bh();
        assert!(domain(Kind::Bh).completed() > before);
    }

    /// Runs the check while another CPU is inside a read section.
    fn with_reader<G: 'static>(enter: fn() -> G, check: impl FnOnce()) -> Arc<AtomicBool> {
        let (entered, has_entered) = channel();
        let (leave, may_leave) = channel::<()>();
        let left = Arc::new(AtomicBool::new(false));
        let reader = {
            let left = left.clone();
            std::thread::spawn(move || {
                let guard = enter();
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
                left.store(true, Ordering::SeqCst);
                drop(guard);
            })
        };
        has_entered.recv().unwrap();
        check();
        leave.send(()).unwrap();
        reader.join().unwrap();
        left
    }

    #[test]
    fn grace_period_waits_for_reader() {
        for kind in Kind::ALL {
            let domain = domain(kind);
            let mut number = 0;
            let check = || {
                number = domain.request();
                for _ in 0..100 {
                    domain.force();
                    assert!(domain.completed() < number, "the reader is still inside");
                }
            };
            let left = match kind {
                Kind::Classic => with_reader(super::super::read, check),
                Kind::Bh => with_reader(super::super::read_bh, check),
            };
            wait(Urgency::Usual, &|| domain.completed() >= number);
            assert!(left.load(Ordering::SeqCst));
        }
    }

    #[test]
    fn the_end_of_a_softirq_handler_ends_a_grace_period_of_bh_only() {
        let section = super::super::read_bh();
        let this = cpu::current().index();
        let numbers = Kind::ALL.map(|kind| domain(kind).request());
        // Requests of other tests may be running; the one that is asked for here starts when they are over.
        for _ in 0..1_000_000 {
            softirq_exit();
            domain(Kind::Bh).force();
            if domain(Kind::Bh).completed() >= numbers[1] {
                break;
            }
            std::thread::yield_now();
        }
        assert!(domain(Kind::Bh).completed() >= numbers[1]);
        assert!(domain(Kind::Classic).completed() < numbers[0], "CPU {this} has made no classic report");
        drop(section);
        synchronize();
    }
}
