//! What the kernel debugger sees of threads and run queues while everything stands still.
//!
//! Nothing here waits for a lock: a processor that was stopped with it will not release it. What is locked is said to be so and
//! not looked at, because it may be half changed.

use core::fmt;
use core::sync::atomic::Ordering;

use machine::cpu::CpuId;
use memory::kstack;

use crate::cpu::Cpu;
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
