//! Interprocessor interrupts of a hosted machine: a flag of the target, and a poke if it halts.

use std::sync::atomic::Ordering;

use super::processor::{PROCESSORS, lock};
use crate::cpu::CpuId;
use crate::ipi::Ipi;

pub(super) const fn bit(ipi: Ipi) -> u32 {
    match ipi {
        Ipi::Reschedule => 1,
        Ipi::Call => 2,
        Ipi::Debugger => 4,
    }
}

pub(crate) fn send(target: CpuId, ipi: Ipi) {
    let processor = &PROCESSORS[target.index()];
    processor.pending_ipis.fetch_or(bit(ipi), Ordering::SeqCst);
    let group = lock(&processor.group).clone();
    if let Some(group) = group {
        group.notify();
    }
}

pub(crate) fn send_number(_target: CpuId, _vector: u8) {}

/// Nobody counts the interrupts of hosted processors.
pub(crate) fn count(_cpu: CpuId, _ipi: Ipi) -> u64 {
    0
}

pub(crate) fn send_non_maskable(_target: CpuId) {}

pub(crate) fn awaits_non_maskable(_target: CpuId) -> bool {
    false
}

pub(crate) fn stop_other_cpus() {}
