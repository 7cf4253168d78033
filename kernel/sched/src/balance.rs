//! Moving threads between CPUs, besides where they wake up.
//!
//! What holds: no thread waits for milliseconds while a CPU of its affinity idles. Who sees to it:
//! - A thread that has to queue behind another although a CPU idles makes that CPU come for it ([`call_idle`]).
//! - A CPU that is about to idle *pulls* one waiting thread from the CPU with most. It looks once more after it has announced
//!   itself as idle: either it sees the thread that was queued meanwhile, or who queued that sees it idle.
//! - A CPU with two or more threads *pushes* one waiting thread every few milliseconds to a CPU where it gets more, however
//!   often its threads take turns meanwhile ([`RunQueue::balance_is_due`]). CPUs with one thread or none need no tick for that: there
//!   is nothing to take from them.
//! - A real-time thread that is preempted leaves at once for a CPU that runs something less urgent.
//! - A change of affinity moves the thread at once: a waiting one to a CPU that idles or at least out of a queue that it may no longer
//!   be in, a running one is made to leave.
//!
//! Two run-queue locks at a time: the second one is only ever *tried*, so there is no order to keep and nothing can deadlock.

use core::sync::atomic::{Ordering, fence};

use machine::cpu::{self, CpuId, CpuSet};
use machine::{preempt, time};

use crate::WaitQueue;
use crate::cpu::{Cpu, IDLE, REQUEST_RESCHEDULE, request};
use crate::placement::{allowed_cpus, claim_any_idle, enqueue, idle_of, least_crowded, less_urgent};
use crate::policy::Policy;
use crate::run_queue::{Activation, Entity, RunQueue};
use crate::state::RunState;
use crate::thread::{Thread, current};

/// Threads waiting for others to leave CPUs that they may no longer use.
static MOVES: WaitQueue = WaitQueue::new();

/// A thread has left a CPU because of its affinity.
pub(crate) fn moved() {
    MOVES.wake_all();
}

/// Threads on a CPU, as it last published.
fn running(cpu: CpuId) -> u32 {
    Cpu::of(cpu).running.load(Ordering::Relaxed)
}

/// Takes a waiting thread from the CPU with most threads, of those that have one for this CPU, into this CPU's queue, whose lock
/// the caller holds.
pub(crate) fn pull_when_idle(queue: &mut RunQueue) -> bool {
    /// Queues looked into: the fullest ones. The others' own ticks push.
    const SEARCH_LIMIT: usize = 4;
    let this = cpu::current();
    let mut candidates = cpu::online();
    candidates.remove(this);
    for _ in 0..SEARCH_LIMIT {
        let Some(busiest) = candidates.iter().max_by_key(|&cpu| running(cpu)) else { return false };
        if running(busiest) <= 1 {
            return false;
        }
        if pull_from(busiest, this, queue) {
            return true;
        }
        candidates.remove(busiest);
    }
    false
}

/// Takes a waiting thread from a CPU's queue, if it can be locked at once and has one that may run on this CPU.
fn pull_from(source: CpuId, this: CpuId, queue: &mut RunQueue) -> bool {
    let source = Cpu::of(source);
    let Some(mut other) = source.queue.try_lock() else { return false };
    let Some(thread) = other.find_movable(|thread| allowed_cpus(thread).contains(this)) else { return false };
    // SAFETY: a thread in a queue is alive while the queue is locked.
    let thread = unsafe { &*thread };
    other.deactivate_waiting(thread);
    source.publish(&other);
    thread.set_cpu(this);
    drop(other);
    queue.activate(thread, Activation::Moved);
    true
}

/// The idle thread's last look around, after this CPU has announced that it idles. Interrupts are off. Returns whether there is a
/// thread to run now.
pub(crate) fn pull_last() -> bool {
    let this = cpu::current();
    // The announcement is before the look; pairs with the fence in `call_idle`.
    fence(Ordering::SeqCst);
    if cpu::online().iter().all(|cpu| cpu == this || running(cpu) <= 1) {
        return false;
    }
    let here = Cpu::this();
    let mut queue = here.queue.lock();
    let pulled = queue.count() == 0 && pull_when_idle(&mut queue);
    here.publish(&queue);
    pulled
}

/// A thread was queued behind another one: wakes an idle CPU that it may use, which then pulls it or another one. The caller has
/// published that queue's count.
pub(crate) fn call_idle(allowed: CpuSet) {
    // The published count is before the look; pairs with the fence in `pull_last`.
    fence(Ordering::SeqCst);
    if let Some(idle) = claim_any_idle(allowed) {
        request(idle, REQUEST_RESCHEDULE);
    }
}

/// Gives a waiting thread of this CPU's queue, whose lock the caller holds, to a CPU that suits it better, if there is one: a fair
/// thread to one whose crowd is smaller by two, a real-time thread to one that runs something less urgent.
pub(crate) fn push_excess(queue: &mut RunQueue) {
    let this = cpu::current();
    let target_of = |thread: &Thread| {
        let mut others = allowed_cpus(thread);
        others.remove(this);
        match thread.entity.policy() {
            policy if policy.is_realtime() => less_urgent(policy, others),
            Policy::Idle => others.iter().find(|&cpu| running(cpu) == 0),
            _ => least_crowded(others).filter(|&cpu| Cpu::of(cpu).crowd() + 2 <= queue.crowd()),
        }
    };
    let Some(thread) = queue.find_movable(|thread| target_of(thread).is_some()) else { return };
    // SAFETY: a thread in a queue is alive while the queue is locked.
    let thread = unsafe { &*thread };
    let Some(target) = target_of(thread) else { return };
    let there = Cpu::of(target);
    let Some(mut other) = there.queue.try_lock() else { return };
    queue.deactivate_waiting(thread);
    thread.set_cpu(target);
    other.update_current(time::now_ns());
    other.activate(thread, Activation::Moved);
    there.publish(&other);
    drop(other);
    IDLE.remove(target, Ordering::Relaxed);
    // It also starts its slice: it has somebody waiting now.
    request(target, REQUEST_RESCHEDULE);
}

/// Whether a real-time thread that has just been preempted, and waits in this CPU's queue, whose lock the caller holds, would run at
/// once elsewhere. If so it is taken out of the queue, and is enqueued again after the switch.
pub(crate) fn let_go(queue: &mut RunQueue, preempted: &Thread, next: &Thread) -> bool {
    if !preempted.entity.is_realtime() || !next.entity.is_realtime() || !preempted.entity.is_queued() {
        return false;
    }
    let mut others = allowed_cpus(preempted);
    others.remove(cpu::current());
    let goes = less_urgent(preempted.entity.policy(), others).is_some() && preempted.state.begin_move();
    if goes {
        queue.deactivate_waiting(preempted);
    }
    goes
}

/// Locks the queue that the thread belongs to and calls `change` with it. A waker that has claimed the thread waits before it brings
/// it to another queue, see [`Thread::enter_cpu`].
pub(crate) fn with_queue_of<R>(thread: &Thread, change: impl FnOnce(&Cpu, &mut RunQueue) -> R) -> R {
    loop {
        let home = thread.cpu();
        let cpu = Cpu::of(home);
        let mut queue = cpu.queue.lock();
        let _stays = thread.stays.lock();
        if thread.cpu() == home {
            return change(cpu, &mut queue);
        }
    }
}

/// The time that the thread has run. Its queue is locked, so it neither stops nor starts while its account is read.
pub(crate) fn runtime_ns(thread: &Thread) -> u64 {
    let _preemption = preempt::disable();
    with_queue_of(thread, |_, queue| {
        let accounted_ns = thread.entity.runtime_ns();
        let runs = core::ptr::eq(queue.current(), thread);
        let since_ns = if runs { time::now_ns().saturating_sub(thread.entity.started_ns()) } else { 0 };
        accounted_ns + since_ns
    })
}

/// Makes the thread leave a CPU that its affinity no longer allows; returns when it has.
pub(crate) fn enforce_affinity(thread: &Thread) {
    if core::ptr::eq(thread, &raw const *current()) {
        while !allowed_cpus(thread).contains(cpu_now()) {
            crate::dispatch::reschedule();
        }
        return;
    }
    /// How often to look again: a thread that is about to sleep, or was preempted just now, tells nobody.
    const RETRY_NS: u64 = 200_000;
    loop {
        take_waiting(thread);
        if MOVES.wait_until_deadline(|| has_settled(thread), time::now_ns() + RETRY_NS) {
            return;
        }
    }
}

/// Whether the thread is on no CPU that it may not use. One that runs on such a CPU is made to leave. A sleeping thread is
/// where it may be, whatever CPU it was last on: it is placed when it wakes.
fn has_settled(thread: &Thread) -> bool {
    let _preemption = preempt::disable();
    if allowed_cpus(thread).contains(thread.cpu()) || thread.state() != RunState::Running {
        return true;
    }
    if thread.on_cpu.load(Ordering::SeqCst) {
        request(thread.cpu(), REQUEST_RESCHEDULE);
    }
    false
}

fn cpu_now() -> CpuId {
    let _preemption = preempt::disable();
    cpu::current()
}

/// If the thread waits in the queue of a CPU that it may not use, or while another one that it may use idles, puts it into
/// another queue.
fn take_waiting(thread: &Thread) {
    let _preemption = preempt::disable();
    let taken = with_queue_of(thread, |cpu, queue| {
        let allowed = allowed_cpus(thread);
        let better = |home| !allowed.contains(home) || !idle_of(allowed).is_empty();
        if thread.entity.is_queued() && better(thread.cpu()) && thread.state.begin_move() {
            queue.deactivate_waiting(thread);
            cpu.publish(queue);
            return true;
        }
        false
    });
    if taken {
        enqueue(thread, Activation::Moved, false);
    }
}

/// Changes a thread's policy, nice value or what is lent to it, with its queue's books kept right. One that waits and has become real-time, or more
/// so, goes to a CPU that runs something less urgent, if it must wait where it is.
pub(crate) fn change_entity(thread: &Thread, change: impl FnOnce(&Entity)) {
    let _preemption = preempt::disable();
    let leaves = with_queue_of(thread, |cpu, queue| {
        queue.update_current(time::now_ns());
        let before = thread.entity.policy();
        let runs = core::ptr::eq(queue.current(), thread);
        if runs {
            queue.deactivate_current();
            change(&thread.entity);
            queue.readmit_current(before);
        } else if thread.entity.is_queued() {
            queue.deactivate_waiting(thread);
            change(&thread.entity);
            queue.readmit_waiting(thread, before);
        } else {
            change(&thread.entity);
        }
        let policy = thread.entity.policy();
        let leaves = policy.is_realtime()
            && thread.entity.is_queued()
            && queue.rank() >= crate::policy::rank(policy)
            && less_urgent(policy, allowed_cpus(thread)).is_some()
            && thread.state.begin_move();
        if leaves {
            queue.deactivate_waiting(thread);
        }
        cpu.publish(queue);
        if !queue.is_idle() {
            request(thread.cpu(), REQUEST_RESCHEDULE);
        }
        leaves
    });
    if leaves {
        enqueue(thread, Activation::Moved, false);
    }
}
