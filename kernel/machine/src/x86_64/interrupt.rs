//! The interrupt flag, nesting, counts, and the routing of device lines.

use super::per_cpu::{INTERRUPT_NESTING, PerCpu};
use super::trap::frame::{FRAME_BYTES, TrapFrame};
use super::{apic, io_apic};
use crate::cpu::CpuId;
use crate::firmware::{Override, Polarity, Trigger};
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

/// Interrupts that came on a vector without a handler.
static UNHANDLED: AtomicU64 = AtomicU64::new(0);

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
    let nesting = area.interrupt_nesting.load(Ordering::Relaxed);
    area.interrupt_nesting.store(nesting + 1, Ordering::Relaxed);
    if nesting == 0 {
        area.interrupt_began.store(super::time::cycles(), Ordering::Relaxed);
    }
    let count = &area.vector_counts[usize::from(vector)];
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// When the last interrupt began that was none in the midst of another one, on this processor; interrupts are off.
#[inline(always)]
pub(crate) fn began() -> u64 {
    PerCpu::current().interrupt_began.load(Ordering::Relaxed)
}

pub(crate) fn end(vector: u8, handled: bool) {
    if vector != apic::VECTOR_SPURIOUS {
        apic::end_of_interrupt();
    }
    if !handled {
        UNHANDLED.fetch_add(1, Ordering::Relaxed);
    }
}

#[inline(always)]
pub(crate) fn leave() {
    let area = PerCpu::current();
    let nesting = area.interrupt_nesting.load(Ordering::Relaxed) - 1;
    if nesting == 0 {
        let cycles = cycles_in_service(area);
        area.interrupt_cycles.store(cycles, Ordering::Relaxed);
    }
    area.interrupt_nesting.store(nesting, Ordering::Relaxed);
}

/// What interrupts have taken of a processor until now, the one in service included; on that processor, in an interrupt.
#[inline(always)]
fn cycles_in_service(area: &PerCpu) -> u64 {
    let running = super::time::cycles().saturating_sub(area.interrupt_began.load(Ordering::Relaxed));
    area.interrupt_cycles.load(Ordering::Relaxed) + running
}

pub(crate) fn cycles_taken() -> u64 {
    let area = PerCpu::current();
    match nesting() {
        0 => area.interrupt_cycles.load(Ordering::Relaxed),
        _ => cycles_in_service(area),
    }
}

pub(crate) fn cycles_taken_of(cpu: CpuId) -> u64 {
    PerCpu::of(cpu).map_or(0, |area| area.interrupt_cycles.load(Ordering::Relaxed))
}

/// Instruction and frame pointer of the kernel code that the running interrupt handler has interrupted; None if it was
/// user mode, or an interrupt within an interrupt, or if no handler runs.
pub(crate) fn interrupted_code() -> Option<(u64, u64)> {
    /// Kernel stack segments are small selectors; the stub for user mode leaves a code address in that place.
    const SELECTOR_MAX: u64 = 0xffff;
    if nesting() != 1 {
        return None;
    }
    let top = PerCpu::current().interrupt_stack_top;
    let frame = core::ptr::with_exposed_provenance::<TrapFrame>(top as usize - FRAME_BYTES);
    // SAFETY: the stub of an interrupt that hit the kernel puts the frame there, and the outermost handler is still running; the
    // other stub puts its return address there. Both lie in the interrupt stack, which is always mapped.
    let frame = unsafe { &*frame };
    (frame.ss <= SELECTOR_MAX).then_some((frame.rip, frame.rbp))
}

pub(crate) fn find_isa_line(irq: u8) -> Option<Override> {
    io_apic::isa_line(irq)
}

pub(crate) fn route_line(line: Override, vector: u8) {
    if let Some(boot) = PerCpu::of(CpuId::BOOT) {
        io_apic::route(line, vector, boot.apic_id);
    }
}

/// Routes a line with an active-low level to a processor; false if no controller serves it.
pub(crate) fn route_device_line(line: u32, vector: u8, cpu: CpuId) -> bool {
    let Some(target) = PerCpu::of(cpu) else { return false };
    if !io_apic::serves(line) {
        return false;
    }
    // The interrupt number that an override would name plays no part.
    let line = Override { irq: 0, line, polarity: Polarity::ActiveLow, trigger: Trigger::Level };
    io_apic::route(line, vector, target.apic_id);
    true
}

pub(crate) fn mask_device_line(line: u32) {
    io_apic::mask(line);
}

pub(crate) fn unmask_device_line(line: u32) {
    io_apic::unmask(line);
}

/// Address and data that a device writes to interrupt this processor.
pub(crate) fn message(cpu: CpuId, vector: u8) -> Option<(u64, u32)> {
    const WINDOW: u64 = 0xfee0_0000;
    let apic_id = PerCpu::of(cpu)?.apic_id;
    (apic_id < 0xff).then_some((WINDOW | u64::from(apic_id) << 12, u32::from(vector)))
}

pub(crate) fn vector_count(cpu: CpuId, vector: u8) -> u64 {
    PerCpu::of(cpu).map_or(0, |area| area.vector_counts[usize::from(vector)].load(Ordering::Relaxed))
}

pub(crate) fn vector_name(vector: u8) -> Option<&'static str> {
    match vector {
        apic::VECTOR_TIMER => Some("Local timer interrupts"),
        apic::VECTOR_RESCHEDULE => Some("Rescheduling interrupts"),
        apic::VECTOR_CALL => Some("Message-box interrupts"),
        apic::VECTOR_DEBUGGER => Some("Debugger interrupts"),
        apic::VECTOR_ERROR => Some("APIC errors"),
        apic::VECTOR_SPURIOUS => Some("Spurious interrupts"),
        _ => None,
    }
}

/// Takes the local controller's error vector, which is only counted.
pub(crate) fn initialise() {
    crate::interrupt::connect_local(apic::VECTOR_ERROR, |_| (), 0);
    crate::interrupt::connect_local(apic::VECTOR_SPURIOUS, |_| (), 0);
}

/// Masks the lines of the two old interrupt controllers, which nobody listens to.
pub(crate) fn silence_legacy_controllers() {
    for port in [0x21, 0xa1] {
        // SAFETY: the mask registers of the 8259 controllers; where there are none the write does nothing.
        unsafe { super::port::write_u8(port, 0xff) };
    }
}
