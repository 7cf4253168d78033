//! Interprocessor interrupts through the local APIC.

use super::apic::{self, VECTOR_CALL, VECTOR_RESCHEDULE};
use super::per_cpu::PerCpu;
use crate::cpu::CpuId;
use crate::ipi::Ipi;
use core::sync::atomic::{AtomicBool, Ordering};

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

pub(crate) fn send_non_maskable(target: CpuId) {
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

/// A non-maskable interrupt arrived: another processor stops this one, or somebody outside pressed the button, which is
/// only counted.
pub(crate) fn non_maskable() {
    const NON_MASKABLE: usize = 2;
    if STOPPING.load(Ordering::SeqCst) {
        crate::cpu::halt_forever()
    }
    PerCpu::current().vector_counts[NON_MASKABLE].fetch_add(1, Ordering::Relaxed);
}
