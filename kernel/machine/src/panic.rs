//! The end of everything: a report of what went wrong, then silence on all processors.
//!
//! The first processor to panic stops the others by non-maskable interrupt, reports, tells the upper layers through
//! the hook (which passes the news to the host), and turns the machine off; with `panic=halt` on the command line it
//! halts instead, for a debugger. A processor that panics while another's report is on its way just stops; a panic
//! within the report ends it. If there is a [debugger], it is entered first.

use crate::backtrace::Backtrace;
use crate::{backend, boot, console, cpu, debugger, interrupt, ipi, power};
use core::fmt;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// Nobody has panicked.
const NOBODY: usize = usize::MAX;

/// The number of the processor that panicked.
static PANICKED: AtomicUsize = AtomicUsize::new(NOBODY);
/// A `fn(&str)`, null while there is none.
static HOOK: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets what is called with one line about the panic, after the report. It must not wait for anybody: the other
/// processors are stopped, and locks they held stay locked.
pub fn set_hook(hook: fn(&str)) {
    HOOK.store(hook as *mut (), Ordering::Release);
}

/// Whether the kernel is on its way down.
pub fn is_panicking() -> bool {
    PANICKED.load(Ordering::Relaxed) != NOBODY
}

/// Reports a panic of the kernel and stops the machine: the body of the binary's panic handler.
#[inline(never)]
pub fn report_and_stop(info: &PanicInfo<'_>) -> ! {
    let backtrace = Backtrace::here();
    debugger::panicking();
    begin();
    report(format_args!("{info}"), None, backtrace);
    finish("kernel panic")
}

/// Panics because of a trap that the kernel should never have taken.
#[cfg(target_os = "none")]
pub(crate) fn report_trap(what: &str, frame: &crate::TrapFrame, fault_address: Option<u64>) -> ! {
    // The debugger shows a copy: what it changes would have no effect.
    debugger::enter(debugger::Cause::Fault, &mut frame.clone());
    begin();
    let backtrace = Backtrace::from_registers(frame.rip, frame.rbp);
    match fault_address {
        Some(address) => report(format_args!("{what} at address {address:#x}"), Some(frame), backtrace),
        None => report(format_args!("{what}"), Some(frame), backtrace),
    }
    finish(what)
}

/// Makes this the processor that panicks, or stops it if another one does already.
fn begin() {
    interrupt::disable_unguarded();
    let own = cpu::current().index();
    match PANICKED.compare_exchange(NOBODY, own, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => ipi::stop_other_cpus(),
        Err(first) if first == own => {
            console::write_bytes(b"\npanic within the panic report\n");
            stop();
        }
        Err(_) => cpu::halt_forever(),
    }
}

fn report(what: fmt::Arguments<'_>, frame: Option<&Frame>, backtrace: Backtrace) {
    let now_us = crate::time::now_ns() / 1000;
    console::print(format_args!(
        "\nkernel panic on processor {} after {}.{:06} s: {what}\n",
        cpu::current(),
        now_us / 1_000_000,
        now_us % 1_000_000,
    ));
    if let Some(frame) = frame {
        print_frame(frame);
    }
    for (name, value) in backend::backtrace::registers() {
        console::print(format_args!("{name} {value:#x}  "));
    }
    console::print(format_args!("\nthread {:#x}, called from:\n{backtrace}", cpu::thread_word()));
    console::print(format_args!("end of the report\n"));
}

#[cfg(target_os = "none")]
type Frame = crate::TrapFrame;
#[cfg(not(target_os = "none"))]
type Frame = core::convert::Infallible;

#[cfg(not(target_os = "none"))]
fn print_frame(frame: &Frame) {
    match *frame {}
}

#[cfg(target_os = "none")]
fn print_frame(frame: &Frame) {
    console::print(format_args!(
        "vector {} error code {:#x} cs {:#x} ss {:#x}\n\
         rip {:016x} rsp {:016x} rflags {:08x}\n\
         rax {:016x} rbx {:016x} rcx {:016x} rdx {:016x}\n\
         rsi {:016x} rdi {:016x} rbp {:016x} r8  {:016x}\n\
         r9  {:016x} r10 {:016x} r11 {:016x} r12 {:016x}\n\
         r13 {:016x} r14 {:016x} r15 {:016x}\n",
        frame.vector,
        frame.error_code,
        frame.cs,
        frame.ss,
        frame.rip,
        frame.rsp,
        frame.rflags,
        frame.rax,
        frame.rbx,
        frame.rcx,
        frame.rdx,
        frame.rsi,
        frame.rdi,
        frame.rbp,
        frame.r8,
        frame.r9,
        frame.r10,
        frame.r11,
        frame.r12,
        frame.r13,
        frame.r14,
        frame.r15,
    ));
}

fn finish(what: &str) -> ! {
    let pointer = HOOK.load(Ordering::Acquire);
    if !pointer.is_null() {
        // SAFETY: a non-null pointer was made from a `fn(&str)` in `set_hook`, the only writer.
        let hook = unsafe { core::mem::transmute::<*mut (), fn(&str)>(pointer) };
        hook(what);
    }
    stop()
}

fn stop() -> ! {
    if boot::info().option("panic") == Some("halt") {
        cpu::halt_forever()
    }
    power::power_off()
}
