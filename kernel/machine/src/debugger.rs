//! Where processors enter the kernel debugger, and what it needs of the machine.
//!
//! The debugger itself lives in a crate above and registers a hook; without it everything here does nothing, and what would
//! enter it is what it was before (a kernel bug, an interrupt that is counted). A processor enters with interrupts off, with the
//! registers of what it interrupted, on the stack of the trap. Which processors want the debugger is one word, the
//! *requests*: it is written by the debugger, and read here to tell why a non-maskable interrupt came, and by loops that wait
//! with interrupts off ([`is_requested`]).

use core::sync::atomic::{AtomicU64, Ordering};

use crate::backend;
use crate::cpu::{self, CpuId, CpuSet};

/// Why a processor comes to the debugger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A breakpoint instruction in the kernel: on purpose ([`breakpoint`]).
    Breakpoint,
    /// A hardware breakpoint, or a single step.
    Watch,
    /// A trap that the kernel should not have taken, or a panic.
    Fault,
    /// Somebody outside pressed the button (a non-maskable interrupt).
    Button,
    /// Another processor has asked.
    Summons,
}

/// Bit n: processor n wants the debugger. Set and cleared by the debugger.
static REQUESTS: AtomicU64 = AtomicU64::new(0);

/// Bit n: processor n is in the debugger. Written by the processor itself.
static INSIDE: AtomicU64 = AtomicU64::new(0);

/// Whether this processor is in the debugger. The caller cannot migrate, or does not care.
pub fn is_inside() -> bool {
    INSIDE.load(Ordering::Relaxed) & CpuSet::only(cpu::current()).bits() != 0
}

/// Notes that this processor has come into the debugger, or has left it; says whether it was inside before.
pub fn set_inside(inside: bool) -> bool {
    let this = CpuSet::only(cpu::current()).bits();
    let before = match inside {
        true => INSIDE.fetch_or(this, Ordering::Relaxed),
        false => INSIDE.fetch_and(!this, Ordering::Relaxed),
    };
    before & this != 0
}

/// The processors that want the debugger.
pub fn requests() -> CpuSet {
    CpuSet::from_bits(REQUESTS.load(Ordering::SeqCst))
}

/// Notes that a processor wants the debugger.
pub fn add_request(cpu: CpuId) {
    REQUESTS.fetch_or(CpuSet::only(cpu).bits(), Ordering::SeqCst);
}

/// Takes these processors' requests back.
pub fn clear_requests(cpus: CpuSet) {
    REQUESTS.fetch_and(!cpus.bits(), Ordering::SeqCst);
}

/// Whether some processor wants all others in the debugger. Cheap: loops that wait with interrupts off ask it.
#[inline(always)]
pub fn is_requested() -> bool {
    REQUESTS.load(Ordering::Relaxed) != 0
}

/// Joins the others in the debugger, from a loop that waits.
#[cold]
#[inline(never)]
pub fn join() {
    // Who asks for the debugger has one.
    backend::debugger::enter(Cause::Summons);
}

/// Enters the debugger, if there is one and it is on.
pub fn breakpoint() {
    if is_present() {
        backend::debugger::enter(Cause::Breakpoint);
    }
}

/// Enters the debugger because the kernel panics, if there is one that wants to know.
pub(crate) fn panicking() {
    if is_present() && !is_inside() {
        backend::debugger::enter(Cause::Fault);
    }
}

/// Whether there is a debugger.
pub fn is_present() -> bool {
    backend::debugger::is_present()
}

/// Interrupts a processor as the button outside does: for tests of that.
pub fn press_button(cpu: CpuId) {
    backend::debugger::press_button(cpu);
}

#[cfg(target_os = "none")]
pub use on_the_machine::*;

#[cfg(target_os = "none")]
mod on_the_machine {
    use super::Cause;
    use crate::TrapFrame;
    use crate::address::{PhysAddr, VirtAddr};
    use crate::backend;
    use crate::cpu::CpuId;
    use crate::set_once::SetOnce;

    /// Handles an entry; false: it is not for the debugger.
    pub type EnterHook = fn(Cause, &mut TrapFrame) -> bool;

    static HOOK: SetOnce<EnterHook> = SetOnce::new();

    /// Registers the debugger. Once.
    pub fn set_hook(hook: EnterHook) {
        HOOK.set(hook);
    }

    /// Whether a debugger has registered.
    pub(crate) fn has_hook() -> bool {
        HOOK.get_ref().is_some()
    }

    /// A processor comes to the debugger; called by the traps.
    pub(crate) fn enter(cause: Cause, frame: &mut TrapFrame) -> bool {
        HOOK.get().is_some_and(|hook| hook(cause, frame))
    }

    /// Hardware breakpoints that a processor has.
    pub const WATCHES: usize = 4;

    /// What a hardware breakpoint waits for.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum Access {
        /// The execution of the instruction at the address.
        Execute,
        /// A write to the eight bytes at the address.
        Write,
        /// Any access to the eight bytes at the address.
        ReadWrite,
    }

    /// Arms one of this processor's hardware breakpoints; None disarms it.
    pub fn set_watch(index: usize, watch: Option<(VirtAddr, Access)>) {
        assert!(index < WATCHES, "a processor has four hardware breakpoints");
        backend::debugger::set_watch(index, watch);
    }

    /// A processor is about to halt in [`rest_while`].
    pub const HALTING: u32 = 0x5001;

    /// Waits in the debugger as long as `waits` says so, without keeping a processor of the host busy. Who changes what it says calls
    /// [`wake`] afterwards.
    pub fn rest_while(waits: &dyn Fn() -> bool) {
        backend::rest::rest_while(waits);
    }

    /// Has a processor that waits in [`rest_while`] look again.
    pub fn wake(cpu: CpuId) {
        backend::rest::wake(cpu);
    }

    /// Which of this processor's hardware breakpoints were hit (a bit each), and bit 14: a single step. Forgets them.
    pub fn take_hits() -> u64 {
        backend::debugger::take_hits()
    }

    /// Disarms this processor's hardware breakpoints; returns what [`rearm`] takes.
    pub fn disarm() -> u64 {
        backend::debugger::disarm()
    }

    /// Arms again what [`disarm`] has disarmed.
    pub fn rearm(control: u64) {
        backend::debugger::rearm(control);
    }

    /// Reads a word of memory through page tables that start at `root`, whatever they say about rights. None where nothing but device
    /// registers or nothing is mapped.
    pub fn read_word(root: PhysAddr, address: VirtAddr) -> Option<u64> {
        backend::debugger::read_word(root, address)
    }

    /// The entries of the page tables from `root` down that lead to an address: level, place of the entry, entry. The last one is not
    /// present or maps a page.
    pub fn for_each_entry(root: PhysAddr, address: VirtAddr, visit: &mut dyn FnMut(u32, PhysAddr, u64)) {
        backend::debugger::for_each_entry(root, address, visit);
    }
}
