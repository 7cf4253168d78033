//! The two flavours of RCU, told apart by types.
//!
//! | | [`Classic`] | [`Bh`] |
//! |---|---|---|
//! | readers hold | [`RcuReadGuard`], from [`read`] | [`RcuBhGuard`], from [`read_bh`] |
//! | quiescent states of a CPU | context switch, idle, user mode | these, and the end of a softirq handler |
//! | for | everything | what mostly softirqs read, under floods of which grace periods must still end |
//!
//! Why the end of a softirq handler is enough for `Bh`: a softirq never interrupts a section with preemption off, so no thread
//! of the CPU is inside a `Bh` reader meanwhile, and a reader inside the handler ends with it (specs/scalability.md §G25).
//!
//! A [`super::Pointer`] is of one flavour: it is read under that flavour's guard only, and what it replaces waits for that
//! flavour's grace period. So the mistake that the paper warns of, an updater of one flavour with readers of the other, does
//! not compile:
//!
//! ```compile_fail
//! let pointer: sync::rcu::Pointer<u32, sync::rcu::Bh> = sync::rcu::Pointer::null();
//! let guard = sync::rcu::read();
//! let value = pointer.read(&guard);
//! ```

use core::marker::PhantomData;

use machine::preempt::{self, PreemptGuard};

/// How many flavours there are.
pub(super) const FLAVOURS: usize = 2;

/// A flavour as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Kind {
    /// [`Classic`].
    Classic,
    /// [`Bh`].
    Bh,
}

impl Kind {
    /// Both.
    pub const ALL: [Kind; FLAVOURS] = [Kind::Classic, Kind::Bh];

    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Classic => "classic",
            Kind::Bh => "bh",
        }
    }

    /// Its bit in sets of flavours.
    pub(super) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// A flavour as a type.
pub trait Flavour: sealed::Sealed + 'static {
    /// What its readers hold.
    type Guard;
    /// The same as a value.
    const KIND: Kind;
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Classic {}
    impl Sealed for super::Bh {}
}

/// The usual flavour.
#[derive(Debug)]
pub enum Classic {}

/// The flavour for what mostly softirqs read.
#[derive(Debug)]
pub enum Bh {}

impl Flavour for Classic {
    type Guard = RcuReadGuard;
    const KIND: Kind = Kind::Classic;
}

impl Flavour for Bh {
    type Guard = RcuBhGuard;
    const KIND: Kind = Kind::Bh;
}

/// A read section: what an RCU [`super::Pointer`] showed inside stays valid until the guard is dropped.
/// Do not sleep while holding one.
#[must_use]
pub struct RcuReadGuard {
    _preemption: PreemptGuard,
}

/// A read section of flavour [`Bh`]. Preemption is off meanwhile, and with it softirqs on this CPU. Do not sleep while holding one.
#[must_use]
pub struct RcuBhGuard {
    _preemption: PreemptGuard,
    /// It ends on the CPU that began it.
    not_send: PhantomData<*mut ()>,
}

/// Begins a read section. Nests.
#[inline(always)]
pub fn read() -> RcuReadGuard {
    RcuReadGuard { _preemption: preempt::disable() }
}

/// Begins a read section of flavour [`Bh`]. Nests, also with [`read`].
#[inline(always)]
pub fn read_bh() -> RcuBhGuard {
    RcuBhGuard { _preemption: preempt::disable(), not_send: PhantomData }
}
