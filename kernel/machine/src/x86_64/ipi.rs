//! Interprocessor interrupts through the local APIC.

use crate::cpu::CpuId;
use crate::ipi::Ipi;

pub(crate) fn send(_target: CpuId, ipi: Ipi) {
    crate::ipi::deliver(ipi);
}

pub(crate) fn stop_other_cpus() {}

/// A non-maskable interrupt arrived: another processor has panicked and stops this one.
pub(crate) fn non_maskable() {
    crate::cpu::halt_forever()
}
