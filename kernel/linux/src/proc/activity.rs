//! What a thread is doing and has done: `wchan`, `stack`, `syscall`, `personality` and `io` of a process's or thread's directory (proc(5)).
//!
//! A thread is looked at while it sleeps; of one that runs nothing is said but that it does. Unlike other files that not everybody
//! may see, these let everybody open them whom their mode lets, and refuse when they are read, each in its own way.

use alloc::sync::Arc;
use core::fmt::Write;
use core::sync::atomic::Ordering;

use machine::symbols::{self, Symbol};
use machine::time::now_ns;
use machine::user::{NO_CALL, UserRegisters};
use sched::{Observation, RunState};
use vfs::text::Text;
use vfs::{Capabilities, Error, Result};

use super::process::Subject;
use crate::terminal::calling_thread;

/// When a thread that is about to sleep is looked for again.
const SETTLING_NS: u64 = 50_000;

/// How the thread is found.
enum Activity {
    /// It runs, or is about to.
    Running,
    /// It is the one that asks.
    Asking(Observation),
    Sleeping(Observation),
    /// There is none: it has ended, or never was.
    None,
}

impl Activity {
    fn of(subject: &Subject) -> Result<Activity> {
        let thread = match subject.shown_thread() {
            // A zombie, or process 1, which is in the kernel.
            Err(_) if !subject.is_thread() && subject.process()?.thread_count() == 0 => None,
            shown => shown?,
        };
        let Some(thread) = thread else { return Ok(Activity::None) };
        let Some(kernel) = thread.kernel_thread() else { return Ok(Activity::Running) };
        let mut observation = kernel.observe();
        // One that is shown as stopped may still be on its way to sleep.
        while observation.is_none() && thread.stopped.load(Ordering::Relaxed) {
            sched::timer::sleep_until(now_ns() + SETTLING_NS).map_err(|_| Error::Interrupted)?;
            observation = kernel.observe();
        }
        let is_caller = calling_thread().is_some_and(|caller| Arc::ptr_eq(&thread, &caller));
        Ok(match observation {
            Some(observation) if is_caller => Activity::Asking(observation),
            Some(observation) => Activity::Sleeping(observation),
            None if kernel.state() == RunState::Dead => Activity::None,
            None => Activity::Running,
        })
    }
}

/// The functions that a thread is in, innermost first.
fn functions(observation: &Observation) -> impl Iterator<Item = (usize, Option<Symbol>)> {
    // A return address may be the first of the next function; the call is before it.
    observation.calls.addresses().iter().map(|&address| (address, symbols::resolve(address - 1)))
}

/// Whether everybody sleeps in this function, so that it says nothing.
fn is_of_the_scheduler(name: &str) -> bool {
    name.trim_start_matches('<').starts_with("sched::") || name.starts_with("starling_")
}

/// `wchan`: the function that the thread sleeps in, or 0 for those who may not know.
pub(super) fn wait_channel(subject: &Subject, out: &mut Text) -> Result<()> {
    let activity = match subject.inspect(|| Ok(Activity::of(subject))) {
        Ok(activity) => activity?,
        Err(_) => Activity::Running,
    };
    let function = match &activity {
        Activity::Sleeping(observation) => functions(observation)
            .filter_map(|(_, symbol)| symbol)
            .map(|symbol| symbol.name)
            .find(|name| !is_of_the_scheduler(name)),
        _ => None,
    };
    let _ = out.write_str(function.as_deref().unwrap_or("0"));
    Ok(())
}

/// `stack`: the calls on the thread's kernel stack.
pub(super) fn kernel_stack(subject: &Subject, out: &mut Text) -> Result<()> {
    if calling_thread().is_some_and(|caller| !caller.credentials().has(Capabilities::SYS_ADMIN)) {
        return Err(Error::AccessDenied);
    }
    let activity = subject.inspect_attaching(|| Activity::of(subject)).map_err(refusal)?;
    if let Activity::Sleeping(observation) | Activity::Asking(observation) = activity {
        for (address, symbol) in functions(&observation) {
            let _ = match symbol {
                Some(symbol) => writeln!(out, "[<0>] {symbol}/{:#x}", symbol.size),
                None => writeln!(out, "[<0>] {address:#x}"),
            };
        }
    }
    Ok(())
}

/// `syscall`: the system call that the thread sleeps in, with its arguments, the stack pointer and the place in the program.
pub(super) fn system_call(subject: &Subject, out: &mut Text) -> Result<()> {
    let program = match subject.inspect_attaching(|| Activity::of(subject)).map_err(refusal)? {
        Activity::Running => {
            let _ = out.write_str("running\n");
            return Ok(());
        }
        Activity::None => None,
        Activity::Asking(observation) | Activity::Sleeping(observation) => observation.program,
    };
    let (call, registers) = program.unwrap_or((NO_CALL, UserRegisters::default()));
    if call == NO_CALL {
        let _ = out.write_str("-1");
    } else {
        let _ = write!(out, "{call}");
        for argument in
            [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9]
        {
            let _ = write!(out, " {argument:#x}");
        }
    }
    let _ = writeln!(out, " {:#x} {:#x}", registers.rsp, registers.rip);
    Ok(())
}

/// `personality`: the execution domain.
pub(super) fn personality(subject: &Subject, out: &mut Text) -> Result<()> {
    let persona = subject.inspect_attaching(|| Ok(subject.thread()?.persona())).map_err(refusal)?;
    let _ = writeln!(out, "{:08x}", persona.bits());
    Ok(())
}

/// What those hear who may not look: not that the file is closed to them, but that the process is.
fn refusal(error: Error) -> Error {
    if error == Error::AccessDenied { Error::NotPermitted } else { error }
}

/// `io`: what the thread has read and written, or what the process has with children that it waited for.
pub(super) fn transfers(subject: &Subject, out: &mut Text) -> Result<()> {
    let values = subject.inspect(|| {
        Ok(if subject.is_thread() {
            subject.shown_thread()?.map(|thread| thread.transfers.values()).unwrap_or_default()
        } else {
            subject.process()?.transferred()
        })
    })?;
    for (name, value) in [
        ("rchar", values.read_bytes),
        ("wchar", values.written_bytes),
        ("syscr", values.reads),
        ("syscw", values.writes),
        // Nothing lies on a block device.
        ("read_bytes", 0),
        ("write_bytes", 0),
        ("cancelled_write_bytes", 0),
    ] {
        let _ = writeln!(out, "{name}: {value}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_the_scheduler_are_told_by_their_names() {
        assert!(is_of_the_scheduler("sched::dispatch::schedule"));
        assert!(is_of_the_scheduler("<sched::wait_queue::WaitQueue>::wait"));
        assert!(is_of_the_scheduler("starling_switch"));
        assert!(!is_of_the_scheduler("linux::scheduling::sched_yield"));
    }
}
