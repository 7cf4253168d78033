//! `kstackd`: the thread that does what the memory layer cannot do where it notices the need.
//!
//! It frees the pages of ended threads' stacks, trims those of sleeping ones, and reclaims memory in the background. It
//! is woken from any context, also under run-queue locks: the wake-up only raises a softirq, which wakes the thread.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, Ordering};

use machine::time;
use memory::{kstack, reclaim};

use crate::softirq::{self, Softirq};
use crate::thread::{Builder, spawn};
use crate::wait_queue::WaitQueue;

const NS_PER_SECOND: u64 = 1_000_000_000;

/// Whether there is something to do. Set by anyone, cleared by the thread.
static WANTED: AtomicBool = AtomicBool::new(false);
static WAITING: WaitQueue = WaitQueue::new();

/// Asks for service.
fn wake() {
    // AcqRel: what was left to be done is seen by the thread that clears the flag.
    if !WANTED.swap(true, Ordering::AcqRel) {
        softirq::raise(Softirq::Tasklet);
    }
}

/// Sets the hooks of the memory layer; on the boot CPU.
pub(crate) fn set_hooks() {
    softirq::register(Softirq::Tasklet, || WAITING.wake_all());
    kstack::set_service_wakeup(wake);
    kstack::set_kill_hook(crate::dispatch::abandon_current);
    reclaim::set_wakeup(wake);
}

/// Starts the thread.
pub(crate) fn start() {
    let builder = Builder { pinned_stack: true, ..Builder::new("kstackd") };
    if let Err(memory::OutOfMemory) = spawn(builder, Box::new(|| run())) {
        log::warn!("no memory for kstackd");
    }
}

fn run() -> ! {
    let mut trimmed_ns = time::now_ns();
    loop {
        let period_ns = u64::from(kstack::trim_secs()) * NS_PER_SECOND;
        let deadline_ns = if period_ns == 0 { None } else { Some(trimmed_ns + period_ns) };
        // Nothing to do is no failure; the kind of wait keeps the thread out of the load average.
        let _ = WAITING.wait_interruptible_deadline(|| WANTED.load(Ordering::Relaxed), deadline_ns);
        WANTED.store(false, Ordering::Release);
        kstack::service();
        reclaim::reclaim_until_high();
        if period_ns != 0 && time::now_ns() >= trimmed_ns + period_ns {
            kstack::trim();
            trimmed_ns = time::now_ns();
        }
    }
}
