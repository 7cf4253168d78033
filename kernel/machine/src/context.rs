//! Switching between kernel threads: the callee-saved registers and the stack pointer.
//!
//! A [`KernelContext`] is the saved stack pointer of a thread that is not running. Everything else
//! lies on the thread's stack: `switch` pushes the six callee-saved registers of the System V ABI
//! and pops those of the next thread. The pushes may touch a page of a demand-paged stack that is
//! not backed yet; the resulting page fault grows it (specs/kernel-stacks.md M5) and is legal here
//! because growing takes no lock.

use crate::address::VirtAddr;

/// Saved state of a kernel thread that is not running: its stack pointer.
#[repr(C)]
#[derive(Debug, Default)]
pub struct KernelContext {
    stack_pointer: u64,
}

/// Where a thread that was parked in a page fault continues: what [`starling_switch`] and `starling_resume_parked` pop.
#[cfg(target_os = "none")]
#[repr(C)]
struct Resumption {
    /// r15 r14 r13
    unused: [u64; 3],
    /// r12
    complete_switch: u64,
    rbx: u64,
    rbp: u64,
    instruction: u64,
    frame: crate::TrapFrame,
}

/// Words that `switch` pops, and what a new thread's stack must hold: r15 r14 r13 r12 rbx rbp rip.
const INITIAL_WORDS: usize = 7;

/// Above the saved stack pointer, the words that end what `switch` pops: the frame pointer and the return address, as in a frame.
pub(crate) const SAVED_FRAME_OFFSET: usize = (INITIAL_WORDS - 2) * 8;

impl KernelContext {
    /// Builds the context of a thread that will call `entry(argument)` on its first switch.
    ///
    /// # Safety
    /// `stack_top` must be the 16-byte-aligned end of a writable stack that stays allocated for as
    /// long as the thread runs, with its top page mapped.
    pub unsafe fn new(stack_top: VirtAddr, entry: extern "C" fn(usize) -> !, argument: usize) -> Self {
        let top = stack_top.as_u64();
        assert!(top.is_multiple_of(16), "a stack top is 16-byte aligned");
        // Two words above the initial frame: the stack is 16-byte aligned when the first function is called.
        let base = top - (INITIAL_WORDS as u64 + 2) * 8;
        let words: [u64; INITIAL_WORDS + 2] = [
            0,
            0,
            entry as usize as u64,
            argument as u64,
            0,
            0,
            starling_thread_start as *const () as u64,
            0,
            0,
        ];
        // SAFETY: the caller guarantees that the words just below `stack_top` are mapped, writable
        // and not in use.
        unsafe { core::ptr::copy_nonoverlapping(words.as_ptr(), base as *mut u64, words.len()) };
        Self { stack_pointer: base }
    }

    /// Makes the thread, which is parked with these registers, continue from what [`resume_parked_at`] will write.
    ///
    /// # Safety
    /// The thread was switched away from just now and runs nowhere; before it is switched to, [`resume_parked_at`] is
    /// called with the same registers.
    #[cfg(target_os = "none")]
    pub unsafe fn park(&mut self, frame: &crate::TrapFrame) {
        self.stack_pointer = resumption_address(frame);
    }

    /// The saved stack pointer: the lowest live address of the thread's stack.
    pub fn stack_pointer(&self) -> VirtAddr {
        VirtAddr::new(self.stack_pointer)
    }
}

/// The lowest address that a parked thread with these registers needs in order to continue.
#[cfg(target_os = "none")]
pub fn resumption_address(frame: &crate::TrapFrame) -> u64 {
    let frame_bytes = size_of::<crate::TrapFrame>();
    // The frame is 16-byte aligned, as the code that is called next to it expects.
    (frame.rsp & !15) - frame_bytes as u64 - core::mem::offset_of!(Resumption, frame) as u64
}

/// Writes what a parked thread needs to continue beneath its stack pointer. When it is switched to, it first calls
/// `complete_switch` there, with interrupts off, and then goes on with the registers of `frame`.
///
/// # Safety
/// The thread that `frame` belongs to runs nowhere, and its stack is mapped down to [`resumption_address`].
#[cfg(target_os = "none")]
pub unsafe fn resume_parked_at(frame: &crate::TrapFrame, complete_switch: extern "C" fn()) {
    let resumption = Resumption {
        unused: [0; 3],
        complete_switch: complete_switch as usize as u64,
        rbx: 0,
        rbp: frame.rbp,
        instruction: starling_resume_parked as *const () as u64,
        frame: *frame,
    };
    // SAFETY: the memory is mapped (caller), and nothing beneath a stack pointer is in use (no red zone on this target).
    unsafe { (resumption_address(frame) as *mut Resumption).write(resumption) };
}

#[cfg(target_os = "none")]
// SAFETY: defined by the entry stubs; only its address is used.
unsafe extern "C" {
    fn starling_resume_parked();
}

// SAFETY: the assembly of this file defines both, with these signatures.
unsafe extern "C" {
    fn starling_switch(from: *mut KernelContext, to: *const KernelContext);
    fn starling_thread_start();
}

/// Saves the running thread in `from` and continues `to`; returns when something switches back.
///
/// # Safety
/// Interrupts are off; `from` belongs to the running thread; `to` was saved by `switch` or made by
/// [`KernelContext::new`], is not running anywhere, and its stack is alive.
#[inline(always)]
pub unsafe fn switch(from: *mut KernelContext, to: *const KernelContext) {
    // SAFETY: forwarded from the caller.
    unsafe { starling_switch(from, to) }
}

core::arch::global_asm!(
    r#"
.pushsection .text.starling_switch, "ax"
.global starling_switch
starling_switch:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, [rsi]
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

# First instructions of a new thread: r13 = entry, r12 = argument (see KernelContext::new).
.global starling_thread_start
starling_thread_start:
    xor ebp, ebp
    mov rdi, r12
    call r13
    ud2
.popsection
"#
);
