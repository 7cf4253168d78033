//! Kernel-mode page faults: the state machine of specs/kernel-stacks.md M5.
//!
//! 1. The faulting address lies in the thread-slot range: the stack owner grows the running
//!    thread's stack right here, on the #PF stack, or reports an overflow or a foreign access. Should there be
//!    no frame to grow with, the owner takes the frame of registers away and runs another thread.
//! 2. A user-memory access with an exception-table entry: when the interrupted code may sleep, the
//!    frame moves to the thread's stack and the address space resolves the fault there with
//!    interrupts on; when not, or when it can't be resolved, execution continues at the fix-up.
//! 3. Anything else is a kernel bug and panics with the registers.
//!
//! The #PF stack has four slots; the stub lowers the IST pointer by one slot while a fault is being
//! handled, so a fault within the handling does not overwrite the first frame. At the last slot the
//! machine stops with "recursive kernel page fault" (M5 step 6).

use super::exception_table;
use super::frame::{FRAME_BYTES, TrapFrame};
use super::report::kernel_bug;
use crate::address::{USER_END, UserAddr, VirtAddr};
use crate::backend::per_cpu::PerCpu;
use crate::fault::{self, StackFault};
use crate::user::access_of;
use crate::{interrupt, preempt};

/// Faults that may be in progress on one CPU's #PF stack, counting NMI shifts.
const MAX_DEPTH: u64 = 4;

/// Free bytes that must lie beneath a frame moved to the thread's stack (M5 step 5).
const ENSURED_BYTES: u64 = 2048;

/// First step, on the #PF stack with interrupts off. Returns null to restart the interrupted code
/// from `frame` (which may have been redirected to a fix-up), or the address of a copy of the frame
/// on the thread's stack from which [`user_fault_from_kernel`] goes on.
pub(super) extern "C" fn page_fault_from_kernel(frame: &mut TrapFrame, address: u64) -> *mut TrapFrame {
    if PerCpu::current().page_fault_depth() >= MAX_DEPTH {
        kernel_bug("recursive kernel page fault", frame, Some(address));
    }
    if let Some(hooks) = fault::stack_hooks() {
        let sleepable = may_sleep(frame);
        match (hooks.grow)(VirtAddr::new(address), VirtAddr::new(frame.rsp), sleepable) {
            StackFault::Grown | StackFault::Present => return core::ptr::null_mut(),
            StackFault::Starved => (hooks.starved)(frame, VirtAddr::new(address), sleepable),
            StackFault::Overflow => (hooks.overflow)(frame, VirtAddr::new(address)),
            StackFault::Foreign => {
                kernel_bug("access to another thread's kernel stack", frame, Some(address))
            }
            StackFault::NotStack => {}
        }
    }
    let Some(fix_up) = exception_table::fix_up(frame.rip) else {
        kernel_bug("page fault in the kernel", frame, Some(address));
    };
    if (address as usize) >= USER_END || !may_sleep(frame) {
        frame.rip = fix_up;
        return core::ptr::null_mut();
    }
    move_to_thread_stack(frame, address)
}

/// A double fault while page faults enter on the stack that they interrupt: the frame of one did not fit. CR2 is the address of
/// the frame or of the first access, as the processor likes, so both pages are backed, and the instruction restarts.
pub(super) fn double_fault(frame: &TrapFrame) {
    /// What the processor pushes for a page fault, after aligning the stack pointer.
    const PUSHED_BYTES: u64 = 64;
    let Some(hooks) = fault::stack_hooks() else { kernel_bug("double fault", frame, None) };
    let address = crate::backend::register::read_cr2();
    let mut grown = false;
    for place in [frame.rsp.wrapping_sub(PUSHED_BYTES), address] {
        match (hooks.grow)(VirtAddr::new(place), VirtAddr::new(frame.rsp), false) {
            StackFault::Grown => grown = true,
            StackFault::Overflow => (hooks.overflow)(frame, VirtAddr::new(place)),
            StackFault::Starved => (hooks.starved)(frame, VirtAddr::new(place), false),
            StackFault::Present | StackFault::Foreign | StackFault::NotStack => {}
        }
    }
    if !grown {
        kernel_bug("double fault", frame, Some(address));
    }
}

/// Whether the interrupted code may be switched away from.
fn may_sleep(frame: &TrapFrame) -> bool {
    frame.interrupts_were_enabled() && preempt::count() == 0 && !interrupt::in_interrupt()
}

/// Copies the frame to the interrupted thread's stack, with the faulting address in the vector's
/// place (the vector is known to be the page fault).
fn move_to_thread_stack(frame: &TrapFrame, address: u64) -> *mut TrapFrame {
    let target = (frame.rsp & !15) - FRAME_BYTES as u64;
    if let Some(hooks) = fault::stack_hooks() {
        let room = (hooks.ensure)(VirtAddr::new(target - ENSURED_BYTES), 0);
        if !room {
            // Resolving the fault would overflow the stack, in the midst of whatever it does.
            (hooks.overflow)(frame, VirtAddr::new(target - ENSURED_BYTES));
        }
    }
    let copy = target as *mut TrapFrame;
    // SAFETY: the interrupted code was preemptible, so it ran on its thread's stack; below its
    // stack pointer nothing is live (no red zone), and `ensure` has backed the pages.
    unsafe { copy.write(TrapFrame { vector: address, ..*frame }) };
    copy
}

/// Second step, on the thread's stack: resolves a fault at a user address. Enters and leaves with
/// interrupts off; they are on while the address space works.
pub(super) extern "C" fn user_fault_from_kernel(frame: &mut TrapFrame) {
    interrupt::enable();
    let result = fault::resolve_user_fault(UserAddr::new(frame.vector), access_of(frame.error_code));
    interrupt::disable_unguarded();
    if result.is_err() {
        frame.rip = exception_table::fix_up(frame.rip)
            .expect("page_fault_from_kernel moves only frames that have a fix-up");
    }
}

/// Undoes what the entry stub did to the #PF stack, for a fault that is not returned from: the thread's stack has
/// overflowed or has to wait for a frame, and the caller switches to another thread.
///
/// # Safety
/// Called by the overflow hook or the hook for starved stacks, with interrupts off, which then leaves the #PF stack without a further fault.
pub unsafe fn abandon_page_fault() {
    // SAFETY: the stub has lowered the pointer by one slot on the way to the caller.
    unsafe {
        core::arch::asm!(
            "add qword ptr gs:[{page_fault_stack}], {slot}",
            page_fault_stack = const crate::backend::per_cpu::PAGE_FAULT_STACK,
            slot = const super::PAGE_FAULT_SLOT_BYTES,
            options(nostack),
        )
    }
}
