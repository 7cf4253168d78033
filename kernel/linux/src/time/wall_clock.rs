//! The time of day: setting it, and waiting for it.
//!
//! It is the monotonic clock plus an offset, which crate `vfs` keeps: the times of files and its timers go by it too. All kernel timers go
//! by the monotonic clock. So what waits for a time of day is placed again when the time is set: timers are, by those who know them,
//! and threads wake and place themselves.
//!
//! A thread that waits is in a queue of the processor on which it began to: waits of different processors share nothing.

use core::sync::atomic::{AtomicU32, Ordering};

use machine::time::now_ns;
use sched::{WaitError, WaitQueue};
use sync::{PerCpu, per_cpu};

use super::clock::realtime_to_monotonic;
use crate::errno::Errno;

/// The latest time that can be set, in seconds since 1970: thirty years before clocks of 64 bits with a sign end.
const LATEST_SECONDS: u64 = 8_277_292_036;

/// How often the time was set.
static SETS: AtomicU32 = AtomicU32::new(0);
/// Held while the time is set, until all who wait for a time of day have been told.
static SETTING: sched::Mutex<()> = sched::Mutex::named("setting of the time of day", ());
static WAITERS: PerCpu<WaitQueue> = per_cpu!(WaitQueue::new());

/// Until when something waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// Until the monotonic clock shows these nanoseconds.
    Monotonic(u64),
    /// Until so many nanoseconds since 1970 by the time of day, which may be set meanwhile.
    TimeOfDay(u64),
}

/// Sets the time of day to `wanted_ns` nanoseconds since 1970.
///
/// # Errors
/// EINVAL: before the machine was started, or too late.
pub(crate) fn set(wanted_ns: u64) -> Result<(), Errno> {
    if wanted_ns / crate::abi::NANOSECONDS > LATEST_SECONDS {
        return Err(Errno::EINVAL);
    }
    let _setting = SETTING.lock();
    let base_ns = wanted_ns.checked_sub(now_ns()).ok_or(Errno::EINVAL)?;
    vfs::attributes::set_time_of_day_base_ns(base_ns);
    // Release: who sees that the time was set sees to what.
    SETS.fetch_add(1, Ordering::Release);
    crate::vdso::update();
    vfs::timerfd::clock_was_set();
    crate::process::table::for_each_process(|process| process.timers.clock_was_set());
    WAITERS.iter().for_each(WaitQueue::wake_all);
    Ok(())
}

/// Sleeps until the condition holds, attention is wanted, or the time has come. The condition must not sleep.
///
/// # Errors
/// [`WaitError`].
pub(crate) fn block_interruptible(
    mut condition: impl FnMut() -> bool,
    until: Option<Until>,
) -> Result<(), WaitError> {
    let wanted_ns = match until {
        None => return sched::block_interruptible(condition, None),
        Some(Until::Monotonic(deadline_ns)) => {
            return sched::block_interruptible(condition, Some(deadline_ns));
        }
        Some(Until::TimeOfDay(wanted_ns)) => wanted_ns,
    };
    let queue = WAITERS.of(machine::cpu::current());
    loop {
        // Before the time is looked at: if it is set after that, the number differs.
        let sets = SETS.load(Ordering::Acquire);
        let deadline_ns = realtime_to_monotonic(wanted_ns);
        let mut holds = false;
        let look = || {
            holds = condition();
            holds || SETS.load(Ordering::Acquire) != sets
        };
        let waited = queue.wait_interruptible_deadline(look, Some(deadline_ns));
        if waited.is_err() || holds {
            return waited;
        }
    }
}
