//! Locks, read-copy-update, per-CPU values and message boxes for requests to other CPUs.
//!
//! This layer knows CPUs and interrupts (crate `machine`) and nothing of threads. Everything here
//! busy-waits; what sleeps lives in crate `sched`.
//!
//! # Rules that hold everywhere
//! - A held [`SpinLock`] disables preemption. Softirqs run only while preemption is enabled, so a
//!   plain spin lock may be shared with softirq handlers; only what hard interrupt handlers take has
//!   to be an [`IrqSpinLock`].
//! - No spin lock is held across [`remote::call`], and nobody waits for a lock with interrupts off
//!   unless every holder keeps them off too: the two together make a deadlock impossible.
//! - Locks have [`classes`]; debug builds check that classes are taken in one order, and the rules above.
//! - Guards are `!Send`: a lock is released on the CPU that took it.
//! - Critical sections are short and bounded; with first-come-first-served locks the longest wait is
//!   then (CPUs − 1) × the longest section (specs/scalability.md §J38).
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod arc_table;
pub mod classes;
pub mod clustered;
mod counter;
mod identifiers;
mod irq_spin;
mod local_read;
pub mod message_box;
mod once;
mod padded;
mod per_cpu;
mod queue_lock;
pub mod rcu;
pub mod remote;
mod rw_spin;
mod seqlock;
mod spin;

pub use counter::PerCpuCounter;
pub use identifiers::Identifiers;
pub use irq_spin::{IrqSpinLock, IrqSpinLockGuard};
pub use local_read::{LocalReadGuard, LocalReadLock};
pub use once::{Lazy, Once};
pub use padded::CachePadded;
pub use per_cpu::{LocalCell, PerCpu};
pub use queue_lock::{OVERTAKES_MAX, QueueLock};
pub use rw_spin::{RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard};
pub use seqlock::SeqLock;
pub use spin::{SpinLock, SpinLockGuard};
