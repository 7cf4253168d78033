//! Moving threads between CPUs, besides where they wake up.
//!
//! - A CPU that is about to idle *pulls* one waiting thread from the CPU with most.
//! - A CPU with a tick (two or more threads) *pushes* one waiting thread to a CPU that has at least two fewer. CPUs with
//!   one thread or none have no tick, and need none: there is nothing to take from them.
//! - A change of affinity moves the thread at once: a waiting one is taken out of its queue, a running one is made to leave.
//!
//! Two run-queue locks at a time: the second one is only ever *tried*, so there is no order to keep and nothing can deadlock.

use core::sync::atomic::Ordering;

use machine::cpu::{self, CpuId};
use machine::{preempt, time};

use crate::WaitQueue;
use crate::cpu::{Cpu, IDLE, REQUEST_RESCHEDULE, request};
use crate::placement::{allowed_cpus, enqueue};
use crate::run_queue::{Activation, Entity, RunQueue};
use crate::state::RunState;
use crate::thread::{Thread, current};

/// Threads waiting for others to leave CPUs that they may no longer use.
static MOVES: WaitQueue = WaitQueue::new();

/// A thread has left a CPU because of its affinity.
pub(crate) fn moved() {
    MOVES.wake_all();
}

/// Takes a waiting thread from the CPU with most threads into this CPU's queue, whose lock the caller holds.
pub(crate) fn pull_when_idle(queue: &mut RunQueue) -> bool {
    let this = cpu::current();
    let running = |cpu: &CpuId| Cpu::of(*cpu).running.load(Ordering::Relaxed);
    let busiest = cpu::online().iter().filter(|&cpu| cpu != this).max_by_key(running);
    let Some(busiest) = busiest.filter(|cpu| running(cpu) > 1) else { return false };
    let source = Cpu::of(busiest);
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

/// Gives a waiting thread of this CPU's queue, whose lock the caller holds, to a CPU that has at least two fewer.
pub(crate) fn push_excess(queue: &mut RunQueue) {
    let this = cpu::current();
    let running = |cpu: &CpuId| Cpu::of(*cpu).running.load(Ordering::Relaxed);
    let Some(least) = cpu::online().iter().filter(|&cpu| cpu != this).min_by_key(running) else { return };
    if running(&least) + 2 > queue.count() {
        return;
    }
    let Some(thread) = queue.find_movable(|thread| allowed_cpus(thread).contains(least)) else { return };
    let target = Cpu::of(least);
    let Some(mut other) = target.queue.try_lock() else { return };
    // SAFETY: a thread in a queue is alive while the queue is locked.
    let thread = unsafe { &*thread };
    queue.deactivate_waiting(thread);
    thread.set_cpu(least);
    other.update_current(time::now_ns());
    other.activate(thread, Activation::Moved);
    target.publish(&other);
    drop(other);
    IDLE.remove(least, Ordering::Relaxed);
    // It also starts its slice: it has somebody waiting now.
    request(least, REQUEST_RESCHEDULE);
}

/// Locks the queue that the thread belongs to and calls `change` with it.
fn with_queue_of<R>(thread: &Thread, change: impl FnOnce(&Cpu, &mut RunQueue) -> R) -> R {
    loop {
        let home = thread.cpu();
        let cpu = Cpu::of(home);
        let mut queue = cpu.queue.lock();
        if thread.cpu() == home {
            return change(cpu, &mut queue);
        }
    }
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

/// If the thread waits in the queue of a CPU that it may not use, puts it into another one.
fn take_waiting(thread: &Thread) {
    let _preemption = preempt::disable();
    let taken = with_queue_of(thread, |cpu, queue| {
        let misplaced = thread.entity.is_queued() && !allowed_cpus(thread).contains(thread.cpu());
        if misplaced && thread.state.begin_move() {
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

/// Changes a thread's policy or nice value with its queue's books kept right.
pub(crate) fn change_entity(thread: &Thread, change: impl FnOnce(&Entity)) {
    let _preemption = preempt::disable();
    with_queue_of(thread, |cpu, queue| {
        queue.update_current(time::now_ns());
        let runs = core::ptr::eq(queue.current(), thread);
        if runs {
            queue.deactivate_current();
            change(&thread.entity);
            queue.readmit_current();
        } else if thread.entity.is_queued() {
            queue.deactivate_waiting(thread);
            change(&thread.entity);
            queue.activate(thread, Activation::Moved);
        } else {
            change(&thread.entity);
        }
        cpu.publish(queue);
        if !queue.is_idle() {
            request(thread.cpu(), REQUEST_RESCHEDULE);
        }
    });
}
