//! Interprocessor interrupts of a hosted machine: with one processor they are calls.

use crate::cpu::CpuId;
use crate::ipi::Ipi;

pub(crate) fn send(_target: CpuId, ipi: Ipi) {
    crate::ipi::deliver(ipi);
}

pub(crate) fn stop_other_cpus() {}
