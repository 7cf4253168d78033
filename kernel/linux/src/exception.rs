//! Exceptions of user programs become signals (signal(7), sigaction(2): si_code and si_addr).

use machine::address::{USER_END, UserAddr};
use machine::fault::FaultError;
use machine::user::{DebugRegisters, Exception};

use crate::signal::information::SignalInformation;
use crate::signal::send::force;
use crate::signal::set::Signal;
use crate::task::Task;

const SI_KERNEL: i32 = crate::signal::information::SI_KERNEL;
const ILL_ILLOPN: i32 = 2;
const FPE_INTDIV: i32 = 1;
const FPE_FLTDIV: i32 = 3;
const FPE_FLTOVF: i32 = 4;
const FPE_FLTUND: i32 = 5;
const FPE_FLTRES: i32 = 6;
const FPE_FLTINV: i32 = 7;
const SEGV_MAPERR: i32 = 1;
const SEGV_ACCERR: i32 = 2;
const BUS_ADRALN: i32 = 1;
const BUS_ADRERR: i32 = 2;
const TRAP_TRACE: i32 = 2;
const TRAP_HWBKPT: i32 = 4;

/// Serves an exception: a page fault that the address space can resolve ends here, everything else is a signal.
pub fn serve(task: &mut Task, exception: &Exception) {
    let rip = task.user.registers.rip;
    let information = match exception.vector {
        0 => SignalInformation::fault(Signal::SIGFPE, FPE_INTDIV, rip),
        1 => match debug_exception(task) {
            Some(information) => information,
            None => return,
        },
        3 => SignalInformation::from_kernel(Signal::SIGTRAP),
        6 => SignalInformation::fault(Signal::SIGILL, ILL_ILLOPN, rip),
        11 | 12 => SignalInformation::fault(Signal::SIGBUS, SI_KERNEL, 0),
        Exception::PAGE_FAULT => match page_fault(task, exception) {
            Ok(()) => return,
            Err(information) => information,
        },
        16 | 19 => SignalInformation::fault(Signal::SIGFPE, floating_point_code(exception.vector), rip),
        17 => SignalInformation::fault(Signal::SIGBUS, BUS_ADRALN, 0),
        // Overflow, bounds and general protection.
        _ => SignalInformation::from_kernel(Signal::SIGSEGV),
    };
    force(&task.thread, information);
}

/// A step, or a hardware breakpoint. `None`: nobody wants to know any more.
fn debug_exception(task: &mut Task) -> Option<SignalInformation> {
    const RESUME: u64 = 1 << 16;
    if task.end_step() && !task.thread.is_traced() {
        return None;
    }
    let registers = task.debug_registers.as_deref().copied().unwrap_or_default();
    let met = (0..DebugRegisters::COUNT).filter(|index| registers.hits >> index & 1 != 0);
    if met.clone().any(|index| registers.is_for_execution(index)) {
        // The instruction has not been executed yet, and shall be.
        task.user.registers.rflags |= RESUME;
    }
    let is_breakpoint = met.count() > 0 && registers.hits & DebugRegisters::STEP == 0;
    let code = if is_breakpoint { TRAP_HWBKPT } else { TRAP_TRACE };
    Some(SignalInformation::fault(Signal::SIGTRAP, code, task.user.registers.rip))
}

/// Lets the address space resolve the fault, or says which signal it becomes.
fn page_fault(task: &mut Task, exception: &Exception) -> Result<(), SignalInformation> {
    let address = exception.fault_address;
    task.thread.count_fault();
    if address >= USER_END as u64 {
        return Err(SignalInformation::fault(Signal::SIGSEGV, SEGV_MAPERR, address));
    }
    let access = exception.access();
    match task.address_space.fault(UserAddr::new(address), access) {
        Ok(()) => Ok(()),
        Err(FaultError::Pager) => {
            crate::pager::ask(task, address, access).or_else(|error| signal_of(error, address))
        }
        Err(error) => signal_of(error, address),
    }
}

/// What becomes of a fault that can't be resolved.
fn signal_of(error: FaultError, address: u64) -> Result<(), SignalInformation> {
    match error {
        FaultError::NotMapped => Err(SignalInformation::fault(Signal::SIGSEGV, SEGV_MAPERR, address)),
        FaultError::AccessDenied => Err(SignalInformation::fault(Signal::SIGSEGV, SEGV_ACCERR, address)),
        // A pager that has no page is like a file that has none.
        FaultError::Bus | FaultError::Pager => {
            Err(SignalInformation::fault(Signal::SIGBUS, BUS_ADRERR, address))
        }
        // The policy may have freed memory, or chosen this process; either way the instruction is tried again.
        FaultError::OutOfMemory => {
            if crate::oom::relieve(::memory::charge::shortage()) == ::memory::oom::Relief::Retry {
                Ok(())
            } else {
                Err(SignalInformation::from_kernel(Signal::SIGKILL))
            }
        }
    }
}

/// Which floating-point exception, from the status words of the saved FPU state.
#[inline(never)]
fn floating_point_code(vector: u8) -> i32 {
    const X87: u8 = 16;
    let raised = sched::current().with_user_state(|state| {
        let image = state.image();
        let word =
            |at: usize| image.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]));
        if vector == X87 {
            let (control, status) = (word(0) & 0xffff, word(0) >> 16);
            status & !control & 0x3f
        } else {
            let mxcsr = word(24);
            mxcsr & !(mxcsr >> 7) & 0x3f
        }
    });
    code_of(raised.unwrap_or(0))
}

fn code_of(raised: u32) -> i32 {
    if raised & 0x01 != 0 {
        FPE_FLTINV
    } else if raised & 0x04 != 0 {
        FPE_FLTDIV
    } else if raised & 0x08 != 0 {
        FPE_FLTOVF
    } else if raised & 0x12 != 0 {
        FPE_FLTUND
    } else if raised & 0x20 != 0 {
        FPE_FLTRES
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_operation_has_priority() {
        assert_eq!(code_of(0x05), FPE_FLTINV);
        assert_eq!(code_of(0x04), FPE_FLTDIV);
        assert_eq!(code_of(0), 0);
    }
}
