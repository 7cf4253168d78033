//! A stack that is full (specs/kernel-stacks.md §M8).
//!
//! The report is written on the page-fault stack. Then, by the policy `kill`, the thread never runs again: the hook
//! switches away from it for good and has its process ended. Its stack stays as it is, because lists may lead into it;
//! what its frames hold (references, memory) is lost with them: the price of going on. If the thread holds a spin lock
//! or runs with preemption or interrupts off, its locks would stay taken for ever, so then the kernel panics, as by the
//! policy `panic`. The guard has been hit before anything was written: neighbours are unharmed in any case.

use core::fmt;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::VirtAddr;
use machine::backtrace::Backtrace;
use machine::console;
use machine::{TrapFrame, fault};

use super::super::NameHook;
use super::super::geometry::Window;
use super::super::parameters::{OverflowPolicy, overflow_policy};
use super::super::per_cpu::NO_SLOT;
use super::descriptor::{self, OVERFLOWED};
use super::statistics::write_window;
use crate::frame::per_cpu::bump;
use crate::local;

/// A `fn() -> !`, or null.
static KILL: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());
/// A `fn(u64, &mut dyn Write) -> fmt::Result`, or null.
static NAME: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what ends a thread whose stack overflowed. It is called on the page-fault stack, with interrupts off.
pub fn set_kill_hook(kill: fn() -> !) {
    // Release: pairs with the Acquire in `overflow`.
    KILL.store(kill as *mut (), Release);
}

/// Sets what names a thread in the report, without locks.
pub fn set_name_hook(name: NameHook) {
    NAME.store(name as *mut (), Release);
}

/// The overflow hook: see the theory of this file.
pub(crate) fn overflow(frame: &TrapFrame, fault: VirtAddr) -> ! {
    let running = local::of(machine::cpu::current())
        .map(|memory| {
            bump(&memory.stacks.counters.overflows, 1);
            memory.stacks.running.load(Relaxed)
        })
        .filter(|&slot| slot != NO_SLOT);
    let Some(slot) = running else {
        fault::report_kernel_bug("kernel stack overflow on no stack", frame, fault);
    };
    let known = descriptor::at(slot);
    let window = known.window(slot);
    console::print(format_args!("{}", Report { frame, fault, window, owner: known.owner.load(Relaxed) }));
    let kill = KILL.load(Acquire);
    if overflow_policy() == OverflowPolicy::Panic || kill.is_null() || !may_die(frame) {
        fault::report_kernel_bug("kernel stack overflow", frame, fault);
    }
    known.flags.fetch_or(OVERFLOWED, Relaxed);
    // SAFETY: a non-null pointer was made from a `fn() -> !` in `set_kill_hook`, the only writer.
    let kill = unsafe { core::mem::transmute::<*mut (), fn() -> !>(kill) };
    // SAFETY: the thread never continues from the fault, and `kill` does not return.
    unsafe { fault::abandon_page_fault() };
    kill()
}

/// Whether the thread can end here without taking anything with it that others wait for.
fn may_die(frame: &TrapFrame) -> bool {
    machine::preempt::count() == 0 && frame.interrupts_were_enabled() && !machine::interrupt::in_interrupt()
}

struct Report<'a> {
    frame: &'a TrapFrame,
    fault: VirtAddr,
    window: Window,
    owner: u64,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (owner, window) = (self.owner, &self.window);
        write!(out, "kernel stack overflow: thread {owner}")?;
        let name = NAME.load(Acquire);
        if !name.is_null() {
            // SAFETY: a non-null pointer was made from a `NameHook` in `set_name_hook`, the only writer.
            let name = unsafe { core::mem::transmute::<*mut (), NameHook>(name) };
            out.write_str(" ")?;
            name(owner, out)?;
        }
        let depth = window.top().saturating_sub(self.frame.rsp);
        writeln!(out, ", {depth} bytes deep, address {:#x}", self.fault.as_u64())?;
        write!(out, "{}", Backtrace::from_registers(self.frame.rip, self.frame.rbp))?;
        write_window(out, window)
    }
}
