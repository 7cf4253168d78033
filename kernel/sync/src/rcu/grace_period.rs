//! Grace periods: the time until every CPU that may be inside a read section has left it.
//!
//! Numbers: grace period n is running while STARTED = n > COMPLETED = n − 1, and over when COMPLETED ≥ n.
//! WANTED is the highest number anybody waits for.
//!
//! Transitions (specs/scalability.md §L50):
//! - idle → running: [`start`], when WANTED > COMPLETED: STARTED += 1 and NEED = the online CPUs that
//!   are not idle, sampled after a full barrier.
//! - a CPU reports: [`quiescent`] clears its bit in NEED at its first quiescent state.
//! - running → idle: whoever clears the last bit of NEED sets COMPLETED, and starts the next grace
//!   period if one is wanted.
//!
//! CPUs that stay silent are [`force`]d: idle ones are reported on their behalf, all others get a
//! reschedule interrupt, whose handler reports when it finds preemption enabled (that covers user
//! mode, too). So a grace period ends although other CPUs idle or run user code without ticks.
//!
//! Locking: START serialises starts; everything else is atomic. `tests/models.rs` has the protocol as a model.

use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering, fence};

use machine::cpu::{self, CpuId, CpuSet};
use machine::ipi::{self, Ipi};
use machine::{interrupt, preempt};

use crate::{IrqSpinLock, PerCpu, per_cpu};

static STARTED: AtomicU64 = AtomicU64::new(0);
static COMPLETED: AtomicU64 = AtomicU64::new(0);
static WANTED: AtomicU64 = AtomicU64::new(0);
/// CPUs that owe a quiescent state to the running grace period. Set in `start`, cleared bit by bit.
static NEED: AtomicU64 = AtomicU64::new(0);
static START: IrqSpinLock<()> = IrqSpinLock::new(());
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

/// Number of the last completed grace period.
pub fn completed() -> u64 {
    COMPLETED.load(Ordering::Acquire)
}

/// Asks for a grace period that starts from now on; returns its number.
pub(super) fn request() -> u64 {
    // What the caller unpublished is unpublished before the number is taken.
    fence(Ordering::SeqCst);
    let number = STARTED.load(Ordering::SeqCst) + 1;
    WANTED.fetch_max(number, Ordering::SeqCst);
    start();
    number
}

/// Starts the next grace period if one is wanted and none is running.
fn start() {
    loop {
        let guard = START.lock();
        let started = STARTED.load(Ordering::SeqCst);
        let running = COMPLETED.load(Ordering::SeqCst) != started;
        if running || WANTED.load(Ordering::SeqCst) <= started {
            return;
        }
        STARTED.store(started + 1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let mut need = all_cpus();
        for cpu in need.iter() {
            if is_quiescent(cpu) {
                need.remove(cpu);
            }
        }
        NEED.store(need.bits(), Ordering::SeqCst);
        if !need.is_empty() {
            return;
        }
        drop(guard);
        complete();
    }
}

fn complete() {
    let started = STARTED.load(Ordering::SeqCst);
    debug_assert_eq!(COMPLETED.load(Ordering::SeqCst) + 1, started, "one grace period at a time");
    COMPLETED.store(started, Ordering::SeqCst);
}

/// Whether the CPU can be seen from here to be outside of any read section.
fn is_quiescent(cpu: CpuId) -> bool {
    #[cfg(not(target_os = "none"))]
    if machine::hosted::is_preemptible(cpu) {
        return true;
    }
    IDLE.of(cpu).load(Ordering::SeqCst)
}

/// The CPUs that may be inside a read section.
pub(super) fn all_cpus() -> CpuSet {
    #[cfg(not(target_os = "none"))]
    return machine::hosted::cpus_in_use();
    #[cfg(target_os = "none")]
    cpu::online()
}

/// Reports that this CPU is outside of any read section. Cheap when no grace period needs it.
///
/// The caller cannot migrate, and what it read under RCU before is of no concern any more.
#[inline(always)]
pub fn quiescent() {
    let this = CpuSet::only(cpu::current()).bits();
    if NEED.load(Ordering::Relaxed) & this != 0 {
        report(this);
    }
}

#[cold]
fn report(cpus: u64) {
    // Reads of the section before happen before the grace period's end.
    fence(Ordering::SeqCst);
    let before = NEED.fetch_and(!cpus, Ordering::SeqCst);
    if before & cpus != 0 && before & !cpus == 0 {
        complete();
        start();
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
        // Pairs with the fences in `request` and `start`: whoever still saw us idle has published what our later reads
        // see.
        fence(Ordering::SeqCst);
    }
}

/// Hurries the running grace period: reports idle CPUs on their behalf and interrupts the others.
pub fn force() {
    let _preemption = preempt::disable();
    fence(Ordering::SeqCst);
    let this = cpu::current();
    let mut quiet = 0;
    for cpu in CpuSet::from_bits(NEED.load(Ordering::SeqCst)).iter() {
        if is_quiescent(cpu) {
            quiet |= CpuSet::only(cpu).bits();
        } else if cpu != this {
            ipi::send(cpu, Ipi::Reschedule);
        }
    }
    if quiet != 0 {
        report(quiet);
    }
}

/// Waits until every read section that is running now has ended. May sleep.
pub fn synchronize() {
    let number = request();
    wait(&|| completed() >= number);
}

/// Waits for something that grace periods bring about, and hurries them. May sleep.
pub(super) fn wait(reached: &dyn Fn() -> bool) {
    assert!(preempt::count() == 0 && !interrupt::in_interrupt(), "waiting for readers may sleep");
    let done = || {
        let guard = preempt::disable();
        // The count is ours alone: this thread is in no read section.
        if preempt::count() == 1 {
            quiescent();
        }
        force();
        drop(guard);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    #[test]
    fn grace_period_ends_without_readers() {
        let before = completed();
        synchronize();
        assert!(completed() > before);
    }

    #[test]
    fn grace_period_waits_for_reader() {
        let (entered, has_entered) = channel();
        let (leave, may_leave) = channel::<()>();
        let left = Arc::new(AtomicBool::new(false));
        let reader = {
            let left = left.clone();
            std::thread::spawn(move || {
                let guard = super::super::read();
                entered.send(()).unwrap();
                may_leave.recv().unwrap();
                left.store(true, Ordering::SeqCst);
                drop(guard);
            })
        };
        has_entered.recv().unwrap();
        let number = request();
        for _ in 0..100 {
            force();
            assert!(completed() < number, "the reader is still inside");
        }
        leave.send(()).unwrap();
        synchronize();
        assert!(left.load(Ordering::SeqCst));
        reader.join().unwrap();
    }
}
