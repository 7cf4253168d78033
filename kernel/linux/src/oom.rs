//! What happens when memory runs out: the process that uses most of it is killed, with a report (`oom_score_adj` counts).

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::process::process::Process;
use crate::process::table;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

const ADJUSTMENT_NEVER: i16 = -1000;
/// How long one victim is given to end before another is chosen.
const PATIENCE_NS: u64 = 1_000_000_000;
const POLL_NS: u64 = 1_000_000;

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
    let used = process.address_space()?.badness_bytes() as i64;
    let score = used + i64::from(adjustment) * (total / 1000) as i64;
    Some(score.max(1) as u64)
}

/// Frees memory by ending a process; returns whether trying again makes sense.
pub fn relieve() -> bool {
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
    let mut worst: Option<(Arc<Process>, u64)> = None;
    table::for_each_process(|process| {
        if let Some(score) = badness(process, total)
            && worst.as_ref().is_none_or(|(_, most)| score > *most)
        {
            worst = Some((process.clone(), score));
        }
    });
    worst
}

/// Waits until the victim has given its memory back. False when the victim is the caller itself: it dies sooner if its
/// allocation fails than if it is tried again.
fn wait_for_end(victim: &Process) -> bool {
    let me = sched::current().id();
    let is_mine =
        victim.threads().iter().any(|thread| thread.kernel_thread().is_some_and(|kernel| kernel.id() == me));
    let start = machine::time::now_ns();
    while !is_mine && !victim.is_zombie() && machine::time::now_ns() - start < PATIENCE_NS {
        sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + POLL_NS);
    }
    !is_mine
}
