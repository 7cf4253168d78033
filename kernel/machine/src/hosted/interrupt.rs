//! Interrupts of a hosted machine: only the flag that masks them.

use crate::cpu::CpuId;
use std::cell::Cell;

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
    static NESTING: Cell<u32> = const { Cell::new(0) };
}

pub(crate) fn save_and_disable() -> bool {
    ENABLED.replace(false)
}

pub(crate) fn enable() {
    ENABLED.set(true);
}

pub(crate) fn disable() {
    ENABLED.set(false);
}

pub(crate) fn are_enabled() -> bool {
    ENABLED.get()
}

pub(crate) fn enable_and_halt() {
    enable();
    std::thread::yield_now();
}

pub(crate) fn nesting() -> u32 {
    NESTING.get()
}

pub(crate) fn enter(_vector: u8) {
    NESTING.set(NESTING.get() + 1);
}

pub(crate) fn end(_vector: u8, _handled: bool) {}

pub(crate) fn leave() {
    NESTING.set(NESTING.get() - 1);
}

pub(crate) fn find_isa_line(_irq: u8) -> Option<u32> {
    None
}

pub(crate) fn route_line(_line: u32, _vector: u8) {}

pub(crate) fn vector_count(_cpu: CpuId, _vector: u8) -> u64 {
    0
}

pub(crate) fn vector_name(_vector: u8) -> Option<&'static str> {
    None
}
