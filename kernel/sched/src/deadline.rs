//! The one deadline of each CPU: the earlier of its next timer and the end of the running thread's slice.
//!
//! The hardware is programmed only when the deadline moves forward in time (towards now); a deadline that is no longer
//! needed fires once in vain and is replaced then. Reprogramming costs a VM exit, switching threads does not.
//!
//! Invariant: `ARMED` ≤ min(first timer, slice end), or the interrupt is being handled.

use core::sync::atomic::Ordering;

use machine::cpu::CpuId;
use machine::{preempt, time};
use sync::{PerCpu, per_cpu, rcu};

use crate::cpu::Cpu;
use crate::next_time::{NEVER_NS, NextTime};
use crate::{balance, dispatch, rcu_driver, starvation, timer};

/// What the hardware is programmed for. Written by the CPU itself with interrupts off.
static ARMED: PerCpu<NextTime> = per_cpu!(NextTime::never());

/// Programs the deadline if an earlier one is needed. Interrupts are off.
#[inline(always)]
pub(crate) fn arm() {
    let next = Cpu::this().slice_end_ns.load(Ordering::Relaxed).min(timer::first_expiry());
    let armed = ARMED.this();
    if next < armed.get() {
        armed.set(next);
        time::set_deadline_ns(next);
    }
}

/// What the hardware of a CPU is programmed for, if for anything.
pub(crate) fn armed_ns(of: CpuId) -> Option<u64> {
    Some(ARMED.of(of).get()).filter(|&armed| armed != NEVER_NS)
}

/// The CPU starts: nothing is programmed.
pub(crate) fn reset() {
    ARMED.this().set(NEVER_NS);
}

/// The handler of the deadline interrupt.
pub(crate) fn interrupt() {
    rcu::idle_exit();
    ARMED.this().set(NEVER_NS);
    let now_ns = time::now_ns();
    timer::expire(now_ns);
    rcu_driver::look_for_stalls(now_ns);
    starvation::look(now_ns);
    end_slice(now_ns);
    dispatch::note_quiescence();
    arm();
}

fn end_slice(now_ns: u64) {
    let cpu = Cpu::this();
    if cpu.slice_end_ns.load(Ordering::Relaxed) > now_ns {
        return;
    }
    let mut queue = cpu.queue.lock();
    queue.update_current(now_ns);
    if queue.slice_end_ns() <= now_ns {
        if queue.balance_is_due(now_ns) {
            balance::push_excess(&mut queue);
        }
        if queue.end_slice() {
            preempt::set_need_resched(true);
        }
        queue.start_slice(now_ns);
    }
    cpu.publish(&queue);
}
