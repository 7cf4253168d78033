//! What a CPU does when no thread is runnable.
//!
//! The idle thread halts until an interrupt. It announces itself in the idle set first, so that wakers come here, and
//! tells RCU that it reads nothing. There is no tick: the CPU wakes for its next timer or for what others send. An
//! interrupt that makes a thread runnable switches to it at once from its end; [`leave`] undoes the announcements.

use core::sync::atomic::Ordering;

use machine::{cpu, interrupt, preempt};
use sync::rcu;

use crate::balance;
use crate::cpu::{Cpu, IDLE};
use crate::run_queue::NO_SLICE_END;

/// The body of each CPU's idle thread.
pub(crate) fn run() -> ! {
    loop {
        prepare_memory();
        interrupt::disable_unguarded();
        // SeqCst: the announcement is before the look at the queue; a waker enqueues before it looks for idle CPUs.
        IDLE.insert(cpu::current(), Ordering::SeqCst);
        rcu::idle_enter();
        let cpu = Cpu::this();
        // A slice of the idle thread ends only when threads that could not be backed are to be tried again.
        let retries = cpu.slice_end_ns.load(Ordering::Relaxed) != NO_SLICE_END;
        let busy = || cpu.running.load(Ordering::SeqCst) != 0 && !retries || preempt::need_resched();
        if !busy() && (retries || !balance::pull_last()) && !busy() {
            interrupt::enable_and_halt();
        }
        interrupt::disable_unguarded();
        leave();
        interrupt::enable();
        crate::dispatch::schedule();
    }
}

/// This CPU is no longer idle. Interrupts are off.
pub(crate) fn leave() {
    rcu::idle_exit();
    IDLE.remove(cpu::current(), Ordering::Relaxed);
}

/// Uses an idle moment to have frames at hand that are zeroed, and those that stacks grow into.
fn prepare_memory() {
    memory::kstack::refill();
    // The idle thread cannot migrate.
    while Cpu::of(cpu::current()).running.load(Ordering::Relaxed) == 0
        && !preempt::need_resched()
        && memory::frame::zero_ahead()
    {}
}
