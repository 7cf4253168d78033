//! What traps ask of the layers above: resolving page faults and growing kernel stacks.
//!
//! The trap code is the lowest layer, yet a page fault needs an address space and a stack fault
//! needs the stack's descriptor. Both are reached through hooks that the owner registers once at
//! start-up, before the first user instruction and before the second CPU runs. A hook that is not
//! registered makes the fault a kernel bug (for kernel stacks) or [`FaultError::NotMapped`].

use crate::address::{UserAddr, VirtAddr};
#[cfg(target_os = "none")]
use crate::backend::trap::frame::TrapFrame;
use crate::set_once::SetOnce;

#[cfg(target_os = "none")]
pub use crate::backend::trap::{abandon_page_fault, fault_on_own_stack};

/// What the faulting access wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// A load.
    Read,
    /// A store, or a read-modify-write.
    Write,
    /// An instruction fetch.
    Execute,
}

/// Why a user-space access can't be satisfied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultError {
    /// No mapping at the address (SEGV_MAPERR).
    NotMapped,
    /// The mapping forbids the access (SEGV_ACCERR).
    AccessDenied,
    /// The mapping's object has no data there, or reading it failed (BUS_ADRERR).
    Bus,
    /// No memory even after reclaim and the out-of-memory policy.
    OutOfMemory,
    /// Only another program can say what is there, and it is asked by the program's own instructions only: the kernel does not
    /// wait for programs in the midst of what it does.
    Pager,
}

/// A user-memory access by the kernel that failed; the system call ends in EFAULT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault;

/// Outcome of asking the kernel-stack owner about a kernel-mode fault
/// (specs/kernel-stacks.md M5 steps 3 to 5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFault {
    /// The page was within the window and is mapped now: restart the instruction.
    Grown,
    /// The page has been mapped since: restart the instruction. Only where double faults map pages, too.
    Present,
    /// The page is within the window, but there is no frame for it.
    Starved,
    /// The address lies in the guard of the running thread's slot.
    Overflow,
    /// The address is in a slot that is not the running thread's: a kernel bug.
    Foreign,
    /// Not a kernel-stack address at all.
    NotStack,
}

/// Hooks of the owner of the kernel stacks.
#[derive(Clone, Copy)]
pub struct StackHooks {
    /// Called on the #PF stack with interrupts off for a kernel-mode fault in the thread-slot range:
    /// (faulting address, interrupted stack pointer, whether the interrupted code may sleep). Takes no lock, allocates
    /// nothing, logs nothing.
    pub grow: fn(VirtAddr, VirtAddr, bool) -> StackFault,
    /// Backs the running thread's stack down to the address; called with interrupts off before the
    /// trap code copies a frame there. False when that many bytes beneath the address are not in the stack: then the
    /// thread must not be stopped here.
    pub ensure: fn(VirtAddr, u64) -> bool,
    /// There is no frame to grow with: parks the thread, if the flag says that it may sleep, or panics; never returns.
    #[cfg(target_os = "none")]
    pub starved: fn(&TrapFrame, VirtAddr, bool) -> !,
    /// The running thread overflowed its stack; kills it or panics, never returns.
    #[cfg(target_os = "none")]
    pub overflow: fn(&TrapFrame, VirtAddr) -> !,
}

/// Resolves a fault of the running thread at a user address; may sleep.
pub type UserFaultHandler = fn(UserAddr, Access) -> Result<(), FaultError>;

static USER_FAULT: SetOnce<UserFaultHandler> = SetOnce::new();
static STACK: SetOnce<StackHooks> = SetOnce::new();

/// Registers the resolver of user-address faults. Once, at start-up.
pub fn set_user_fault_handler(handler: UserFaultHandler) {
    USER_FAULT.set(handler);
}

/// Registers the owner of the kernel stacks. Once, at start-up.
pub fn set_stack_hooks(hooks: StackHooks) {
    STACK.set(hooks);
}

/// Asks the registered handler to resolve a fault at a user address; may sleep.
///
/// # Errors
/// The handler's reason; [`FaultError::NotMapped`] before a handler is registered.
pub fn resolve_user_fault(address: UserAddr, access: Access) -> Result<(), FaultError> {
    match USER_FAULT.get() {
        Some(handler) => handler(address, access),
        None => Err(FaultError::NotMapped),
    }
}

/// The registered kernel-stack hooks.
pub fn stack_hooks() -> Option<&'static StackHooks> {
    STACK.get_ref()
}

/// Panics because of a page fault that must not happen.
#[cfg(target_os = "none")]
pub fn report_kernel_bug(what: &str, frame: &TrapFrame, address: VirtAddr) -> ! {
    crate::panic::report_trap(what, frame, Some(address.as_u64()))
}
