//! Interrupts of a hosted processor: a mask, and delivery of what is pending at safe points.

use std::sync::atomic::Ordering;

use super::processor::{self, NEVER};
use crate::cpu::CpuId;
use crate::ipi::Ipi;

pub(crate) fn save_and_disable() -> bool {
    processor::this().interrupts_enabled.swap(false, Ordering::SeqCst)
}

pub(crate) fn enable() {
    processor::this().interrupts_enabled.store(true, Ordering::SeqCst);
    poll();
}

pub(crate) fn disable() {
    processor::this().interrupts_enabled.store(false, Ordering::SeqCst);
}

pub(crate) fn are_enabled() -> bool {
    processor::this().interrupts_enabled.load(Ordering::SeqCst)
}

pub(crate) fn enable_and_halt() {
    processor::group().halt(processor::index());
    enable();
}

pub(crate) fn nesting() -> u32 {
    processor::this().nesting.load(Ordering::SeqCst)
}

pub(crate) fn enter(_vector: u8) {
    processor::this().nesting.fetch_add(1, Ordering::SeqCst);
}

/// An interrupt takes no time.
pub(crate) fn began() -> u64 {
    super::time::cycles()
}

pub(crate) fn end(_vector: u8, _handled: bool) {}

pub(crate) fn leave() {
    processor::this().nesting.fetch_sub(1, Ordering::SeqCst);
}

/// A safe point: takes the interrupts that are pending, unless they are masked. Ends like an interrupt on the bare
/// machine: softirqs, then perhaps another thread.
pub(super) fn poll() {
    let processor = processor::this();
    if !processor.interrupts_enabled.load(Ordering::SeqCst)
        || processor.nesting.load(Ordering::SeqCst) != 0
        || std::thread::panicking()
    {
        return;
    }
    let mut taken = false;
    while take_one() {
        taken = true;
    }
    if taken {
        drop(crate::preempt::disable());
    }
}

/// Takes one pending interrupt; false if there is none.
fn take_one() -> bool {
    let processor = processor::this();
    let group = processor::group();
    let index = processor::index();
    if !group.has_pending(index) {
        return false;
    }
    processor.interrupts_enabled.store(false, Ordering::SeqCst);
    processor.nesting.fetch_add(1, Ordering::SeqCst);
    let ipis = processor.pending_ipis.swap(0, Ordering::SeqCst);
    for ipi in [Ipi::Call, Ipi::Reschedule, Ipi::Debugger] {
        if ipis & super::ipi::bit(ipi) != 0 {
            crate::ipi::deliver(ipi);
        }
    }
    if processor.deadline_ns.load(Ordering::SeqCst) <= group.now_ns() {
        processor.deadline_ns.store(NEVER, Ordering::SeqCst);
        crate::time::expired();
    }
    crate::interrupt::run_exit_hook();
    // The exit hook cannot switch threads: this is still the same host thread.
    processor.nesting.fetch_sub(1, Ordering::SeqCst);
    processor.interrupts_enabled.store(true, Ordering::SeqCst);
    true
}

pub(crate) fn interrupted_code() -> Option<(u64, u64)> {
    None
}

pub(crate) fn find_isa_line(_irq: u8) -> Option<u32> {
    None
}

pub(crate) fn route_line(_line: u32, _vector: u8) {}

/// Interrupts of the hosted machine come where its threads poll, and take none of their time.
pub(crate) fn cycles_taken() -> u64 {
    0
}

pub(crate) fn cycles_taken_of(_cpu: CpuId) -> u64 {
    0
}

pub(crate) fn vector_count(_cpu: CpuId, _vector: u8) -> u64 {
    0
}

pub(crate) fn vector_name(_vector: u8) -> Option<&'static str> {
    None
}

pub(crate) fn route_device_line(_line: u32, _vector: u8, _cpu: CpuId) -> bool {
    false
}

pub(crate) fn mask_device_line(_line: u32) {}

pub(crate) fn unmask_device_line(_line: u32) {}

/// Nothing is raised by it; drivers can be tested as far as their programming of it.
pub(crate) fn message(cpu: CpuId, vector: u8) -> Option<(u64, u32)> {
    Some((0xfee0_0000 | (cpu.index() as u64) << 12, u32::from(vector)))
}
