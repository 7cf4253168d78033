//! The thread that does what services may not do in an interrupt handler: it waits, resets, finds devices and removes them.
//!
//! A service registers what it has to do as [`Work`]; its handler notes what happened and calls [`kick`]. One thread serves all: what
//! they do is rare, and it must not happen at once to two ports of one switch anyway.

use alloc::sync::{Arc, Weak};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use sched::WaitQueue;
use sync::{Once, SpinLock};

/// What a service has to do outside of its handler.
pub(crate) trait Work: Send + Sync {
    /// Does what there is to do. Returns when to be called again even if nothing happens, in nanoseconds of the clock.
    fn work(&self, now_ns: u64) -> Option<u64>;
}

static ALL: SpinLock<Vec<Weak<dyn Work>>> = SpinLock::named("work of port services", Vec::new());
static KICKED: AtomicBool = AtomicBool::new(false);
static WAITING: WaitQueue = WaitQueue::new();

/// Somebody has something to do. From any context.
pub(crate) fn kick() {
    // Release: pairs with the swap in `serve`, which then sees what the handler has noted.
    KICKED.store(true, Ordering::Release);
    WAITING.wake_all();
}

/// Has the thread call `work` from now on, as long as it lives.
pub(crate) fn add(work: &Arc<impl Work + 'static>) {
    let work: Arc<dyn Work> = work.clone();
    let wanted = ALL.lock().len() + 1;
    let mut list = Vec::with_capacity(wanted);
    {
        let mut all = ALL.lock();
        list.extend(all.iter().filter(|one| one.strong_count() > 0).cloned());
        list.push(Arc::downgrade(&work));
        core::mem::swap(&mut *all, &mut list);
    }
    drop(list);
    start();
}

/// Starts the thread with the first service.
fn start() {
    static STARTED: Once<()> = Once::new();
    if !cfg!(target_os = "none") {
        // Tests on a host do the work themselves.
        return;
    }
    STARTED.call_once(|| {
        if sched::spawn(sched::Builder::new("pcie-services"), alloc::boxed::Box::new(serve)).is_err() {
            log::error!("no memory for the thread of the port services");
        }
    });
}

fn serve() {
    let mut next_ns = u64::MAX;
    loop {
        let is_kicked = || KICKED.swap(false, Ordering::AcqRel);
        if next_ns == u64::MAX {
            WAITING.wait_until(is_kicked);
        } else {
            WAITING.wait_until_deadline(is_kicked, next_ns);
        }
        next_ns = work_all(machine::time::now_ns());
    }
}

/// All that there is to do now; returns when the next has to be done.
fn work_all(now_ns: u64) -> u64 {
    let wanted = ALL.lock().len() + 4;
    let mut list = Vec::with_capacity(wanted);
    {
        let all = ALL.lock();
        let room = list.capacity();
        list.extend(all.iter().take(room).filter_map(Weak::upgrade));
    }
    list.iter().filter_map(|work| work.work(now_ns)).min().unwrap_or(u64::MAX)
}

/// Waits, in the thread or in a program's call.
pub(crate) fn sleep_ms(milliseconds: u64) {
    if cfg!(target_os = "none") {
        sched::timer::sleep_until_uninterruptible(machine::time::now_ns() + milliseconds * 1_000_000);
    }
}
