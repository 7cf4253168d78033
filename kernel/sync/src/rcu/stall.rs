//! Grace periods that do not end: who holds them up.
//!
//! The driver of callbacks looks at the running grace periods. One that is older than `rcu.stall_timeout` is reported, and again
//! each time that it has become as much older. The reporter prints which CPUs have not been quiescent; each of them prints its own
//! backtrace when the interrupt reaches it, where [`wants_own_stack`] tells it to.

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
}

/// CPUs that shall print where they are.
static WANTED: AtomicCpuSet = AtomicCpuSet::new(CpuSet::EMPTY);

/// The grace period of that flavour, if it is to be reported now, by the caller. Its holdouts, without the caller's CPU, are asked for their
/// backtraces with their next interrupt; [`super::force`] sends them one.
pub fn find_stall(kind: Kind, now_ns: u64) -> Option<Stall> {
    let domain = domain(kind);
    let age_ns = domain.claim_stall(now_ns)?;
    let holdouts = domain.owing();
    for cpu in holdouts.difference(CpuSet::only(cpu::current())).iter() {
        WANTED.insert(cpu, Ordering::Relaxed);
    }
    Some(Stall { kind, number: domain.numbers()[0], age_ns, holdouts })
}

/// Whether this CPU was asked for its backtrace; asked once each time. For the handler of the reschedule interrupt.
#[inline]
pub fn wants_own_stack() -> bool {
    let this = cpu::current();
    WANTED.contains(this, Ordering::Relaxed) && WANTED.remove(this, Ordering::Relaxed)
}
