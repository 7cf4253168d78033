//! Interprocessor interrupts through the local APIC.

use super::apic::{self, VECTOR_CALL, VECTOR_RESCHEDULE};
use super::per_cpu::PerCpu;
use crate::cpu::CpuId;
use crate::ipi::Ipi;

#[inline]
pub(crate) fn send(target: CpuId, ipi: Ipi) {
    let vector = match ipi {
        Ipi::Reschedule => VECTOR_RESCHEDULE,
        Ipi::Call => VECTOR_CALL,
    };
    if let Some(area) = PerCpu::of(target) {
        // SAFETY: both vectors have handlers on every processor.
        unsafe { apic::send_command(area.apic_id, u32::from(vector)) };
    }
}

/// Connects the vectors to what the upper layers register.
pub(crate) fn initialise() {
    crate::interrupt::connect_local(VECTOR_RESCHEDULE, |_| crate::ipi::deliver(Ipi::Reschedule), 0);
    crate::interrupt::connect_local(VECTOR_CALL, |_| crate::ipi::deliver(Ipi::Call), 0);
}

pub(crate) fn stop_other_cpus() {
    if apic::is_ready() {
        apic::send_non_maskable_to_others();
    }
}

/// A non-maskable interrupt arrived: another processor has panicked and stops this one.
pub(crate) fn non_maskable() {
    crate::cpu::halt_forever()
}
