//! Preemption control of the current processor.
//!
//! Each processor has a count of reasons why its current thread may not be switched away from, and a flag
//! saying that the scheduler wants to switch. Both live in one per-processor word: the count in the low 31 bits,
//! the flag *inverted* in bit 31, so that the decrement that ends the last reason reaches zero exactly when a
//! switch is wanted, and the common path of [`PreemptGuard`]'s drop is one instruction and one branch.
//!
//! The count belongs to the thread that runs: a guard taken on one processor is dropped on the same one, because
//! the thread can't migrate in between. Interrupt handlers leave the count as they found it. The flag is written
//! only on its own processor; another processor asks by [`crate::ipi::Ipi::Reschedule`].

use crate::hook::Hook;
use crate::{backend, interrupt};
use core::marker::PhantomData;

static SCHEDULE: Hook = Hook::new();

/// Preemption is disabled on the current processor while this lives.
#[must_use]
pub struct PreemptGuard {
    /// The guard belongs to the processor that made it.
    not_send: PhantomData<*mut ()>,
}

/// Disables preemption until the guard is dropped. Nests.
#[inline(always)]
pub fn disable() -> PreemptGuard {
    backend::preempt::increment();
    PreemptGuard { not_send: PhantomData }
}

impl Drop for PreemptGuard {
    #[inline(always)]
    fn drop(&mut self) {
        if backend::preempt::decrement() {
            reschedule_if_possible();
        }
    }
}

/// How many guards are alive on this processor (for its current thread).
#[inline(always)]
pub fn count() -> u32 {
    backend::preempt::count()
}

/// Whether the scheduler wants this processor to switch threads.
#[inline(always)]
pub fn need_resched() -> bool {
    backend::preempt::resched_wanted()
}

/// Sets or clears the wish to switch threads on this processor.
#[inline(always)]
pub fn set_need_resched(wanted: bool) {
    backend::preempt::set_resched_wanted(wanted);
}

/// Sets the count outright; the scheduler uses it when it switches to a thread that was stopped with another
/// count. The wish to switch is left as it is.
#[inline(always)]
pub fn set_count(count: u32) {
    backend::preempt::set_count(count);
}

/// A sleeping lock is held by the current thread while this lives: part of such a lock's guard. A thread that holds one may be
/// switched away from, but it must not end; who would end it asks [`locks_held`].
#[derive(Debug)]
pub struct HeldLock {
    /// The lock belongs to the thread that took it.
    not_send: PhantomData<*mut ()>,
}

impl HeldLock {
    /// Notes that the current thread has taken a sleeping lock.
    #[inline(always)]
    pub fn note() -> HeldLock {
        backend::preempt::note_lock();
        HeldLock { not_send: PhantomData }
    }
}

impl Drop for HeldLock {
    #[inline(always)]
    fn drop(&mut self) {
        backend::preempt::forget_lock();
    }
}

/// How many sleeping locks the current thread holds. Always 0 on the hosted machine.
#[inline(always)]
pub fn locks_held() -> u32 {
    backend::preempt::luggage() & u32::from(u16::MAX)
}

/// What goes along with the current thread from processor to processor: the number of sleeping locks that it holds, and in the upper
/// half [`payer`].
#[inline(always)]
pub fn luggage() -> u32 {
    backend::preempt::luggage()
}

/// Sets all of it; the scheduler does so when it switches to a thread that was stopped with that.
#[inline(always)]
pub fn set_luggage(word: u32) {
    backend::preempt::set_luggage(word);
}

/// The number of who pays for the memory that the current thread makes use of; 0 for nobody. What it means is told in crate `memory`.
#[inline(always)]
pub fn payer() -> u16 {
    backend::preempt::payer()
}

/// Sets that number.
#[inline(always)]
pub fn set_payer(number: u16) {
    backend::preempt::set_payer(number);
}

/// Sets what is called when the last guard ends while a switch is wanted and interrupts are enabled, and at the end
/// of an interrupt of preemptible kernel code (then with interrupts disabled).
pub fn set_schedule_hook(hook: fn()) {
    SCHEDULE.set(hook);
}

/// The end of the last guard with a switch wanted. In interrupt context or with interrupts disabled the switch
/// happens later, on the way out.
#[cold]
#[inline(never)]
fn reschedule_if_possible() {
    if interrupt::are_enabled() && !interrupt::in_interrupt() {
        SCHEDULE.call();
    }
}

/// Runs the scheduler at the end of an interrupt that hit preemptible kernel code; on the interrupted thread's own
/// stack, interrupts disabled before and after.
#[cfg(target_os = "none")]
pub(crate) fn schedule_from_interrupt() {
    SCHEDULE.call();
    interrupt::disable_unguarded();
}
