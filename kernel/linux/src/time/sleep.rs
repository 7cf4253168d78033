//! nanosleep and clock_nanosleep.

use machine::time::now_ns;
use sched::WaitError;

use super::clock::Clock;
use super::wall_clock::{Until, block_interruptible};
use crate::abi::Timespec;
use crate::errno::{Errno, SysResult};
use crate::task::{Pause, Task};
use crate::user_pointer::UserPointer;

const ABSOLUTE: u32 = 1;

/// Sleeps for a time.
pub fn nanosleep(task: &mut Task, request: u64, remaining: u64) -> SysResult {
    let ns = UserPointer::<Timespec>::new(request).read()?.to_ns().ok_or(Errno::EINVAL)?;
    resume(task, Clock::Monotonic, now_ns().saturating_add(ns), remaining)
}

/// Sleeps for a time, or until a time, of a clock.
pub fn clock_nanosleep(task: &mut Task, clock: i32, flags: u32, request: u64, remaining: u64) -> SysResult {
    let clock = Clock::to_wait_by(clock)?;
    if flags & !ABSOLUTE != 0 || matches!(clock, Clock::Thread(_)) {
        return Err(Errno::EINVAL);
    }
    let ns = UserPointer::<Timespec>::new(request).read()?.to_ns().ok_or(Errno::EINVAL)?;
    if matches!(clock, Clock::Process(_)) {
        // Sleeping on CPU time needs a process with other threads; few programs do it.
        return Err(Errno::EOPNOTSUPP);
    }
    if flags & ABSOLUTE == 0 {
        return resume(task, Clock::Monotonic, now_ns().saturating_add(ns), remaining);
    }
    let until = if clock == Clock::Realtime { Until::TimeOfDay(ns) } else { Until::Monotonic(ns) };
    match block_interruptible(|| false, Some(until)) {
        Ok(()) | Err(WaitError::TimedOut) => Ok(0),
        Err(WaitError::Interrupted) => Err(Errno::ERESTARTNOHAND),
    }
}

/// Sleeps until the deadline; what is left when a signal comes is written to `remaining`.
pub fn resume(task: &mut Task, clock: Clock, deadline_ns: u64, remaining: u64) -> SysResult {
    if sched::timer::sleep_until(deadline_ns).is_ok() {
        return Ok(0);
    }
    let left = deadline_ns.saturating_sub(now_ns());
    if left == 0 {
        return Ok(0);
    }
    UserPointer::<Timespec>::new(remaining).write_if_given(&Timespec::from_ns(left))?;
    Err(task.pause(Pause::Sleep { clock, deadline_ns, remaining }))
}
