//! Grace periods that do not end: who holds them up.
//!
//! Each CPU looks at the running grace periods when its clock interrupts it ([`stall_is_due`]). One that is older than
//! `rcu.stall_timeout` is reported, and again each time that it has become as much older: by whoever sees it first, outside of all
//! sections, so not by the CPU that holds it up, and whether anybody has callbacks or waits in a thread. A thread that waits does so by the
//! clock. While no CPU's clock interrupts, nobody waits.
//!
//! The reporter prints which CPUs have not been quiescent; each of them prints its own
//! backtrace when the interrupt reaches it, where [`wants_own_stack`] tells it to. One that has not done so when the next report is due keeps
//! interrupts off: the reporter asks it by a non-maskable one.

use core::sync::atomic::Ordering;

use machine::cpu::{self, AtomicCpuSet, CpuSet};

use super::flavour::Kind;
use super::grace_period::domain;

/// A grace period that has lasted too long.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// Its flavour.
    pub kind: Kind,
    /// Its number.
    pub number: u64,
    /// How long it has lasted.
    pub age_ns: u64,
    /// The CPUs that hold it up.
    pub holdouts: CpuSet,
    /// Those of them that were asked for their backtraces at an earlier report, and take no interrupts.
    pub deaf: CpuSet,
}

/// CPUs that shall print where they are.
static WANTED: AtomicCpuSet = AtomicCpuSet::new(CpuSet::EMPTY);

/// Whether a grace period is to be reported. Cheap: for every interrupt of a clock.
#[inline]
pub fn stall_is_due(now_ns: u64) -> bool {
    Kind::ALL.iter().any(|&kind| domain(kind).stall_is_due(now_ns))
}

/// The grace period of that flavour, if it is to be reported now, by the caller. Its holdouts, without the caller's CPU, are asked for their
/// backtraces with their next interrupt; [`super::force`] sends them one.
pub fn find_stall(kind: Kind, now_ns: u64) -> Option<Stall> {
    let domain = domain(kind);
    let age_ns = domain.claim_stall(now_ns)?;
    let holdouts = domain.owing();
    let deaf = holdouts.intersection(WANTED.load(Ordering::Relaxed));
    for cpu in holdouts.difference(CpuSet::only(cpu::current())).iter() {
        WANTED.insert(cpu, Ordering::Relaxed);
    }
    Some(Stall { kind, number: domain.numbers()[0], age_ns, holdouts, deaf })
}

/// Whether this CPU was asked for its backtrace; asked once each time. For the handler of the reschedule interrupt.
#[inline]
pub fn wants_own_stack() -> bool {
    let this = cpu::current();
    WANTED.contains(this, Ordering::Relaxed) && WANTED.remove(this, Ordering::Relaxed)
}
