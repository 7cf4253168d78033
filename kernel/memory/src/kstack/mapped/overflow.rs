//! A stack that is full (specs/kernel-stacks.md §M8).
//!
//! The report is written on the page-fault stack. Then, by the policy `kill`, the thread never runs again: the hook
//! switches away from it for good and has its process ended. Its stack stays as it is, because lists may lead into it;
//! what its frames hold (references, memory) is lost with them: the price of going on. If the thread holds a lock,
//! spinning or sleeping, or runs with preemption or interrupts off, its locks would stay taken for ever, so then the kernel panics, as by the
//! policy `panic`. The guard has been hit before anything was written: neighbours are unharmed in any case.
//!
//! The last report is kept, see [`last_report`]. A test that overflows a stack on purpose says so ([`expect_overflow`]);
//! then the report goes there only, and the console stays quiet.

use core::fmt;
use core::sync::atomic::{
    AtomicPtr,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::address::VirtAddr;
use machine::backtrace::Backtrace;
use machine::console;
use machine::{TrapFrame, fault};
use sync::IrqSpinLock;

use super::super::NameHook;
use super::super::geometry::Window;
use super::super::parameters::{OverflowPolicy, overflow_policy};
use super::super::per_cpu::NO_SLOT;
use super::descriptor::{self, EXPECTED, OVERFLOWED};
use super::grow;
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
    let report = Report { frame, fault, window, owner: known.owner.load(Relaxed) };
    keep(&report);
    let dies = overflow_policy() == OverflowPolicy::Kill && may_die(frame);
    if !(dies && known.has_flag(EXPECTED)) {
        console::print(format_args!("{report}"));
    }
    let kill = KILL.load(Acquire);
    if kill.is_null() || !dies {
        fault::report_kernel_bug("kernel stack overflow", frame, fault);
    }
    known.flags.fetch_or(OVERFLOWED, Relaxed);
    // SAFETY: a non-null pointer was made from a `fn() -> !` in `set_kill_hook`, the only writer.
    let kill = unsafe { core::mem::transmute::<*mut (), fn() -> !>(kill) };
    // SAFETY: the thread never continues from the fault, and `kill` does not return.
    unsafe { fault::abandon_page_fault() };
    kill()
}

/// Bytes of the last report that are kept.
const REPORT_BYTES: usize = 2048;

struct LastReport {
    text: [u8; REPORT_BYTES],
    length: usize,
}

impl fmt::Write for LastReport {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let bytes = text.as_bytes();
        let length = bytes.len().min(REPORT_BYTES - self.length);
        self.text[self.length..self.length + length].copy_from_slice(&bytes[..length]);
        self.length += length;
        Ok(())
    }
}

static LAST: IrqSpinLock<LastReport> = IrqSpinLock::new(LastReport { text: [0; REPORT_BYTES], length: 0 });

/// Keeps a report in place of the last one, unless that one is being read or written just now: by whom may be the
/// interrupted code, so this does not wait.
fn keep(report: &Report<'_>) {
    if let Some(mut last) = LAST.try_lock() {
        last.length = 0;
        // What is too long is cut.
        let _ = fmt::Write::write_fmt(&mut *last, format_args!("{report}"));
    }
}

/// Calls `read` with the report of the last overflow, empty if there was none. It is a copy's work: a lock is held.
pub fn last_report<R>(read: impl FnOnce(&str) -> R) -> R {
    let last = LAST.lock();
    let text = &last.text[..last.length];
    // The end may be cut within a character.
    read(match core::str::from_utf8(text) {
        Ok(text) => text,
        Err(error) => core::str::from_utf8(&text[..error.valid_up_to()]).unwrap_or_default(),
    })
}

/// Makes an overflow of the calling thread's stack a test's, or no longer: see the theory of this file.
pub fn expect_overflow(expected: bool) {
    let _preemption_off = machine::preempt::disable();
    if let Some(window) = grow::own_window() {
        descriptor::at(window.slot).set_flag(EXPECTED, expected);
    }
}

/// Whether the thread can end here without taking anything with it that others wait for.
fn may_die(frame: &TrapFrame) -> bool {
    machine::preempt::count() == 0
        && machine::preempt::locks_held() == 0
        && frame.interrupts_were_enabled()
        && !machine::interrupt::in_interrupt()
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
        let end = if self.fault.as_u64() < window.top() { "overflow" } else { "underflow" };
        write!(out, "kernel stack {end}: thread {owner}")?;
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
