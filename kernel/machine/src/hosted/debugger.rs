//! Hosted processors have a debugger of their host.

use crate::cpu::CpuId;
use crate::debugger::Cause;
use crate::user::DebugRegisters;

pub(crate) fn enter(_cause: Cause) {}

pub(crate) fn is_present() -> bool {
    false
}

pub(crate) fn press_button(_cpu: CpuId) {}

/// Hosted processors lend nothing.
pub(crate) struct Lent;

pub(crate) fn lend(_registers: &DebugRegisters) -> Lent {
    Lent
}

pub(crate) fn take_back(_lent: Lent) {}

pub(crate) fn take_hits() -> u64 {
    DebugRegisters::STEP
}
