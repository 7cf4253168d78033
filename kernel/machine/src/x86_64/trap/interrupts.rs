//! External interrupts after the entry stubs: dispatch on the interrupt stack, then preemption.

use super::frame::{FRAME_BYTES, TrapFrame};
use crate::address::VirtAddr;
use crate::{fault, interrupt, preempt as preemption};

/// Free bytes that must lie beneath a frame moved to a thread's stack, so that the scheduler's own
/// frames do not fault right after (specs/kernel-stacks.md M4).
const ENSURED_BYTES: u64 = 512;

/// Bytes of its stack that a thread must have left to be preempted: what the scheduler and softirqs use. A thread closer
/// to the end goes on, and is preempted when it has returned from there. An overflow within the scheduler would end
/// the kernel, not the thread.
const ROOM_BYTES: u64 = if cfg!(debug_assertions) { 6144 } else { 2560 };

/// An interrupt that hit user mode; on the interrupt stack, interrupts off.
pub(super) extern "C" fn interrupt_from_user(vector: u32) {
    interrupt::dispatch(vector as u8);
}

/// An interrupt that hit the kernel; `frame` is on the interrupt stack, interrupts off.
///
/// Returns null to resume the interrupted code from `frame`, or the address of a copy of the frame
/// on the interrupted thread's stack: the stub then calls [`preempt`] there and resumes from the copy
/// when the thread runs again.
pub(super) extern "C" fn interrupt_from_kernel(frame: &TrapFrame) -> *const TrapFrame {
    interrupt::dispatch(frame.vector as u8);
    let preemptible = preemption::need_resched()
        && preemption::count() == 0
        && !interrupt::in_interrupt()
        && frame.interrupts_were_enabled();
    if !preemptible {
        return core::ptr::null();
    }
    let target = (frame.rsp & !15) - FRAME_BYTES as u64;
    if let Some(hooks) = fault::stack_hooks() {
        let room = (hooks.ensure)(VirtAddr::new(target - ENSURED_BYTES), ROOM_BYTES - ENSURED_BYTES);
        if !room {
            return core::ptr::null();
        }
    }
    let copy = target as *mut TrapFrame;
    // SAFETY: preemption was enabled and no interrupt is nested, so the interrupted code ran on its
    // thread's own stack; below its stack pointer nothing is live (no red zone on this target), and
    // `ensure` has backed the pages.
    unsafe { copy.write(*frame) };
    copy
}

/// Runs another thread; on the interrupted thread's stack, interrupts off.
pub(super) extern "C" fn preempt() {
    preemption::schedule_from_interrupt();
}
