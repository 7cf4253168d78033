//! An event that happens once, and those who wait for it.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::WaitQueue;
use crate::wait::{Interrupted, WaitError};

/// Something that will be done; waiting for it returns at once when it has been.
#[derive(Debug, Default)]
pub struct Completion {
    done: AtomicBool,
    waiters: WaitQueue,
}

impl Completion {
    /// Something that has not been done.
    pub const fn new() -> Self {
        Self { done: AtomicBool::new(false), waiters: WaitQueue::new() }
    }

    /// It has been done. From any context.
    pub fn complete(&self) {
        // Release: what was done is visible to those who waited.
        self.done.store(true, Ordering::Release);
        self.waiters.wake_all();
    }

    /// Whether it has been done.
    pub fn is_complete(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    /// Sleeps until it has been done.
    pub fn wait(&self) {
        self.waiters.wait_until(|| self.is_complete());
    }

    /// Sleeps until it has been done.
    ///
    /// # Errors
    /// [`Interrupted`] when the thread's attention flag is set before that.
    pub fn wait_interruptible(&self) -> Result<(), Interrupted> {
        self.waiters.wait_interruptible(|| self.is_complete())
    }

    /// Sleeps until it has been done or the deadline (ns since boot) has passed; returns whether it has been done.
    pub fn wait_deadline(&self, deadline_ns: u64) -> bool {
        self.waiters.wait_until_deadline(|| self.is_complete(), deadline_ns)
    }

    /// Sleeps until it has been done, at most until the deadline (ns since boot), if there is one.
    ///
    /// # Errors
    /// [`WaitError`].
    pub fn wait_interruptible_deadline(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        self.waiters.wait_interruptible_deadline(|| self.is_complete(), deadline_ns)
    }
}
