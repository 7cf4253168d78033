//! The switch from one thread to the next.
//!
//! [`schedule`] is the voluntary switch: a thread that has announced a sleep (see `state`) leaves its run queue unless it
//! was woken meanwhile. [`preempt_hook`] is the involuntary one: from the end of the last atomic section, or from the end
//! of an interrupt of preemptible code, when the CPU was asked to reschedule.
//!
//! A switch, on one CPU: preemption off, interrupts off → lock the run queue → account → choose → change address space and user
//! registers → change stacks → *on the new stack*: mark the old thread as no longer executing, unlock. The lock is thus
//! taken by one thread and released by the next, and a waker that wants to put the old thread on this same queue
//! waits until its state is saved. Every switched-out thread has preemption count 1, the dispatcher's own guard.
//!
//! Cost without contention: one run-queue lock, one clock reading, the callee-saved registers; a tree operation for each of the
//! two threads only if it stays or was queued. No allocation, no reference count.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use machine::{context, cpu, interrupt, preempt, time};
use sync::rcu;

use sync::arc_table::OwnerDied;

use crate::cpu::{Cpu, REQUEST_ARM, REQUEST_RESCHEDULE};
use crate::hand_over::HandOver;
use crate::run_queue::{Activation, NO_SLICE_END, RunQueue};
use crate::thread::{Thread, ThreadRef, current};
use crate::{balance, deadline, idle, placement, softirq, stack, statistics};

/// Runs another thread if there is one that should. The current thread stays runnable unless it has announced that it
/// sleeps; wait functions do that, use them instead.
pub fn schedule() {
    ensure_may_sleep();
    dispatch(Reason::Voluntary);
    if preempt::need_resched() {
        preempt_hook();
    }
}

/// Also in the release: who slept in an atomic section would hand its count to whoever runs next, and what that one does, or how it ends, would name the wrong
/// one. What a read section protects would be freed meanwhile.
#[inline(always)]
fn ensure_may_sleep() {
    assert!(preempt::count() == 0, "a thread in an atomic section must not sleep");
    assert!(!interrupt::in_interrupt(), "interrupt handlers must not sleep");
}

/// Lets the other runnable threads of this CPU go first.
pub fn yield_now() {
    crate::start::ensure_started();
    {
        let _preemption = preempt::disable();
        let _interrupts = interrupt::disable();
        let mut queue = Cpu::this().queue.lock();
        queue.update_current(time::now_ns());
        queue.yield_current();
    }
    dispatch(Reason::Preempted);
    if preempt::need_resched() {
        preempt_hook();
    }
}

/// Runs another thread if there is one that should; the current one stays runnable.
pub(crate) fn reschedule() {
    dispatch(Reason::Preempted);
}

/// Called when preemption becomes possible while a switch or a softirq is wanted; see [`preempt::set_schedule_hook`].
pub(crate) fn preempt_hook() {
    crate::start::ensure_started();
    softirq::run_deferred();
    while preempt::need_resched() {
        dispatch(Reason::Preempted);
    }
}

/// What another CPU's request or its own slice end makes a CPU do; the handler of the reschedule interrupt.
pub(crate) fn reschedule_interrupt() {
    rcu::idle_exit();
    let requests = Cpu::this().requests.swap(0, Ordering::Acquire);
    if requests & REQUEST_RESCHEDULE != 0 {
        preempt::set_need_resched(true);
    }
    if requests & REQUEST_ARM != 0 {
        deadline::arm();
    }
    crate::rcu_driver::show_stack_if_wanted();
    note_quiescence();
}

/// An interrupt that finds preemption enabled has interrupted no read section.
pub(crate) fn note_quiescence() {
    if preempt::count() == 0 {
        rcu::quiescent();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reason {
    Voluntary,
    Preempted,
    /// It cannot go on before its stack can grow.
    Parked,
}

fn dispatch(reason: Reason) {
    let preemption = preempt::disable();
    let interrupts = interrupt::disable();
    let cpu = Cpu::this();
    cpu.queue.lock_unguarded();
    // SAFETY: the lock is held, and released in `finish_switch` after the last use.
    let queue = unsafe { &mut *cpu.queue.as_ptr() };
    let now_ns = account(queue);
    // SAFETY: the running thread is alive.
    let previous = unsafe { &*queue.current() };
    let stays = keep_previous(cpu, queue, previous, reason, now_ns);
    let next = choose(queue, stays, reason == Reason::Parked, now_ns);
    if ptr::eq(next, previous) {
        if queue.slice_end_ns() <= now_ns || queue.slice_end_ns() == NO_SLICE_END {
            queue.start_slice(now_ns);
        }
        cpu.publish(queue);
        cpu.queue.unlock_unguarded();
        deadline::arm();
    } else {
        if stays {
            let preemptions = &previous.entity.preemptions;
            preemptions.store(preemptions.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        switch(cpu, queue, previous, next, now_ns, NO_SLICE_END);
    }
    // In this order: with interrupts off the end of the guard switches nothing; the callers look again.
    drop(preemption);
    drop(interrupts);
}

/// The voluntary switch of a thread that has announced a sleep, to the one that it gives the CPU to: past the run queue, and for
/// what is left of its own turn. Where that cannot be (more urgent threads wait, no memory for the other's stack, it may not run
/// here) the other is woken as usual.
pub(crate) fn hand_over(next: HandOver) {
    ensure_may_sleep();
    let preemption = preempt::disable();
    let interrupts = interrupt::disable();
    // Acquire: pairs with the Release at the end of the thread's last switch.
    let on_its_way = next.thread().on_cpu.load(Ordering::Acquire);
    if on_its_way || !placement::allowed_cpus(next.thread()).contains(cpu::current()) {
        drop((next, interrupts, preemption));
        return schedule();
    }
    let next = next.into_claimed();
    let cpu = Cpu::this();
    cpu.queue.lock_unguarded();
    // SAFETY: the lock is held, and released in `finish_switch` after the last use.
    let queue = unsafe { &mut *cpu.queue.as_ptr() };
    let now_ns = account(queue);
    // SAFETY: the running thread is alive.
    let previous = unsafe { &*queue.current() };
    let slice_end_ns = queue.slice_end_ns();
    let stays = keep_previous(cpu, queue, previous, Reason::Voluntary, now_ns);
    next.enter_cpu(cpu::current());
    next.state.enqueued();
    // SAFETY: this CPU is about to switch to it.
    let admitted = !stays
        && queue.may_run_next(next)
        && stack::admit(unsafe { next.stack() }, cpu::current(), next.frees_memory());
    let chosen = if admitted {
        queue.activate_next(next);
        next
    } else {
        queue.activate(next, Activation::Wakeup);
        choose(queue, stays, false, now_ns)
    };
    if ptr::eq(chosen, previous) {
        cpu.publish(queue);
        cpu.queue.unlock_unguarded();
        deadline::arm();
    } else {
        switch(cpu, queue, previous, chosen, now_ns, if admitted { slice_end_ns } else { NO_SLICE_END });
    }
    drop(preemption);
    drop(interrupts);
    if preempt::need_resched() {
        preempt_hook();
    }
}

/// The beginning of each switch, under the queue's lock: the wish for it is heard, no read section is open, and the time of the
/// thread that runs is accounted. Returns the time now.
#[inline(always)]
fn account(queue: &mut RunQueue) -> u64 {
    preempt::set_need_resched(false);
    rcu::quiescent();
    let now_ns = time::now_ns();
    queue.update_current(now_ns);
    now_ns
}

/// Decides whether the running thread stays runnable here; takes it off the queue's books if not.
#[inline(always)]
fn keep_previous(cpu: &Cpu, queue: &mut RunQueue, previous: &Thread, reason: Reason, now_ns: u64) -> bool {
    if queue.is_idle() {
        return false;
    }
    // A thread that has died is gone however it loses the CPU: an interrupt may come before it gives it up itself.
    if (reason == Reason::Voluntary || previous.state.is_dead())
        && let Some(blocked) = previous.state.block()
    {
        if blocked.uninterruptible {
            cpu.uninterruptible.fetch_add(1, Ordering::Relaxed);
        }
        previous.entity.note_sleep(now_ns);
        queue.deactivate_current();
        return false;
    }
    if !placement::allowed_cpus(previous).contains(cpu::current()) && previous.state.begin_move() {
        queue.deactivate_current();
        return false;
    }
    true
}

/// Chooses the next thread: the best one whose stack this CPU can back. The idle thread is always one. A running thread that
/// is parked waits with the others, and is not chosen.
#[inline(always)]
fn choose(queue: &mut RunQueue, stays: bool, parked: bool, now_ns: u64) -> &'static Thread {
    /// Threads passed over because of their stacks, before the CPU rather idles for a moment.
    const REFUSALS_MAX: usize = 4;
    /// When to look again at those who were passed over.
    const RETRY_NS: u64 = 500_000;
    let mut refused = [ptr::null(); REFUSALS_MAX];
    let mut refusals = 0;
    let mut competes = stays && !parked;
    if stays && parked {
        // SAFETY: the running thread is alive.
        queue.put_back(unsafe { &*queue.current() }, RETRY_NS);
    }
    let chosen = loop {
        if refusals == REFUSALS_MAX {
            break queue.idle();
        }
        let mut next = queue.pick(competes);
        if next.is_none() && refusals == 0 && balance::pull_when_idle(queue) {
            next = queue.pick(false);
        }
        let Some(next) = next else { break queue.idle() };
        // SAFETY: a runnable thread is alive.
        let thread = unsafe { &*next };
        let admitted = match ptr::eq(next, queue.current()) {
            true => !parked,
            // SAFETY: this CPU is about to switch to it.
            false => stack::admit(unsafe { thread.stack() }, cpu::current(), thread.frees_memory()),
        };
        if admitted {
            break next;
        }
        // A current thread that lost against the refused one is in the tree by now.
        competes = competes && !queue.current_is_queued();
        refused[refusals] = next;
        refusals += 1;
    };
    for &thread in &refused[..refusals] {
        // SAFETY: the refused threads are runnable, hence alive.
        queue.put_back(unsafe { &*thread }, RETRY_NS);
    }
    if ptr::eq(chosen, queue.idle()) && !ptr::eq(chosen, queue.current()) {
        // SAFETY: idle threads are never freed.
        let admitted = stack::admit(unsafe { (*chosen).stack() }, cpu::current(), true);
        debug_assert!(admitted, "the idle thread's stack does not grow");
    }
    if refusals > 0 {
        queue.retry_at(now_ns + RETRY_NS);
        // Each refusal asks for memory in a softirq, and so for another look here. That must wait until somebody could do
        // something about it: for the end of the next interrupt, the retry's at the latest.
        preempt::set_need_resched(false);
    }
    // SAFETY: a runnable thread and the idle thread are alive.
    unsafe { &*chosen }
}

/// `slice_end_ns` is where the next thread's turn ends at the latest.
#[inline(always)]
fn switch(
    cpu: &'static Cpu,
    queue: &mut RunQueue,
    previous: &Thread,
    next: &Thread,
    now_ns: u64,
    slice_end_ns: u64,
) {
    debug_assert!(!previous.counts_user_time(), "others' time is not the program's");
    let was_idle = queue.is_idle();
    balance::let_go(queue, previous, next);
    queue.set_current(next, now_ns);
    queue.inherit_slice(slice_end_ns);
    cpu.publish(queue);
    if was_idle {
        idle::leave();
    }
    next.on_cpu.store(true, Ordering::Relaxed);
    next.entity.switches.store(next.entity.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    cpu.switches.store(cpu.switches.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    deadline::arm();
    statistics::sample_load(now_ns);
    next.space.activate_after(&previous.space);
    previous.leave_registers();
    next.enter_registers(cpu);
    previous.luggage.store(preempt::luggage(), Ordering::Relaxed);
    preempt::set_luggage(next.luggage.load(Ordering::Relaxed));
    cpu.previous.store(ptr::from_ref(previous).cast_mut(), Ordering::Relaxed);
    cpu::set_thread_word(ptr::from_ref(next) as usize);
    // SAFETY: interrupts are off; the contexts belong to the thread that runs and to one that runs nowhere (its
    // `on_cpu` was false under this queue's lock); both stacks are alive.
    unsafe { context::switch(previous.context.get(), next.context.get()) };
    finish_switch();
}

/// On the new thread's stack: completes the old thread's way out.
fn finish_switch() {
    let cpu = Cpu::this();
    let previous = cpu.previous.load(Ordering::Relaxed);
    // SAFETY: the thread that was switched away from is alive: if dead, its last reference is dropped below.
    let thread = unsafe { &*previous };
    // SAFETY: this CPU has just switched away from the thread, and its state is saved in the context.
    unsafe { stack::left(thread.stack(), &mut *thread.context.get()) };
    let moving = thread.state.is_moving();
    // Read before the store below, after which whoever reports an abandoned thread may free it.
    let finishes = thread.state.is_dead() && !thread.is_abandoned();
    // Release: pairs with the Acquire in `placement::enqueue`; the context is saved.
    thread.on_cpu.store(false, Ordering::Release);
    cpu.queue.unlock_unguarded();
    sync::classes::thread_switched();
    if moving {
        placement::enqueue(thread, Activation::Moved, false);
        balance::moved();
    }
    if finishes {
        // SAFETY: the thread is dead and was switched away from, which happens once.
        unsafe { Thread::finish(previous) };
    }
}

/// The first code of a new thread: what `dispatch` does after its switch.
pub(crate) fn finish_first_switch() {
    finish_switch();
    preempt::set_count(0);
    interrupt::enable();
    if preempt::need_resched() {
        preempt_hook();
    }
}

/// Ends the running thread. Nothing on its stack is dropped: its body should rather return.
pub fn exit_current() -> ! {
    let thread = current();
    assert!(preempt::count() == 0, "a thread in an atomic section must not end");
    drop(thread.set_address_space(None));
    thread.state.die();
    dispatch(Reason::Voluntary);
    unreachable!("a dead thread is never chosen");
}

/// A [`set_death_hook`] function, null while there is none.
static DEATH_HOOK: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Registers what is told, by a work queue, about a thread that was abandoned, with the proof that it is gone.
pub fn set_death_hook(hook: fn(ThreadRef, &OwnerDied)) {
    DEATH_HOOK.store(hook as *mut (), Ordering::Release);
}

/// Never runs the current thread again (its kernel stack has overflowed, say). Its stack is kept, because
/// wait queues and locks may point into it; the registered hook gets to know from a work queue. May be called with interrupts
/// off and from an exception stack.
pub fn abandon_current() -> ! {
    interrupt::disable_unguarded();
    preempt::set_count(0);
    let thread = current();
    thread.abandon();
    crate::work::queue_abandoned(thread.to_ref());
    thread.state.die();
    dispatch(Reason::Voluntary);
    unreachable!("a dead thread is never chosen");
}

/// Switches away from the current thread, whose stack waits for a frame and whose registers are kept elsewhere. On the
/// page-fault stack, with interrupts off and preemption enabled.
#[cfg(target_os = "none")]
pub(crate) fn leave_parked() -> ! {
    assert!(preempt::count() == 0, "a thread in an atomic section cannot wait");
    dispatch(Reason::Parked);
    unreachable!("a parked thread continues from its registers")
}

/// What a parked thread does first when it has been switched to: completes the switch, as `dispatch` does. On its own
/// stack, with interrupts off before and after.
#[cfg(target_os = "none")]
pub(crate) extern "C" fn finish_parked_switch() {
    finish_switch();
    preempt::set_count(0);
    if preempt::need_resched() {
        preempt_hook();
        interrupt::disable_unguarded();
    }
}

/// Calls the registered death hook.
pub(crate) fn report_death(thread: ThreadRef) {
    let hook = DEATH_HOOK.load(Ordering::Acquire);
    if !hook.is_null() {
        // SAFETY: the thread was abandoned and never runs again; the hook uses the proof for that thread's own tables.
        let died = unsafe { OwnerDied::new() };
        // SAFETY: a non-null pointer was stored from a function of this type in `set_death_hook`.
        unsafe { core::mem::transmute::<*mut (), fn(ThreadRef, &OwnerDied)>(hook)(thread, &died) };
    }
}
