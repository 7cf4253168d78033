//! The report of a kernel bug found by a trap: what happened, where, and the registers.

use super::frame::TrapFrame;

/// Panics with the frame's registers and, for a page fault, the faulting address.
pub(super) fn kernel_bug(what: &str, frame: &TrapFrame, fault_address: Option<u64>) -> ! {
    crate::panic::report_trap(what, frame, fault_address)
}
