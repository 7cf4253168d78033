//! A thread that waits until another one has done for it what it asked of an object.
//!
//! Who changes the object takes the waiting thread off the object's list, does what it asked, and leaves it the outcome; so a thread is woken
//! when it has what it wants, and the order is that of the list. Who leaves for another reason, a signal or its time-out, looks with the
//! object locked whether there is an outcome after all.

use core::sync::atomic::{AtomicBool, Ordering};

use sched::{WaitError, WaitQueue};
use sync::SpinLock;

/// The thread, and what has become of its wish.
pub(crate) struct Waiting<T> {
    outcome: SpinLock<Option<T>>,
    is_over: AtomicBool,
    queue: WaitQueue,
}

impl<T> Waiting<T> {
    pub(crate) const fn new() -> Self {
        Self {
            outcome: SpinLock::named("outcome of a wait for an object", None),
            is_over: AtomicBool::new(false),
            queue: WaitQueue::new(),
        }
    }

    /// Ends the wait, once. With the object locked, so that who gives up finds the outcome or is still on the list.
    pub(crate) fn end(&self, outcome: T) {
        *self.outcome.lock() = Some(outcome);
        // Release: pairs with the Acquire in `wait`.
        self.is_over.store(true, Ordering::Release);
        self.queue.wake_all();
    }

    /// Sleeps until there is an outcome, at most until the deadline in nanoseconds since boot.
    ///
    /// # Errors
    /// [`WaitError`]; there may be an outcome nevertheless.
    pub(crate) fn wait(&self, deadline_ns: Option<u64>) -> Result<(), WaitError> {
        self.queue.wait_interruptible_deadline(|| self.is_over.load(Ordering::Acquire), deadline_ns)
    }

    /// The outcome, if there is one.
    pub(crate) fn take(&self) -> Option<T> {
        self.outcome.lock().take()
    }
}
