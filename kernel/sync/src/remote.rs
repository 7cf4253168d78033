//! Calls of functions on other CPUs: one type of request of the [message boxes](crate::message_box).
//!
//! A called function runs with interrupts off, is short, takes no lock that somebody may hold while
//! calling, and never calls remotely itself (checked). How the caller waits, and what holds of the order of calls, is
//! told in `message_box`.

use machine::cpu::CpuSet;

use crate::message_box::{self, Kind};

/// Connects the message boxes to their interrupt. Once, at start-up, before the second CPU runs.
pub fn initialize() {
    message_box::initialize();
}

/// Runs `function(argument)` on every CPU of the set, this one included if it is a member, and
/// returns when all have done so. Works with interrupts off; not from interrupt handlers.
pub fn call(targets: CpuSet, function: fn(usize), argument: usize) {
    message_box::call(Kind::Call, targets, function, argument);
}

/// [`call`] for functions that make a CPU forget translations: counted apart, as `TLB` in `/proc/interrupts`.
pub fn flush_tlb(targets: CpuSet, function: fn(usize), argument: usize) {
    message_box::call(Kind::FlushTlb, targets, function, argument);
}
