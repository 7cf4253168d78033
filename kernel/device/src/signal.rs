//! What wakes the thread of a driver.

use core::sync::atomic::{AtomicBool, Ordering};

use sched::WaitQueue;

/// Wakes one thread.
#[derive(Default)]
pub struct Signal {
    raised: AtomicBool,
    waiting: WaitQueue,
}

impl Signal {
    /// There is something to do. From any context.
    pub fn raise(&self) {
        // Release: pairs with the swap in `wait`, after which the thread sees what it is woken for.
        if !self.raised.swap(true, Ordering::Release) {
            self.waiting.wake_all();
        }
    }

    /// Sleeps until there is something to do.
    pub fn wait(&self) {
        self.waiting.wait_until(|| self.raised.swap(false, Ordering::Acquire));
    }
}
