//! The callbacks of each CPU: queueing, running, waiting for all of them, and the defence against floods.
//!
//! Only its own CPU touches a CPU's segments and counts, with interrupts off: queueing takes no lock and no atomic
//! read-modify-write. Other CPUs read the counts.
//!
//! Flood defence (specs/scalability.md §M2.5). Usually at most `rcu.blimit` callbacks run in one go. A CPU on which more than
//! `rcu.qhimark` wait is *flooded*: grace periods are forced and callbacks run without limit, until fewer than `rcu.qlowmark` wait. What takes
//! longer than 3 ms in a softirq, or holds up another thread that should run, is left to the CPU's thread, which can be preempted between two chunks. Above twice
//! the mark, or above its share of memory, the CPU is *overloaded*: see `pressure`.
//!
//! Callbacks run in chunks with preemption off, so callbacks of a CPU never overlap and always run in the order in which
//! they were queued, whoever runs them. That is what [`barrier`] relies on.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use machine::cpu::{self, CpuId, CpuSet};
use machine::{interrupt, preempt, time};

use super::callback::Header;
use super::flavour::{FLAVOURS, Kind};
use super::grace_period::{self, Urgency, domain};
use super::parameters::{self, Policy};
use super::segments::Segments;
use super::{bulk, pressure, statistics};
use crate::{PerCpu, per_cpu};

/// Callbacks run without a look at the clock, and with preemption off.
const CHUNK: u64 = 16;

/// A CPU's callbacks of one flavour.
pub(super) struct Local {
    /// Touched by its own CPU only, with interrupts off.
    segments: UnsafeCell<Segments>,
    /// Callbacks ever queued and ever run. Written by the CPU with interrupts off.
    queued: AtomicU64,
    ran: AtomicU64,
    /// Bytes of the objects that wait. Written by the CPU with interrupts off.
    bytes: AtomicU64,
    /// Whether there is a flood. Written by the CPU.
    flooded: AtomicBool,
    /// How often a flood began, and how often the thread took over. Written by the CPU.
    floods: AtomicU64,
    hand_overs: AtomicU64,
    /// Most callbacks that ever waited. Written by the CPU with interrupts off.
    most: AtomicU64,
}

// SAFETY: `segments` is touched by its own CPU with interrupts off only, so by one context at a time; the callbacks in
// them are Send (`RcuBox`'s bound). All else is atomic.
unsafe impl Sync for Local {}

static LOCAL: PerCpu<[Local; FLAVOURS]> = per_cpu!(
    [const {
        Local {
            segments: UnsafeCell::new(Segments::new()),
            queued: AtomicU64::new(0),
            ran: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            flooded: AtomicBool::new(false),
            floods: AtomicU64::new(0),
            hand_overs: AtomicU64::new(0),
            most: AtomicU64::new(0),
        }
    }; FLAVOURS]
);

impl Local {
    /// Calls `work` with the segments of this CPU, with interrupts off. The caller cannot migrate.
    #[inline(always)]
    fn with<R>(&self, work: impl FnOnce(&mut Segments) -> R) -> R {
        let _interrupts = interrupt::disable();
        // SAFETY: this is the CPU's own value and interrupts are off; no `work` below comes back here.
        work(unsafe { &mut *self.segments.get() })
    }

    fn waiting(&self) -> u64 {
        // In this order: what has run was queued before.
        let ran = self.ran.load(Ordering::Acquire);
        self.queued.load(Ordering::Acquire).saturating_sub(ran)
    }
}

/// Adds to a counter that only this context writes.
#[inline(always)]
pub(super) fn bump(counter: &AtomicU64, amount: u64) -> u64 {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(amount);
    // Release: who sees the count of what has run sees what it did.
    counter.store(sum, Ordering::Release);
    sum
}

/// A `fn()`, null while nobody has registered one.
static REQUEST_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Registers what is called when a CPU gets its first callback: it has to arrange for [`serve`] to
/// be called on that CPU until nothing is [`pending`].
pub fn set_request_hook(hook: fn()) {
    REQUEST_HOOK.store(hook as *mut (), Ordering::Release);
}

pub(super) fn ask_for_service() {
    let hook = REQUEST_HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: a non-null pointer was stored from a `fn()` in `set_request_hook`.
        unsafe { core::mem::transmute::<*mut (), fn()>(hook)() };
    }
}

/// Queues a callback of so many bytes on this CPU. From any context.
#[inline]
pub(super) fn enqueue(kind: Kind, header: *mut Header, bytes: usize) {
    if parameters::policy() == Policy::Direct && run_at_once(header) {
        return;
    }
    enqueue_to_wait(kind, header, bytes);
}

/// Queues a callback that must wait for a grace period, whatever the policy.
pub(super) fn enqueue_to_wait(kind: Kind, header: *mut Header, bytes: usize) {
    let kind = if kind == Kind::Bh && parameters::merges_bh() { Kind::Classic } else { kind };
    let _preemption = preempt::disable();
    let local = &LOCAL.this()[kind as usize];
    let (waiting, bytes) = local.with(|segments| {
        segments.push(header);
        let queued = bump(&local.queued, 1);
        (queued - local.ran.load(Ordering::Relaxed), bump(&local.bytes, bytes as u64))
    });
    if waiting == 1 {
        ask_for_service();
    } else if waiting > parameters::high_mark() || bytes > pressure::bytes_limit() {
        note_flood(local, waiting);
    }
}

/// More callbacks wait on this CPU than should.
#[cold]
fn note_flood(local: &Local, waiting: u64) {
    /// Callbacks between two calls for help in a flood.
    const STEP: u64 = 1_024;
    if waiting > local.most.load(Ordering::Relaxed) {
        local.most.store(waiting, Ordering::Relaxed);
    }
    if !parameters::is_protected() {
        return;
    }
    let begins = !local.flooded.load(Ordering::Relaxed);
    if begins {
        local.flooded.store(true, Ordering::Relaxed);
        bump(&local.floods, 1);
    }
    pressure::note(cpu::current(), waiting, local.bytes.load(Ordering::Relaxed));
    if begins || waiting.is_multiple_of(STEP) {
        grace_period::force();
        ask_for_service();
    }
}

/// On a machine with one CPU, outside of atomic sections, nobody is inside a read section: runs the callback at once. A callback
/// that hands over another one leaves that to the queue, so there is no recursion.
#[cold]
fn run_at_once(header: *mut Header) -> bool {
    if cpu::online().count() != 1
        || preempt::count() != 0
        || interrupt::in_interrupt()
        || !interrupt::are_enabled()
    {
        return false;
    }
    let _preemption = preempt::disable();
    let mut list = super::callback::List::new();
    list.push(header);
    list.run_all();
    true
}

/// How many callbacks and batched objects wait on this CPU. The caller cannot migrate.
#[inline(always)]
pub fn pending() -> u64 {
    pending_on(cpu::current())
}

/// How many callbacks and batched objects wait on a CPU.
#[inline(always)]
pub fn pending_on(cpu: CpuId) -> u64 {
    LOCAL.of(cpu).iter().map(Local::waiting).sum::<u64>() + bulk::waiting(cpu)
}

/// Bytes of the objects that wait on a CPU.
pub fn pending_bytes(cpu: CpuId) -> u64 {
    LOCAL.of(cpu).iter().map(|local| local.bytes.load(Ordering::Relaxed)).sum()
}

/// What is left of the work with callbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Nothing may run now.
    Nothing,
    /// Some may run: soon again.
    More,
    /// They take too long for a softirq: the thread shall run them.
    ForThread,
}

/// Moves this CPU's callbacks on and runs those that a softirq may run. The caller cannot migrate and runs with interrupts on.
pub fn serve() -> Rest {
    let mut rest = Rest::Nothing;
    let end_ns = time::now_ns() + parameters::SOFTIRQ_NS;
    bulk::flush();
    for kind in Kind::ALL {
        let local = &LOCAL.this()[kind as usize];
        if local.waiting() == 0 {
            continue;
        }
        advance(local, kind);
        let is_flooded = local.flooded.load(Ordering::Relaxed);
        let limit = match parameters::policy() {
            Policy::Thread => 0,
            _ if is_flooded => u64::MAX,
            _ => parameters::batch_limit(),
        };
        run_done(local, kind, limit, |now_ns| now_ns >= end_ns || preempt::need_resched());
        if !local.with(|segments| segments.has_done()) {
            continue;
        }
        rest = match rest {
            Rest::ForThread => rest,
            _ if limit == 0 || time::now_ns() >= end_ns || preempt::need_resched() => {
                bump(&local.hand_overs, 1);
                Rest::ForThread
            }
            _ => Rest::More,
        };
    }
    rest
}

/// Runs a chunk of what may run on this CPU, in its thread; returns whether there is more. The caller may be preempted between
/// two calls, but does not migrate.
pub fn serve_in_thread() -> bool {
    let _preemption = preempt::disable();
    let mut more = false;
    for kind in Kind::ALL {
        let local = &LOCAL.this()[kind as usize];
        advance(local, kind);
        run_done(local, kind, CHUNK, |_| false);
        more |= local.with(|segments| segments.has_done());
    }
    more
}

/// Moves this CPU's callbacks on and runs at most `limit` of each flavour of those whose grace period is over.
/// Returns whether more of them are ready. The caller cannot migrate.
pub fn invoke(limit: u32) -> bool {
    let mut more = false;
    bulk::flush();
    for kind in Kind::ALL {
        let local = &LOCAL.this()[kind as usize];
        if local.waiting() > 0 {
            advance(local, kind);
            run_done(local, kind, u64::from(limit), |_| false);
            more |= local.with(|segments| segments.has_done());
        }
    }
    more
}

fn advance(local: &Local, kind: Kind) {
    let domain = domain(kind);
    let wants = local.with(|segments| {
        segments.advance(domain.completed());
        segments.is_unassigned()
    });
    if wants {
        // The number is good for what was queued before it was asked for, so not for what interrupts queue from here on.
        local.with(|segments| {
            segments.assign(domain.request());
            segments.advance(domain.completed());
        });
    }
}

/// Runs callbacks until the limit, the last one, or until `is_enough` says so of the time.
fn run_done(local: &Local, kind: Kind, limit: u64, is_enough: impl Fn(u64) -> bool) {
    let mut total = 0;
    while total < limit {
        let _preemption = preempt::disable();
        let (list, count) = local.with(|segments| segments.take_done(CHUNK.min(limit - total)));
        if count == 0 {
            break;
        }
        let bytes = list.run_all();
        let waiting = local.with(|_| {
            bump(&local.bytes, 0_u64.wrapping_sub(bytes as u64));
            let ran = bump(&local.ran, count);
            local.queued.load(Ordering::Relaxed) - ran
        });
        total += count;
        if local.flooded.load(Ordering::Relaxed) {
            ebb(local, waiting);
        }
        if is_enough(time::now_ns()) {
            break;
        }
    }
    if total > 0 {
        let _preemption = preempt::disable();
        statistics::batch_ran(kind, total);
    }
}

/// Fewer callbacks wait than before. A few large ones can be too much: as long as somebody may be slowed down for them it is a flood, so that this
/// is called until nobody is.
#[cold]
fn ebb(local: &Local, waiting: u64) {
    let this = cpu::current();
    let is_overloaded = pressure::relent(this, waiting, local.bytes.load(Ordering::Relaxed));
    if waiting < parameters::low_mark() && !is_overloaded {
        local.flooded.store(false, Ordering::Relaxed);
    }
}

/// What must have run on a CPU for a barrier, by flavour, and the objects batched there.
#[derive(Clone, Copy)]
struct Target {
    cpu: CpuId,
    queued: [u64; FLAVOURS],
    batched: u64,
}

impl Target {
    /// All that is queued on the CPU now.
    fn now(cpu: CpuId) -> Self {
        let local = LOCAL.of(cpu);
        let batched = bulk::put(cpu);
        Self { cpu, queued: core::array::from_fn(|kind| local[kind].queued.load(Ordering::Acquire)), batched }
    }

    fn is_reached(&self) -> bool {
        let local = LOCAL.of(self.cpu);
        // Acquire: what the callbacks did is visible.
        let ran =
            local.iter().zip(self.queued).all(|(local, queued)| local.ran.load(Ordering::Acquire) >= queued);
        ran && bulk::dropped(self.cpu) >= self.batched || self.is_abandoned()
    }

    /// Whether the host thread that was this CPU has ended: nobody runs what it left before another one becomes this CPU, and nobody may
    /// wait for that.
    #[cfg(not(target_os = "none"))]
    fn is_abandoned(&self) -> bool {
        !grace_period::all_cpus().contains(self.cpu)
    }

    /// CPUs never go.
    #[cfg(target_os = "none")]
    const fn is_abandoned(&self) -> bool {
        false
    }
}

/// Waits until everything that was handed to RCU before this call, on any CPU, has been dropped or has run. May sleep.
pub fn barrier() {
    for cpu in grace_period::all_cpus().iter() {
        wait_for(Target::now(cpu));
    }
}

fn wait_for(target: Target) {
    if !target.is_reached() {
        grace_period::wait(Urgency::Usual, &|| target.is_reached());
    }
}

/// Like [`barrier`], but disturbs all CPUs so that it takes no longer than it must. Returns how many callbacks and objects waited before.
pub fn barrier_expedited() -> u64 {
    let cpus = grace_period::all_cpus();
    let waited = cpus.iter().map(pending_on).sum();
    if waited == 0 {
        return 0;
    }
    // All at once: what they have waits for the same grace period then, not for one after the other.
    let mut loaded = CpuSet::EMPTY;
    cpus.iter().filter(|&cpu| pending_on(cpu) > 0).for_each(|cpu| loaded.insert(cpu));
    crate::remote::call(loaded, hasten, 0);
    // Few words a CPU: the caller's stack need not hold the targets of all CPUs at once.
    for cpu in loaded.iter().filter(|&cpu| pending_on(cpu) > 0) {
        let target = Target::now(cpu);
        grace_period::wait(Urgency::Hurry, &|| {
            if preempt::count() == 0 && !target.is_reached() {
                crate::remote::call(CpuSet::only(cpu), hasten, 0);
            }
            target.is_reached()
        });
    }
    waited
}

/// Moves this CPU's callbacks on, and has all that may run do so; on behalf of another CPU.
fn hasten(_nothing: usize) {
    let _preemption = preempt::disable();
    for kind in Kind::ALL {
        let local = &LOCAL.this()[kind as usize];
        if local.waiting() > 0 {
            advance(local, kind);
            local.flooded.store(true, Ordering::Relaxed);
        }
    }
    ask_for_service();
}

/// What a CPU's queue of a flavour has seen, for the report.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Callbacks queued and run.
    pub queued: u64,
    /// Callbacks run.
    pub ran: u64,
    /// Bytes that wait.
    pub bytes: u64,
    /// Whether there is a flood now.
    pub flooded: bool,
    /// Floods.
    pub floods: u64,
    /// Times that the thread took over.
    pub hand_overs: u64,
    /// Most callbacks that waited in a flood.
    pub most: u64,
}

/// What a CPU's queue of a flavour has seen.
pub fn counts(cpu: CpuId, kind: Kind) -> Counts {
    let local = &LOCAL.of(cpu)[kind as usize];
    let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Counts {
        ran: load(&local.ran),
        queued: load(&local.queued),
        bytes: load(&local.bytes),
        flooded: local.flooded.load(Ordering::Relaxed),
        floods: load(&local.floods),
        hand_overs: load(&local.hand_overs),
        most: load(&local.most),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{RcuBox, call, drop_later};
    use super::*;
    use crate::rcu::counts_drop::CountsDrop;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    pub(in super::super) fn run_all() {
        let _preemption = preempt::disable();
        for _ in 0..10_000_000 {
            grace_period::quiescent();
            grace_period::force();
            invoke(10);
            if pending() == 0 {
                return;
            }
            machine::cpu::relax();
        }
        panic!("callbacks never became ready");
    }

    /// A closure that counts its calls.
    fn counter(runs: &Arc<AtomicU32>) -> Box<dyn FnOnce() + Send> {
        let runs = runs.clone();
        Box::new(move || {
            runs.fetch_add(1, Ordering::Relaxed);
        })
    }

    #[test]
    fn callback_runs_once_after_a_grace_period() {
        let runs = Arc::new(AtomicU32::new(0));
        call(counter(&runs));
        assert_eq!(runs.load(Ordering::Relaxed), 0, "not before the grace period");
        run_all();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn barrier_waits_for_what_was_queued_before() {
        // Of this CPU only: other tests leave callbacks on theirs.
        let this = cpu::current();
        let runs = Arc::new(AtomicU32::new(0));
        for _ in 0..5 {
            call(counter(&runs));
            drop_later(Arc::new(CountsDrop(runs.clone())));
        }
        let done = Arc::new(AtomicU32::new(0));
        let waiter = {
            let (runs, done) = (runs.clone(), done.clone());
            std::thread::spawn(move || {
                wait_for(Target::now(this));
                done.store(runs.load(Ordering::Relaxed), Ordering::Relaxed);
            })
        };
        while !waiter.is_finished() {
            let _preemption = preempt::disable();
            grace_period::quiescent();
            invoke(1);
        }
        waiter.join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 10);
    }

    #[test]
    fn order_of_callbacks_is_kept() {
        let order = Arc::new(crate::SpinLock::new(Vec::new()));
        for number in 0..25 {
            let order = order.clone();
            call(Box::new(move || order.lock().push(number)));
        }
        run_all();
        assert_eq!(*order.lock(), (0..25).collect::<Vec<_>>());
    }

    #[test]
    fn a_flood_begins_above_the_high_mark_and_ends_below_the_low_mark() {
        let this = cpu::current();
        let section = preempt::disable();
        let before = counts(this, Kind::Bh);
        assert!(!before.flooded);
        for _ in 0..=parameters::high_mark() {
            RcuBox::new(0_u64).defer_drop_bh();
        }
        let flooded = counts(this, Kind::Bh);
        assert!(flooded.flooded && flooded.floods == before.floods + 1 && flooded.bytes > 8 * 10_000);
        grace_period::wait_in_section_for_test(Kind::Bh);
        let local = &LOCAL.this()[Kind::Bh as usize];
        advance(local, Kind::Bh);
        while local.waiting() >= parameters::low_mark() {
            assert!(counts(this, Kind::Bh).flooded);
            grace_period::wait_in_section_for_test(Kind::Bh);
            advance(local, Kind::Bh);
            run_done(local, Kind::Bh, CHUNK, |_| false);
        }
        assert!(!counts(this, Kind::Bh).flooded);
        drop(section);
        run_all();
        assert_eq!(counts(this, Kind::Bh).bytes, 0);
    }

    #[test]
    fn a_few_large_objects_slow_nobody_down_once_they_are_gone() {
        /// The default limit is a little less than two chunks and one of them, and less than half of it one chunk and one.
        struct Large([u8; 512 << 10]);
        let section = preempt::disable();
        let this = cpu::current();
        for _ in 0..=2 * CHUNK {
            let large = RcuBox::try_new_with(|| Large([1; 512 << 10])).unwrap();
            assert_eq!(large.0[0], 1);
            large.defer_drop_bh();
        }
        assert!(pressure::is_overloaded(this));
        let local = &LOCAL.this()[Kind::Bh as usize];
        while local.waiting() > 0 {
            grace_period::wait_in_section_for_test(Kind::Bh);
            advance(local, Kind::Bh);
            run_done(local, Kind::Bh, CHUNK, |_| false);
        }
        assert!(!pressure::is_overloaded(this), "nothing waits");
        assert!(!counts(this, Kind::Bh).flooded);
        drop(section);
    }
}
