//! Interrupts between processors.
//!
//! An IPI carries no data: the sender puts what it has to say into memory first, and the send is a full barrier
//! after it. Sending to oneself is allowed and arrives like any other.

use crate::backend;
use crate::cpu::CpuId;
use crate::hook::Hook;

/// What one processor can poke another about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ipi {
    /// Run the scheduler soon.
    Reschedule,
    /// Look into the message boxes.
    Call,
    /// Join the others in the debugger; see [`crate::debugger`], which handles it.
    Debugger,
}

static RESCHEDULE: Hook = Hook::new();
static CALL: Hook = Hook::new();
static DEBUGGER: Hook = Hook::new();

impl Ipi {
    fn hook(self) -> &'static Hook {
        match self {
            Ipi::Reschedule => &RESCHEDULE,
            Ipi::Call => &CALL,
            Ipi::Debugger => &DEBUGGER,
        }
    }
}

/// Interrupts a processor.
#[inline]
pub fn send(target: CpuId, ipi: Ipi) {
    backend::ipi::send(target, ipi);
}

/// Interrupts a processor by a vector that somebody has taken: for measuring.
pub fn send_vector(target: CpuId, vector: crate::interrupt::Vector) {
    backend::ipi::send_number(target, vector.number());
}

/// Sets what the receiving processor runs, on its interrupt stack with interrupts disabled.
pub fn set_handler(ipi: Ipi, handler: fn()) {
    ipi.hook().set(handler);
}

/// How often a processor was interrupted for this reason.
pub fn count(cpu: CpuId, ipi: Ipi) -> u64 {
    backend::ipi::count(cpu, ipi)
}

/// Interrupts a processor whatever it does. It joins the debugger if that wants it, and else only counts that (vector 2): tests use it
/// to hit any instruction. While one is on its way, another is not sent. Nothing happens on the hosted machine.
pub fn send_non_maskable(target: CpuId) {
    backend::ipi::send_non_maskable(target);
}

/// Whether one that was sent so to a processor has not arrived.
pub fn awaits_non_maskable(target: CpuId) -> bool {
    backend::ipi::awaits_non_maskable(target)
}

/// Stops all other processors for good, whatever they do, by non-maskable interrupt.
pub fn stop_other_cpus() {
    backend::ipi::stop_other_cpus();
}

/// Runs the handler of an IPI that has arrived; called by the back end.
pub(crate) fn deliver(ipi: Ipi) {
    ipi.hook().call();
}
