//! Exceptions other than page faults, raised in kernel mode.
//!
//! A general-protection fault in a user-memory access (a non-canonical address) goes to its fix-up;
//! everything else is a kernel bug, or for the debugger. NMIs stop this CPU when another one has panicked, and have it join the
//! debugger when it has interrupts off.

use super::exception_table;
use super::frame::TrapFrame;
use super::gates;
use super::report::kernel_bug;
use crate::debugger::{self, Cause};

const NON_MASKABLE: u64 = 2;
const DEBUG: u64 = 1;
const BREAKPOINT: u64 = 3;
const SUMMONS: u64 = crate::backend::apic::VECTOR_DEBUGGER as u64;
const DOUBLE_FAULT: u64 = 8;
const MACHINE_CHECK: u64 = 18;

/// A synchronous exception in kernel mode, on IST 7 with interrupts off.
pub(super) extern "C" fn exception_from_kernel(frame: &mut TrapFrame) {
    if frame.vector == BREAKPOINT {
        let purpose = crate::backend::debugger::purpose(frame.rax);
        let is_taken = debugger::enter(purpose.unwrap_or(Cause::Breakpoint), frame);
        // With the debugger off, one that was meant does nothing: what led to it has its own report.
        if is_taken || purpose.is_some() {
            return;
        }
    }
    match exception_table::fix_up(frame.rip) {
        Some(fix_up) => frame.rip = fix_up,
        None => kernel_bug(name(frame.vector), frame, None),
    }
}

/// NMI, #DB, #DF or #MC in kernel mode (or NMI and #MC anywhere), each on its own stack.
pub(super) extern "C" fn paranoid_exception(frame: &mut TrapFrame) {
    match frame.vector {
        NON_MASKABLE => crate::backend::ipi::non_maskable(frame),
        SUMMONS => crate::backend::ipi::debugger_interrupt(frame),
        DEBUG => {
            if !debugger::enter(Cause::Watch, frame) {
                log::warn!("debug exception in the kernel at {:#x}", frame.rip);
            }
        }
        DOUBLE_FAULT if gates::faults_enter_in_place() => super::page_fault::double_fault(frame),
        DOUBLE_FAULT => kernel_bug("double fault", frame, None),
        MACHINE_CHECK => kernel_bug("machine check", frame, None),
        _ => kernel_bug("unexpected exception on a paranoid stack", frame, None),
    }
}

fn name(vector: u64) -> &'static str {
    match vector {
        0 => "divide error",
        3 => "breakpoint",
        4 => "overflow",
        5 => "bound range exceeded",
        6 => "invalid opcode",
        7 => "device not available",
        10 => "invalid TSS",
        11 => "segment not present",
        12 => "stack-segment fault",
        13 => "general protection fault",
        16 => "x87 floating-point error",
        17 => "alignment check",
        19 => "SIMD floating-point exception",
        21 => "control protection exception",
        _ => "reserved exception",
    }
}
