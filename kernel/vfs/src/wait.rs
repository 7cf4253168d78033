//! Waiting for a condition, with the outcomes of this layer.

use sched::{WaitError, WaitQueue};

use crate::{Error, Result};

/// Waits until `condition` holds; `EINTR` when a signal comes first.
#[inline]
pub(crate) fn interruptible(queue: &WaitQueue, condition: impl FnMut() -> bool) -> Result<()> {
    queue.wait_interruptible(condition).map_err(|_| Error::Interrupted)
}

/// As [`interruptible`]; of several waiters, one wake-up wakes one.
#[inline]
pub(crate) fn interruptible_exclusive(queue: &WaitQueue, condition: impl FnMut() -> bool) -> Result<()> {
    queue.wait_interruptible_exclusive(condition).map_err(|_| Error::Interrupted)
}

/// Waits until `condition` holds. Signals that do not end the thread stay pending, and are seen on the way back to user mode.
///
/// # Errors
/// `EINTR` when the thread is to end before that.
pub fn killable(queue: &WaitQueue, mut condition: impl FnMut() -> bool) -> Result<()> {
    let thread = sched::current();
    let mut put_off = false;
    let outcome = loop {
        if queue.wait_interruptible(&mut condition).is_ok() {
            break Ok(());
        }
        put_off = true;
        thread.set_attention(false);
        // Looked at behind that: who ends the thread says so first and sets the flag then.
        if thread.is_killed() {
            break Err(Error::Interrupted);
        }
    };
    if put_off {
        thread.set_attention(true);
    }
    outcome
}

/// As [`interruptible`], with a deadline on the monotonic clock: `ETIMEDOUT`.
pub(crate) fn until(
    queue: &WaitQueue,
    deadline_ns: Option<u64>,
    condition: impl FnMut() -> bool,
) -> Result<()> {
    queue.wait_interruptible_deadline(condition, deadline_ns).map_err(|error| match error {
        WaitError::Interrupted => Error::Interrupted,
        WaitError::TimedOut => Error::TimedOut,
    })
}
