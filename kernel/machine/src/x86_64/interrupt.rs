//! The interrupt flag, nesting, counts, and the routing of device lines.

use super::per_cpu::{INTERRUPT_NESTING, PerCpu};
use crate::cpu::CpuId;
use core::arch::asm;
use core::sync::atomic::Ordering;

const FLAG_INTERRUPTS: u64 = 1 << 9;

#[inline(always)]
fn flags() -> u64 {
    let flags: u64;
    // SAFETY: pushes and pops the flags; nothing else changes.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags, options(preserves_flags)) };
    flags
}

#[inline(always)]
pub(crate) fn save_and_disable() -> bool {
    let enabled = are_enabled();
    disable();
    enabled
}

#[inline(always)]
pub(crate) fn enable() {
    // SAFETY: handlers are prepared for interrupts wherever kernel code enables them. A memory clobber keeps
    // accesses of the section before it.
    unsafe { asm!("sti", options(nostack)) };
}

#[inline(always)]
pub(crate) fn disable() {
    // SAFETY: keeping interrupts out breaks nothing. A memory clobber keeps accesses of the section after it.
    unsafe { asm!("cli", options(nostack)) };
}

#[inline(always)]
pub(crate) fn are_enabled() -> bool {
    flags() & FLAG_INTERRUPTS != 0
}

#[inline(always)]
pub(crate) fn enable_and_halt() {
    // SAFETY: `sti` takes effect after the next instruction, so no interrupt comes before `hlt`.
    unsafe { asm!("sti", "hlt", options(nostack)) };
}

#[inline(always)]
pub(crate) fn nesting() -> u32 {
    let depth: u32;
    // SAFETY: reads a field of this processor's own area.
    unsafe {
        asm!("mov {:e}, gs:[{offset}]", out(reg) depth, offset = const INTERRUPT_NESTING,
            options(nostack, preserves_flags, readonly));
    }
    depth
}

#[inline(always)]
pub(crate) fn enter(vector: u8) {
    let area = PerCpu::current();
    area.interrupt_nesting.store(area.interrupt_nesting.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    let count = &area.vector_counts[usize::from(vector)];
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

pub(crate) fn end(_vector: u8, _handled: bool) {}

#[inline(always)]
pub(crate) fn leave() {
    let area = PerCpu::current();
    area.interrupt_nesting.store(area.interrupt_nesting.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
}

pub(crate) fn find_isa_line(_irq: u8) -> Option<u32> {
    None
}

pub(crate) fn route_line(_line: u32, _vector: u8) {}

pub(crate) fn vector_count(cpu: CpuId, vector: u8) -> u64 {
    PerCpu::of(cpu).map_or(0, |area| area.vector_counts[usize::from(vector)].load(Ordering::Relaxed))
}

pub(crate) fn vector_name(_vector: u8) -> Option<&'static str> {
    None
}
