//! Which CPU a thread that becomes runnable goes to, and the wake-up itself.
//!
//! A waking thread goes to its previous CPU if that idles, else to any idle CPU of its affinity, else back to its
//! previous CPU, or, if it is a real-time thread that would have to wait there, to the one that runs the least urgent
//! thread. A new thread goes to an idle CPU, else to the one with the smallest crowd (`policy::crowd`).
//!
//! A waker that is about to sleep (a *synchronous* wake-up) and is alone on its CPU takes the thread there, which saves the
//! interrupt and the other CPU's way out of idling. Some wakers say so; others are taken at their habit: a thread whose last
//! wake-ups were each followed by its own sleep will do so again (`Entity::hands_over`). Two threads that take turns over a
//! pipe or a futex thus come to share a CPU.
//!
//! A thread that nevertheless comes to queue behind another one while a CPU idles (it was bound to its CPU until now, or
//! that CPU began to idle at the same time) makes the idle CPU come and pull (`balance`).
//!
//! An idle CPU is claimed by taking its bit out of the idle set, so that n wake-ups in a row find n different CPUs.
//!
//! Cost of a wake-up: one run-queue lock (the target's), and the thread's own spin lock if it goes to another CPU than its last one;
//! no allocation, no reference count.

use core::sync::atomic::Ordering;

use machine::cpu::{self, CpuId, CpuSet};
use machine::{interrupt, preempt, time};

use crate::balance;
use crate::cpu::{Cpu, IDLE, REQUEST_ARM, REQUEST_RESCHEDULE, request};
use crate::policy::{self, Policy};
use crate::run_queue::{Activation, NO_SLICE_END};
use crate::state::{Inspection, WakeClaim};
use crate::thread::Thread;

/// How a thread is woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WakeMode {
    /// Leave uninterruptible sleepers alone.
    pub(crate) interruptible_only: bool,
    /// The waker is about to sleep.
    pub(crate) synchronous: bool,
}

/// Wakes the thread if it sleeps; returns whether it did.
pub(crate) fn wake(thread: &Thread, mode: WakeMode) -> bool {
    match thread.state.claim_wake(mode.interruptible_only) {
        WakeClaim::Nothing => false,
        WakeClaim::Kept => true,
        WakeClaim::Enqueue { uninterruptible } => {
            enqueue_woken(thread, uninterruptible, mode.synchronous);
            true
        }
    }
}

/// Puts a sleeper that the caller has claimed on a run queue.
#[inline(always)]
pub(crate) fn enqueue_woken(thread: &Thread, uninterruptible: bool, synchronous: bool) {
    let _preemption = preempt::disable();
    if uninterruptible {
        Cpu::this().uninterruptible.fetch_sub(1, Ordering::Relaxed);
    }
    let waker = waker();
    let synchronous = synchronous || waker.is_some_and(|waker| waker.entity.hands_over());
    let now_ns = enqueue(thread, Activation::Wakeup, synchronous);
    if let Some(waker) = waker {
        waker.entity.note_wake(now_ns);
    }
}

/// Calls `look` while the thread is kept asleep; `None` if it does not sleep. Interrupts stay on, so `look` should be short:
/// whoever wakes the thread meanwhile has to wait for it.
pub(crate) fn while_asleep<R>(thread: &Thread, look: impl FnOnce() -> R) -> Option<R> {
    let _preemption = preempt::disable();
    loop {
        match thread.state.begin_inspection() {
            Inspection::Begun => break,
            Inspection::Again => cpu::relax(),
            Inspection::Awake => return None,
        }
    }
    // Acquire: pairs with the Release at the end of the thread's last switch.
    while thread.on_cpu.load(Ordering::Acquire) {
        cpu::relax();
    }
    let seen = look();
    if let WakeClaim::Enqueue { uninterruptible } = thread.state.end_inspection() {
        if uninterruptible {
            Cpu::this().uninterruptible.fetch_sub(1, Ordering::Relaxed);
        }
        enqueue(thread, Activation::Wakeup, false);
    }
    Some(seen)
}

/// The thread that wakes another one, unless an interrupt does. The caller cannot migrate.
#[inline(always)]
fn waker() -> Option<&'static Thread> {
    if interrupt::in_interrupt() {
        return None;
    }
    // SAFETY: the word is null or the running thread, which stays alive and here while preemption is off.
    unsafe { (cpu::thread_word() as *const Thread).as_ref() }
}

/// Puts a thread that the caller has claimed on a run queue. The caller cannot migrate. Returns the time.
pub(crate) fn enqueue(thread: &Thread, reason: Activation, synchronous: bool) -> u64 {
    let allowed = allowed_cpus(thread);
    let last = thread.cpu();
    // Acquire: pairs with the Release at the end of the thread's last switch.
    let target = if thread.on_cpu.load(Ordering::Acquire) && allowed.contains(last) {
        // It is still on its way out of that CPU: the lock makes us wait until its state is saved.
        last
    } else {
        while thread.on_cpu.load(Ordering::Acquire) {
            cpu::relax();
        }
        match reason {
            Activation::New => place_new(allowed),
            _ => place_woken(thread, last, allowed, synchronous),
        }
    };
    activate_on(thread, target, reason, synchronous)
}

/// The CPU that the thread is bound to; else the CPUs of its affinity that are online; all online ones if there is none such. A hosted
/// machine that wakes a thread of another one leaves it there.
pub(crate) fn allowed_cpus(thread: &Thread) -> CpuSet {
    if thread.is_bound() {
        return CpuSet::only(thread.cpu());
    }
    let online = cpu::online_beside(thread.cpu());
    let allowed = thread.affinity().intersection(online);
    if allowed.is_empty() { online } else { allowed }
}

fn claim_idle(cpu: CpuId) -> bool {
    IDLE.remove(cpu, Ordering::Relaxed)
}

/// Those of the CPUs that idle.
pub(crate) fn idle_of(candidates: CpuSet) -> CpuSet {
    IDLE.load(Ordering::Relaxed).intersection(candidates)
}

pub(crate) fn claim_any_idle(candidates: CpuSet) -> Option<CpuId> {
    idle_of(candidates).iter().find(|&cpu| claim_idle(cpu))
}

fn place_woken(thread: &Thread, last: CpuId, allowed: CpuSet, synchronous: bool) -> CpuId {
    let this = cpu::current();
    if synchronous && allowed.contains(this) && Cpu::of(this).running.load(Ordering::Relaxed) <= 1 {
        return this;
    }
    if allowed.contains(last) && IDLE.contains(last, Ordering::Relaxed) && claim_idle(last) {
        return last;
    }
    if let Some(idle) = claim_any_idle(allowed) {
        return idle;
    }
    let policy = thread.entity.policy();
    if policy.is_realtime() && !(allowed.contains(last) && Cpu::of(last).rank() < policy::rank(policy)) {
        // Where it was it would have to wait.
        if let Some(cpu) = less_urgent(policy, allowed) {
            return cpu;
        }
    }
    if allowed.contains(last) { last } else { place_new(allowed) }
}

fn place_new(allowed: CpuSet) -> CpuId {
    claim_any_idle(allowed)
        .or_else(|| least_crowded(allowed))
        .expect("some CPU is online, and a thread may run on one at least")
}

/// The CPU with the smallest crowd; this one among equals, for its warm caches.
pub(crate) fn least_crowded(candidates: CpuSet) -> Option<CpuId> {
    let this = cpu::current();
    let key = |cpu: CpuId| {
        let there = Cpu::of(cpu);
        (there.crowd(), there.running.load(Ordering::Relaxed), cpu != this)
    };
    candidates.iter().min_by_key(|&cpu| key(cpu))
}

/// The CPU that runs the least urgent thread, if that is less urgent than this real-time policy.
pub(crate) fn less_urgent(policy: Policy, candidates: CpuSet) -> Option<CpuId> {
    let least = candidates.iter().min_by_key(|&cpu| Cpu::of(cpu).rank())?;
    (Cpu::of(least).rank() < policy::rank(policy)).then_some(least)
}

/// Puts a claimed thread on the run queue of `target` and tells that CPU what follows. If the thread has to queue there, and not only
/// until a synchronous waker sleeps, an idle CPU is called to help.
fn activate_on(thread: &Thread, target: CpuId, reason: Activation, synchronous: bool) -> u64 {
    let cpu = Cpu::of(target);
    let mut queue = cpu.queue.lock();
    thread.enter_cpu(target);
    thread.state.enqueued();
    let now_ns = time::now_ns();
    queue.update_current(now_ns);
    let preempts = queue.activate(thread, reason);
    let mut wanted = if preempts {
        REQUEST_RESCHEDULE
    } else if queue.slice_end_ns() == NO_SLICE_END && queue.start_slice(now_ns) {
        REQUEST_ARM
    } else {
        0
    };
    let waits = queue.count() > 1 && !preempts && !synchronous;
    cpu.publish(&queue);
    if wanted != 0 && target == cpu::current() {
        request(target, wanted);
        wanted = 0;
    }
    drop(queue);
    // Without the lock, which the other CPU wants as soon as it is interrupted.
    if wanted != 0 {
        request(target, wanted);
    }
    if waits {
        balance::call_idle(allowed_cpus(thread));
    }
    now_ns
}
