//! In which context a lock is taken: by a thread, in a softirq, or in a hard interrupt.
//!
//! A softirq may run at the end of an interrupt, while that is still counted as one; so who runs softirqs says so.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::interrupt;

use crate::{PerCpu, per_cpu};

/// 1 + the depth of interrupts at which this CPU's softirqs run now; 0 while they don't.
static SOFTIRQ: PerCpu<AtomicU32> = per_cpu!(AtomicU32::new(0));

/// Where code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Context {
    Thread,
    Softirq,
    Interrupt,
}

impl Context {
    /// That of the caller, who cannot migrate.
    pub(super) fn current() -> Self {
        let depth = interrupt::nesting();
        let softirq = SOFTIRQ.of(machine::cpu::current()).load(Ordering::Relaxed);
        match softirq {
            0 if depth == 0 => Self::Thread,
            0 => Self::Interrupt,
            _ if depth + 1 == softirq => Self::Softirq,
            _ => Self::Interrupt,
        }
    }

    /// Softirqs begin to run on this CPU.
    pub(super) fn enter_softirq() {
        SOFTIRQ.of(machine::cpu::current()).store(interrupt::nesting() + 1, Ordering::Relaxed);
    }

    /// They have run.
    pub(super) fn leave_softirq() {
        SOFTIRQ.of(machine::cpu::current()).store(0, Ordering::Relaxed);
    }
}
