//! Back pressure: who makes garbage faster than grace periods end is slowed, so that the memory that waits is bounded.
//!
//! A CPU is *overloaded* while more than twice `rcu.qhimark` callbacks wait on it, or more than its share of memory ([`set_bytes_limit`]); until
//! half of that is left. [`pace`] is called wherever something that will be freed by RCU is made, if the
//! caller may sleep there: on an overloaded CPU it waits, urging the grace period on, until the CPU is no longer overloaded. So a
//! thread can add to the backlog only what it made before. When memory is short all the same, reclaim calls
//! [`relieve`] first.
//!
//! Who must not wait: whoever runs callbacks, or frees memory. The scheduler knows them ([`set_may_wait_hook`]).

use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use machine::cpu::{self, AtomicCpuSet, CpuId, CpuSet};
use machine::{interrupt, preempt};

use super::grace_period::{self, Urgency};
use super::{parameters, queue};
use crate::{CachePadded, PerCpu, per_cpu};

/// The overloaded CPUs. A CPU's member is changed by itself only; hardly ever written.
static OVERLOADED: CachePadded<AtomicCpuSet> = CachePadded::new(AtomicCpuSet::new(CpuSet::EMPTY));
/// Bytes that may wait on a CPU.
static BYTES_LIMIT: AtomicU64 = AtomicU64::new(16 << 20);
/// How often somebody waited on each CPU. Written by its threads.
static WAITS: PerCpu<AtomicU64> = per_cpu!(AtomicU64::new(0));
/// A `fn() -> bool`, null while nobody has registered one.
static MAY_WAIT_HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets how many bytes may wait on a CPU before it counts as overloaded.
pub fn set_bytes_limit(bytes: u64) {
    BYTES_LIMIT.store(bytes, Ordering::Relaxed);
}

/// How many bytes may wait on a CPU.
pub fn bytes_limit() -> u64 {
    BYTES_LIMIT.load(Ordering::Relaxed)
}

/// Registers what tells whether the running thread may wait for grace periods: not if they wait for it. Without, nobody waits.
pub fn set_may_wait_hook(hook: fn() -> bool) {
    MAY_WAIT_HOOK.store(hook as *mut (), Ordering::Release);
}

fn may_wait() -> bool {
    if preempt::count() != 0 || interrupt::in_interrupt() || !interrupt::are_enabled() {
        return false;
    }
    let hook = MAY_WAIT_HOOK.load(Ordering::Acquire);
    // SAFETY: a non-null pointer was stored from a `fn() -> bool` in `set_may_wait_hook`.
    !hook.is_null() && unsafe { core::mem::transmute::<*mut (), fn() -> bool>(hook)() }
}

fn is_too_much(waiting: u64, bytes: u64) -> bool {
    waiting > 2 * parameters::high_mark() || bytes > bytes_limit()
}

/// So much waits on this CPU, which is flooded. The caller cannot migrate.
pub(super) fn note(this: CpuId, waiting: u64, bytes: u64) {
    if is_too_much(waiting, bytes) && !OVERLOADED.contains(this, Ordering::Relaxed) {
        OVERLOADED.insert(this, Ordering::Relaxed);
    }
}

/// Only so much waits on this CPU any more. Returns whether it is overloaded all the same. The caller cannot migrate.
pub(super) fn relent(this: CpuId, waiting: u64, bytes: u64) -> bool {
    let overloaded = is_overloaded(this);
    if overloaded && !is_too_much(2 * waiting, 2 * bytes) {
        OVERLOADED.remove(this, Ordering::Relaxed);
        return false;
    }
    overloaded
}

/// Whether who makes garbage on this CPU is slowed down.
pub(super) fn is_overloaded(this: CpuId) -> bool {
    OVERLOADED.contains(this, Ordering::Relaxed)
}

/// Waits until this CPU is not overloaded, if the caller may sleep. One load when no CPU is.
#[inline(always)]
pub fn pace() {
    if !OVERLOADED.load(Ordering::Relaxed).is_empty() {
        slow_down();
    }
}

#[cold]
#[inline(never)]
fn slow_down() {
    let this = cpu::current();
    if OVERLOADED.contains(this, Ordering::Relaxed) && may_wait() {
        WAITS.of(this).fetch_add(1, Ordering::Relaxed);
        grace_period::wait(Urgency::Hurry, &|| !OVERLOADED.contains(this, Ordering::Relaxed));
    }
}

/// Frees what waits for grace periods, on all CPUs, because memory is short; returns how many callbacks and objects that were. Nothing if the caller
/// may not wait for them.
pub fn relieve() -> u64 {
    if parameters::is_protected() && may_wait() { queue::barrier_expedited() } else { 0 }
}

/// How often somebody had to wait on a CPU.
pub(super) fn waits(cpu: CpuId) -> u64 {
    WAITS.of(cpu).load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_overloaded_until_half_of_it_is_gone() {
        let _section = preempt::disable();
        let this = cpu::current();
        let most = 2 * parameters::high_mark();
        note(this, most, 0);
        assert!(!is_overloaded(this));
        note(this, most + 1, 0);
        assert!(is_overloaded(this));
        assert!(relent(this, most / 2 + 1, 0) && is_overloaded(this));
        assert!(!relent(this, most / 2, 0) && !is_overloaded(this));
        note(this, 1, bytes_limit() + 1);
        assert!(is_overloaded(this));
        assert!(!relent(this, 0, 0));
    }
}
