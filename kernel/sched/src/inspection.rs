//! What the kernel debugger sees of threads and run queues while everything stands still.
//!
//! Nothing here waits for a lock: a processor that was stopped with it will not release it. What is locked is said to be so and
//! not looked at, because it may be half changed.

use core::fmt;
use core::sync::atomic::Ordering;

use machine::cpu::CpuId;
use machine::time;
use memory::kstack;

use crate::cpu::{Cpu, IDLE};
use crate::deadline;
use crate::state::RunState;
use crate::thread::{Thread, ThreadName};

/// A thread.
#[derive(Clone, Copy, Debug)]
pub struct ThreadView {
    /// Its number.
    pub id: u64,
    /// Its name, unless somebody was changing it.
    pub name: Option<ThreadName>,
    /// What it is doing.
    pub state: RunState,
    /// The CPU it runs or ran last on.
    pub cpu: CpuId,
    /// Whether a CPU executes it.
    pub runs: bool,
    /// Its stack pointer when it was last switched away from.
    pub saved_pointer: u64,
    /// Pages of its stack: mapped, and at most.
    pub stack_pages: (u32, u32),
}

/// Calls `visit` for each thread that has a kernel stack of its own: all but start-up code.
///
/// # Safety
/// All other processors are stopped, and none of them in the midst of freeing a thread's memory: a thread frees its stack first, and
/// only threads with a stack are looked at.
pub unsafe fn for_each_thread(visit: &mut dyn FnMut(&ThreadView)) {
    kstack::for_each_stack(&mut |stack| {
        let thread = core::ptr::with_exposed_provenance::<Thread>(stack.control as usize);
        // SAFETY: the thread owns the stack that is in use, so it is alive, and nobody ends it meanwhile (caller).
        let Some(thread) = (unsafe { thread.as_ref() }) else { return };
        visit(&ThreadView {
            id: stack.owner,
            name: thread.try_name(),
            state: thread.state.get(),
            cpu: thread.cpu(),
            runs: stack.running_on.is_some(),
            saved_pointer: stack.saved_pointer,
            stack_pages: stack.pages,
        });
    });
}

/// Whether a CPU is in the scheduler and found nothing to run. Others may give it something meanwhile.
pub fn is_idle(cpu: CpuId) -> bool {
    IDLE.contains(cpu, Ordering::SeqCst) && Cpu::of(cpu).running.load(Ordering::SeqCst) == 0
}

/// Writes a CPU's run queue: counts that need no lock, then who waits, unless the CPU was stopped with the queue's lock held.
///
/// # Errors
/// The writer's.
pub fn write_run_queue(of: CpuId, out: &mut dyn fmt::Write) -> fmt::Result {
    let cpu = Cpu::of(of);
    write!(
        out,
        "cpu {of}: {} runnable, rank {}, crowd {}, {} switches, requests {:#x}",
        cpu.running.load(Ordering::Relaxed),
        cpu.rank(),
        cpu.crowd(),
        cpu.switches.load(Ordering::Relaxed),
        cpu.requests.load(Ordering::Relaxed)
    )?;
    write_deadline(deadline::armed_ns(of), time::now_ns(), out)?;
    let Some(queue) = cpu.queue.try_lock() else { return writeln!(out, ", locked") };
    writeln!(out)?;
    let mut result = Ok(());
    queue.for_each_waiting(|thread| {
        if result.is_ok() {
            result = write!(out, "  waits: thread {} ", thread.id())
                .and_then(|()| write_name(thread.try_name(), out))
                .and_then(|()| writeln!(out));
        }
    });
    result
}

/// Writes when a CPU's next deadline is. One that stays in the past on a CPU that goes on was not heard, and no other will come.
fn write_deadline(armed_ns: Option<u64>, now_ns: u64, out: &mut dyn fmt::Write) -> fmt::Result {
    const MICROSECOND_NS: u64 = 1_000;
    let Some(armed_ns) = armed_ns else { return out.write_str(", no deadline") };
    let distance = armed_ns.abs_diff(now_ns) / MICROSECOND_NS;
    match armed_ns < now_ns {
        true => write!(out, ", deadline {distance} us ago"),
        false => write!(out, ", deadline in {distance} us"),
    }
}

/// Writes a thread's name.
///
/// # Errors
/// The writer's.
pub fn write_name(name: Option<ThreadName>, out: &mut dyn fmt::Write) -> fmt::Result {
    let Some(name) = name else { return out.write_str("?") };
    name.as_bytes()
        .iter()
        .try_for_each(|&byte| out.write_char(if byte.is_ascii_graphic() { char::from(byte) } else { '.' }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::String;

    fn deadline_line(armed_ns: Option<u64>, now_ns: u64) -> String {
        let mut line = String::new();
        write_deadline(armed_ns, now_ns, &mut line).unwrap();
        line
    }

    #[test]
    fn deadlines_that_passed_are_told_from_those_to_come() {
        assert_eq!(deadline_line(None, 5), ", no deadline");
        assert_eq!(deadline_line(Some(7_000), 5_000), ", deadline in 2 us");
        assert_eq!(deadline_line(Some(5_000), 7_000), ", deadline 2 us ago");
    }

    #[test]
    fn run_queue_is_shown_with_its_deadline() {
        crate::current();
        let mut text = String::new();
        write_run_queue(machine::cpu::current(), &mut text).unwrap();
        assert!(text.contains("deadline"), "{text}");
    }
}
