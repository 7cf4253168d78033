//! What happens when memory runs out: the process that uses most of it is killed, with a report (`oom_score_adj` counts).

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

use memory::address_space::AddressSpace;
use sched::WaitQueue;

use crate::process::process::Process;
use crate::process::table;
use crate::process::table::Pid;
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

const ADJUSTMENT_NEVER: i16 = -1000;
/// How long one victim is given to end before another is chosen.
const PATIENCE_NS: u64 = 1_000_000_000;
const POLL_NS: u64 = 1_000_000;

/// Whether a thread is about to kill a process; others that run out of memory wait for what that brings.
static BUSY: AtomicBool = AtomicBool::new(false);
/// Where they wait.
static DONE: WaitQueue = WaitQueue::new();

/// Registers the policy. Once, at start-up.
pub fn install() {
    memory::oom::set_policy(relieve);
}

/// How much memory the victim's end would free, adjusted as its owner wished; `None` for those that must live.
fn badness(process: &Process, total: u64) -> Option<u64> {
    let adjustment = process.oom_adjustment.load(Ordering::Relaxed);
    if process.pid() == table::INIT || adjustment == ADJUSTMENT_NEVER || process.is_zombie() {
        return None;
    }
    let used = process.look_at_address_space(AddressSpace::badness_bytes)? as i64;
    let score = used + i64::from(adjustment) * (total / 1000) as i64;
    Some(score.max(1) as u64)
}

/// Frees memory by ending a process; returns whether trying again makes sense.
pub fn relieve() -> bool {
    if is_dying() {
        return false;
    }
    if BUSY.swap(true, Ordering::Acquire) {
        return wait_for_other();
    }
    let helped = kill_one();
    // Release: pairs with the Acquire above, so that the next one sees the victim as it is now.
    BUSY.store(false, Ordering::Release);
    DONE.wake_all();
    helped
}

/// Waits until the thread that is busy with a victim is done. False when the caller has been killed meanwhile.
fn wait_for_other() -> bool {
    let deadline = machine::time::now_ns() + PATIENCE_NS;
    // A signal ends the wait early: it may be what makes the caller end, or give up.
    let _outcome = DONE.wait_interruptible_deadline(|| !BUSY.load(Ordering::Acquire), Some(deadline));
    !is_dying()
}

/// Whether the calling thread is marked to end: then it shall not wait for memory, its own is what is needed.
fn is_dying() -> bool {
    let thread = sched::current().personality().and_then(|object| object.downcast::<Thread>().ok());
    thread.is_some_and(|thread| thread.is_killed())
}

fn kill_one() -> bool {
    let total = crate::memory::totals().total_bytes;
    let Some((victim, score)) = choose(total) else { return false };
    let name = victim.name();
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    log::warn!(
        "Out of memory: killed process {} ({}), score {} KiB",
        victim.pid(),
        alloc::string::String::from_utf8_lossy(&name[..length]),
        score / 1024,
    );
    let _ = send::to_process(&victim, SignalInformation::from_kernel(Signal::SIGKILL));
    wait_for_end(&victim)
}

/// The biggest. Allocates nothing.
fn choose(total: u64) -> Option<(Arc<Process>, u64)> {
    // Numbers, not references: under the table's lock none may turn out to be the last one.
    let mut worst: Option<(Pid, u64)> = None;
    table::for_each_process(|process| {
        if let Some(score) = badness(process, total)
            && worst.is_none_or(|(_, most)| score > most)
        {
            worst = Some((process.pid(), score));
        }
    });
    worst.and_then(|(pid, score)| Some((table::process_of(pid)?, score)))
}

/// Waits until the victim has given its memory back. False when the caller dies too, perhaps as a thread of the victim:
/// it ends sooner if its allocation fails than if it is tried again.
fn wait_for_end(victim: &Process) -> bool {
    let start = machine::time::now_ns();
    while !victim.is_zombie() && !is_dying() && machine::time::now_ns() - start < PATIENCE_NS {
        sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + POLL_NS);
    }
    !is_dying()
}
