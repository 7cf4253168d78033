//! The register frame that the entry stubs build for traps taken in kernel mode.
//!
//! Its layout is a contract with `stubs.rs`: the stubs push the registers in the reverse order of
//! the fields, the CPU has pushed the last five. A frame lives on an IST stack, on the interrupt
//! stack or (after it was moved) on the interrupted thread's own stack; whoever holds the pointer
//! knows which.

/// Registers of an interrupted kernel context, as the entry stubs store them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "the fields are the CPU's registers under their own names")]
pub struct TrapFrame {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rdi: u64,
    pub rsi: u64,
    pub rdx: u64,
    pub rcx: u64,
    pub rax: u64,
    /// Vector number, pushed by the stub.
    pub vector: u64,
    /// Error code, or zero for vectors that have none.
    pub error_code: u64,
    pub rip: u64,
    pub cs: u64,
    pub rflags: u64,
    pub rsp: u64,
    pub ss: u64,
}

/// Bytes of a [`TrapFrame`].
pub(crate) const FRAME_BYTES: usize = core::mem::size_of::<TrapFrame>();
const _: () = assert!(FRAME_BYTES == 22 * 8);

/// RFLAGS.IF: interrupts enabled.
pub(crate) const RFLAGS_INTERRUPT: u64 = 1 << 9;

impl TrapFrame {
    /// Whether the interrupted code ran with interrupts enabled.
    pub fn interrupts_were_enabled(&self) -> bool {
        self.rflags & RFLAGS_INTERRUPT != 0
    }
}
