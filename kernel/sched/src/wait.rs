//! Sleeping until a condition holds, for those who keep their own lists of waiters.
//!
//! The waiter makes itself findable for its waker (in a list of its own), then calls one of these; the waker makes the
//! condition true and calls [`crate::Thread::wake`]. [`crate::WaitQueue`] is this with the list included.

use crate::dispatch;
use crate::hand_over::HandOver;
use crate::thread::current;
use crate::timer;

/// A wait that ended because the thread's attention flag is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

/// Why a wait ended before its condition held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitError {
    /// The thread's attention flag is set.
    Interrupted,
    /// The deadline has passed.
    TimedOut,
}

impl From<Interrupted> for WaitError {
    fn from(_: Interrupted) -> Self {
        WaitError::Interrupted
    }
}

/// Sleeps until the condition holds, attention is wanted, or the deadline (ns since boot) has passed. The condition is
/// checked after each wake-up; it must not sleep.
///
/// # Errors
/// [`WaitError`].
pub fn block_interruptible(
    condition: impl FnMut() -> bool,
    deadline_ns: Option<u64>,
) -> Result<(), WaitError> {
    timer::with_deadline(deadline_ns, |expired| block(condition, true, expired))
}

/// Like [`block_interruptible`], giving the CPU to the thread that was claimed for it. If there is no need to sleep, that thread is
/// woken as usual.
///
/// # Errors
/// [`WaitError`].
pub fn block_interruptible_handing_over(
    next: HandOver,
    mut condition: impl FnMut() -> bool,
    deadline_ns: Option<u64>,
) -> Result<(), WaitError> {
    timer::with_deadline(deadline_ns, |expired| {
        let thread = current();
        thread.state.prepare(true);
        if condition() || thread.attention() || expired() {
            thread.state.cancel();
            drop(next);
        } else {
            dispatch::hand_over(next);
        }
        block(condition, true, expired)
    })
}

/// Sleeps until the condition holds or the deadline (ns since boot) has passed; returns whether it holds. The condition
/// must not sleep.
pub fn block_uninterruptible(condition: impl FnMut() -> bool, deadline_ns: Option<u64>) -> bool {
    timer::with_deadline(deadline_ns, |expired| block(condition, false, expired)).is_ok()
}

/// Sleeps until the condition holds as a thread that waits for work: it does not count as load.
pub(crate) fn block_uninterruptible_idle(condition: impl FnMut() -> bool) -> bool {
    // Kernel threads get no attention, so an interruptible wait is one that the load average does not count.
    block(condition, true, &|| false).is_ok()
}

/// Sleeps until the condition holds; see [`crate::state`] for why no wake-up is lost.
pub(crate) fn block(
    mut condition: impl FnMut() -> bool,
    interruptible: bool,
    expired: &dyn Fn() -> bool,
) -> Result<(), WaitError> {
    sync::classes::may_sleep();
    let thread = current();
    loop {
        thread.state.prepare(interruptible);
        let outcome = if condition() {
            Ok(())
        } else if interruptible && thread.attention() {
            Err(WaitError::Interrupted)
        } else if expired() {
            Err(WaitError::TimedOut)
        } else {
            dispatch::schedule();
            continue;
        };
        thread.state.cancel();
        return outcome;
    }
}
