//! Interprocessor interrupts through the local APIC.

use super::apic::{self, VECTOR_CALL, VECTOR_DEBUGGER, VECTOR_RESCHEDULE};
use super::per_cpu::PerCpu;
use super::trap::frame::TrapFrame;
use crate::backtrace::Backtrace;
use crate::cpu::{CpuId, MAX_CPUS};
use crate::debugger::{self, Cause};
use crate::ipi::Ipi;
use crate::whereabouts;
use core::sync::atomic::{AtomicBool, Ordering};

#[inline]
const fn vector_of(ipi: Ipi) -> u8 {
    match ipi {
        Ipi::Reschedule => VECTOR_RESCHEDULE,
        Ipi::Call => VECTOR_CALL,
        Ipi::Debugger => VECTOR_DEBUGGER,
    }
}

#[inline]
pub(crate) fn send(target: CpuId, ipi: Ipi) {
    send_number(target, vector_of(ipi));
}

#[inline]
pub(crate) fn send_number(target: CpuId, vector: u8) {
    if let Some(area) = PerCpu::of(target) {
        // SAFETY: a vector that somebody has taken, and each of these, has a handler on every processor.
        unsafe { apic::send_command(area.apic_id, u32::from(vector)) };
    }
}

pub(crate) fn count(cpu: CpuId, ipi: Ipi) -> u64 {
    super::interrupt::vector_count(cpu, vector_of(ipi))
}

/// Whether a non-maskable interrupt that this kernel has sent to a processor, to hit it or to have it in the debugger, is on its way.
/// Set by the sender before it sends, cleared by the receiver. Processors remember one non-maskable interrupt that they can't take yet, so two
/// would become one, and a count of them would have a rest for which the button is not heard; so while one is on its way, nobody
/// sends another: the one arrives after both wanted it.
static AWAITED: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

pub(crate) fn send_non_maskable(target: CpuId) {
    if PerCpu::of(target).is_some() && !AWAITED[target.index()].swap(true, Ordering::SeqCst) {
        press_button(target);
    }
}

pub(crate) fn awaits_non_maskable(target: CpuId) -> bool {
    AWAITED[target.index()].load(Ordering::SeqCst)
}

/// A non-maskable interrupt that nobody expects.
pub(crate) fn press_button(target: CpuId) {
    if let Some(area) = PerCpu::of(target) {
        // SAFETY: every processor has a handler for it, on a stack of its own, which touches nothing that the
        // interrupted code uses.
        unsafe { apic::send_command(area.apic_id, apic::NON_MASKABLE | apic::LEVEL_ASSERT) };
    }
}

/// Connects the vectors to what the upper layers register.
pub(crate) fn initialise() {
    crate::interrupt::connect_local(VECTOR_RESCHEDULE, |_| crate::ipi::deliver(Ipi::Reschedule), 0);
    crate::interrupt::connect_local(VECTOR_CALL, |_| crate::ipi::deliver(Ipi::Call), 0);
}

/// Whether a processor wants all others stopped.
static STOPPING: AtomicBool = AtomicBool::new(false);

pub(crate) fn stop_other_cpus() {
    STOPPING.store(true, Ordering::SeqCst);
    if apic::is_ready() {
        apic::send_non_maskable_to_others();
    }
}

/// A non-maskable interrupt arrived: another processor stops this one, wants it in the debugger or asks where it is, a test wants to hit it, or somebody
/// outside pressed the button, which is for the debugger, if there is one. If the button's arrives before one of this kernel's that is on
/// its way, they change roles; if both arrive as one, the button is not heard, which nothing could tell.
pub(crate) fn non_maskable(frame: &mut TrapFrame) {
    const NON_MASKABLE: usize = 2;
    const USER_PRIVILEGE: u64 = 3;
    if STOPPING.load(Ordering::SeqCst) {
        crate::cpu::halt_forever()
    }
    let area = PerCpu::current();
    area.vector_counts[NON_MASKABLE].fetch_add(1, Ordering::Relaxed);
    let in_kernel = frame.cs & USER_PRIVILEGE == 0;
    whereabouts::answer(in_kernel.then(|| Backtrace::from_registers(frame.rip, frame.rbp)));
    super::rest::leave_block(&mut frame.rip);
    let cause = match AWAITED[area.cpu_id as usize].swap(false, Ordering::SeqCst) {
        false => Cause::Button,
        true if debugger::is_requested() => Cause::Summons,
        true => return,
    };
    HANDLING[area.cpu_id as usize].store(true, Ordering::Relaxed);
    debugger::enter(cause, frame);
    HANDLING[area.cpu_id as usize].store(false, Ordering::Relaxed);
}

/// Whether a processor is in the debugger because of a non-maskable interrupt: then it takes no other. Written by the processor.
static HANDLING: [AtomicBool; MAX_CPUS] = [const { AtomicBool::new(false) }; MAX_CPUS];

/// Whether this processor takes no non-maskable interrupt, for it handles one.
pub(super) fn handles_non_maskable(this: CpuId) -> bool {
    HANDLING[this.index()].load(Ordering::Relaxed)
}

/// The debugger's interrupt arrived.
pub(crate) fn debugger_interrupt(frame: &mut TrapFrame) {
    let count = &PerCpu::current().vector_counts[usize::from(VECTOR_DEBUGGER)];
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    apic::end_of_interrupt();
    debugger::enter(Cause::Summons, frame);
}
