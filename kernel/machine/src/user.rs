//! User mode as a function call: run a user program until it needs the kernel.
//!
//! A user thread is a kernel thread whose body calls [`UserContext::run`] in a loop. `run` saves the
//! callee-saved kernel registers on the thread's stack, loads the user registers and enters user
//! mode; a system call, an exception or an interrupt stores the user registers back into the same
//! context, and `run` returns what happened. The kernel stack between two calls of `run` is empty
//! but for the caller's frame, and no register frame is ever pushed on it by the CPU
//! (specs/kernel-stacks.md M2 consequence (i)).
//!
//! Invariants: interrupts are off from the check of the attention flag until user mode is entered,
//! so a wake-up or signal that arrives in between is delivered as an interrupt in user mode and not
//! lost. Segment selectors are constants; the stubs never load any from memory.

use core::sync::atomic::{AtomicU8, Ordering};

use crate::backend;
use crate::fault::Access;

/// User code segment selector, as on Linux.
pub const USER_CODE_SELECTOR: u16 = 0x33;
/// User data segment selector, as on Linux.
pub const USER_DATA_SELECTOR: u16 = 0x2b;

/// General registers of a user thread. The order is a contract with `x86_64/trap/stubs.rs`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are the CPU's registers under their own names")]
pub struct UserRegisters {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub rsp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub rip: u64,
    pub rflags: u64,
}

/// Registers of a user thread and what it last entered the kernel for.
#[repr(C)]
#[derive(Clone, Debug, Default)]
pub struct UserContext {
    /// The registers; `run` loads them and stores them back.
    pub registers: UserRegisters,
    vector: u64,
    error_code: u64,
    fault_address: u64,
    /// The system call that the program entered the kernel for, or [`NO_CALL`]. Kept by who serves it: what the registers
    /// say is no longer true when a result stands there.
    pub call: u64,
}

/// No system call: the program was interrupted, or raised an exception.
pub const NO_CALL: u64 = u64::MAX;

/// An exception raised by a user program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Vector number (0 to 31) as the processor manuals number them.
    pub vector: u8,
    /// The CPU's error code, zero for vectors without one.
    pub error_code: u64,
    /// CR2 for page faults, else zero.
    pub fault_address: u64,
}

impl Exception {
    /// Vector of the page fault.
    pub const PAGE_FAULT: u8 = 14;

    /// What a page fault wanted to do, from its error code.
    pub fn access(&self) -> Access {
        access_of(self.error_code)
    }
}

/// Decodes a page-fault error code.
pub(crate) fn access_of(error_code: u64) -> Access {
    if error_code & (1 << 4) != 0 {
        Access::Execute
    } else if error_code & (1 << 1) != 0 {
        Access::Write
    } else {
        Access::Read
    }
}

/// Debug registers of a program: hardware breakpoints, and what they have met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugRegisters {
    /// Where its breakpoints are: in user memory.
    pub addresses: [u64; DebugRegisters::COUNT],
    /// Which of them are on, and what they wait for (DR7).
    pub control: u64,
    /// What the last debug exception was for (DR6): a bit for each breakpoint, and [`DebugRegisters::STEP`].
    pub hits: u64,
}

impl DebugRegisters {
    /// How many breakpoints there are.
    pub const COUNT: usize = 4;
    /// Vector of the debug exception.
    pub const VECTOR: u64 = 1;
    /// In `hits`: an instruction was executed with the trap flag.
    pub const STEP: u64 = 1 << 14;
    /// In `control`: breakpoints that are on, two bits for each.
    pub const ENABLED: u64 = 0xff;

    /// Whether a breakpoint is on.
    pub fn is_armed(&self) -> bool {
        self.control & Self::ENABLED != 0
    }

    /// Whether the breakpoint waits for the execution of an instruction, before which the exception comes then.
    pub fn is_for_execution(&self, index: usize) -> bool {
        self.control >> (16 + 4 * index) & 0b11 == 0
    }
}

/// Why [`UserContext::run`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserEvent {
    /// The `syscall` instruction: number in rax, arguments in rdi rsi rdx r10 r8 r9.
    SystemCall,
    /// An exception.
    Exception(Exception),
    /// The thread's attention flag is set, or another thread should run.
    Interrupted,
    /// Other threads have run since the program was last looked after.
    Switched,
}

/// Counts the time that a thread spends in user mode. Interrupts are off in both functions, and between them no other thread has run.
pub trait Meter {
    /// What is known when a stay begins, to be told at its end.
    type Begun;

    /// User mode is about to be entered.
    fn begin(&self) -> Self::Begun;

    /// It was left, when [`crate::time::cycles`] was that: for an interrupt, before its handler ran.
    fn end(&self, begun: Self::Begun, cycles: u64);
}

/// RFLAGS bits that a user program may have set: CF PF AF ZF SF TF DF OF NT RF AC ID.
pub const USER_RFLAGS: u64 = 0x0025_4dd5;
const RFLAGS_FIXED: u64 = (1 << 1) | (1 << 9);

/// What the entry stubs return in rax.
pub(crate) const EVENT_SYSTEM_CALL: u64 = 0;
pub(crate) const EVENT_EXCEPTION: u64 = 1;

impl UserContext {
    /// Where the entry stubs store the vector.
    #[cfg(target_os = "none")]
    pub(crate) const VECTOR_OFFSET: usize = core::mem::offset_of!(UserContext, vector);
    /// Where the entry stubs store the error code.
    #[cfg(target_os = "none")]
    pub(crate) const ERROR_CODE_OFFSET: usize = core::mem::offset_of!(UserContext, error_code);
    /// Where the entry stubs store CR2.
    #[cfg(target_os = "none")]
    pub(crate) const FAULT_ADDRESS_OFFSET: usize = core::mem::offset_of!(UserContext, fault_address);

    /// A context that starts at `rip` with stack `rsp` and all other registers zero.
    pub fn new(rip: u64, rsp: u64) -> Self {
        Self { registers: UserRegisters { rip, rsp, ..UserRegisters::default() }, ..Self::default() }
    }

    /// Runs the user program until it needs the kernel. Called with interrupts enabled and
    /// preemption enabled; returns so.
    ///
    /// `attention` is checked with interrupts off right before user mode is entered: whoever sets it
    /// and then interrupts this CPU is sure to be noticed. So is `others_ran`, also when that was at the end of an interrupt that came in
    /// the program's midst.
    #[inline]
    pub fn run(
        &mut self,
        attention: &AtomicU8,
        others_ran: impl Fn() -> bool,
        meter: &impl Meter,
    ) -> UserEvent {
        self.run_by(attention, others_ran, meter, enter)
    }

    /// As [`UserContext::run`], with debug registers of the program's own while it is in user mode. The debugger of the kernel lends them; of
    /// what the kernel does for the program they see nothing.
    pub fn run_watched(
        &mut self,
        attention: &AtomicU8,
        others_ran: impl Fn() -> bool,
        meter: &impl Meter,
        registers: &mut DebugRegisters,
    ) -> UserEvent {
        self.run_by(attention, others_ran, meter, |context| {
            let lent = backend::debugger::lend(registers);
            let event = enter(context);
            backend::debugger::take_back(lent);
            if event == EVENT_EXCEPTION && context.vector == DebugRegisters::VECTOR {
                registers.hits = backend::debugger::take_hits();
            }
            event
        })
    }

    #[inline(always)]
    fn run_by(
        &mut self,
        attention: &AtomicU8,
        others_ran: impl Fn() -> bool,
        meter: &impl Meter,
        mut enter: impl FnMut(&mut Self) -> u64,
    ) -> UserEvent {
        self.registers.rflags = (self.registers.rflags & USER_RFLAGS) | RFLAGS_FIXED;
        loop {
            crate::interrupt::disable_unguarded();
            // Relaxed: the setter's interrupt orders its store before this CPU takes the interrupt;
            // without interrupt the flag is seen at the next entry.
            if attention.load(Ordering::Relaxed) != 0 || crate::preempt::need_resched() {
                crate::interrupt::enable();
                return UserEvent::Interrupted;
            }
            if others_ran() {
                crate::interrupt::enable();
                return UserEvent::Switched;
            }
            let begun = meter.begin();
            let event = enter(self);
            // However it was left: an interrupt that has waited comes after that is counted, and may switch threads.
            match event {
                EVENT_SYSTEM_CALL => {
                    left(meter, begun, crate::time::cycles());
                    return UserEvent::SystemCall;
                }
                EVENT_EXCEPTION => {
                    left(meter, begun, crate::time::cycles());
                    let exception = self.exception();
                    if !handled_below(&exception) {
                        return UserEvent::Exception(exception);
                    }
                }
                _ => left(meter, begun, backend::interrupt::began()),
            }
        }
    }

    fn exception(&self) -> Exception {
        Exception {
            vector: self.vector as u8,
            error_code: self.error_code,
            fault_address: self.fault_address,
        }
    }
}

/// User mode was left at that time, and interrupts are off; afterwards they are on.
#[inline(always)]
fn left<M: Meter>(meter: &M, begun: M::Begun, cycles: u64) {
    meter.end(begun, cycles);
    crate::interrupt::enable();
}

/// Exceptions that are the machine's own business even in user mode: machine checks and NMIs have
/// been reported on their stacks already and concern no program.
fn handled_below(exception: &Exception) -> bool {
    const NON_MASKABLE: u8 = 2;
    exception.vector == NON_MASKABLE
}

#[cfg(target_os = "none")]
#[inline(always)]
fn enter(context: &mut UserContext) -> u64 {
    backend::trap::enter_user(context)
}

#[cfg(not(target_os = "none"))]
fn enter(context: &mut UserContext) -> u64 {
    match backend::user::next_event(&mut context.registers) {
        UserEvent::SystemCall => EVENT_SYSTEM_CALL,
        UserEvent::Exception(exception) => {
            context.vector = exception.vector.into();
            context.error_code = exception.error_code;
            context.fault_address = exception.fault_address;
            EVENT_EXCEPTION
        }
        UserEvent::Interrupted => {
            crate::preempt::set_need_resched(true);
            2
        }
        UserEvent::Switched => unreachable!("no script says so"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_fault_error_codes_decode_to_accesses() {
        assert_eq!(access_of(0b0_0100), Access::Read);
        assert_eq!(access_of(0b0_0110), Access::Write);
        assert_eq!(access_of(0b1_0100), Access::Execute);
    }

    #[test]
    fn users_cannot_change_system_flags() {
        const IOPL: u64 = 3 << 12;
        const VM: u64 = 1 << 17;
        const VIF: u64 = 1 << 19;
        assert_eq!(USER_RFLAGS & (IOPL | VM | VIF), 0);
    }
}
