//! Interprocessor interrupts through the local APIC.

use crate::cpu::CpuId;
use crate::ipi::Ipi;

pub(crate) fn send(_target: CpuId, ipi: Ipi) {
    crate::ipi::deliver(ipi);
}

pub(crate) fn stop_other_cpus() {}
