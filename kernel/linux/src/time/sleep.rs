//! nanosleep and clock_nanosleep.
//!
//! A sleep on processor time is a row of sleeps on the monotonic clock, each until the earliest moment at which the process can have used as much as is still
//! missing, with all its threads running: nothing ticks.

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
    if clock == Clock::Thread(0) {
        return Err(Errno::EOPNOTSUPP);
    }
    let ns = UserPointer::<Timespec>::new(request).read()?.to_ns().ok_or(Errno::EINVAL)?;
    if matches!(clock, Clock::Process(_) | Clock::Thread(_)) {
        return sleep_on_processor_time(task, clock, flags, ns, remaining);
    }
    if flags & ABSOLUTE == 0 {
        return resume(task, Clock::Monotonic, now_ns().saturating_add(ns), remaining);
    }
    let until = match clock {
        Clock::Realtime => Until::TimeOfDay(ns),
        _ => Until::Monotonic(task.to_kernel_time(clock, ns)),
    };
    match block_interruptible(|| false, Some(until)) {
        Ok(()) | Err(WaitError::TimedOut) => Ok(0),
        Err(WaitError::Interrupted) => Err(Errno::ERESTARTNOHAND),
    }
}

/// Sleeps until a process or another thread of the caller's has used so much processor time.
#[inline(never)]
fn sleep_on_processor_time(task: &mut Task, clock: Clock, flags: u32, ns: u64, remaining: u64) -> SysResult {
    // Its own clock stands still while a thread sleeps.
    if clock == Clock::Thread(task.thread.tid()) {
        return Err(Errno::EINVAL);
    }
    let now = clock.now(task)?;
    if flags & ABSOLUTE == 0 {
        return resume(task, clock, now.saturating_add(ns), remaining);
    }
    processor_time_reaches(task, clock, ns).map(|()| 0).map_err(|_| Errno::ERESTARTNOHAND)
}

/// Sleeps until a clock of processor time shows `until_ns`, or nobody is left who could use any. An interrupted one says what is missing.
fn processor_time_reaches(task: &Task, clock: Clock, until_ns: u64) -> Result<(), u64> {
    /// How often it is looked at most.
    const SOONEST_NS: u64 = 1_000_000;
    loop {
        let Ok(now) = clock.now(task) else { return Ok(()) };
        let missing_ns = until_ns.saturating_sub(now);
        if missing_ns == 0 {
            return Ok(());
        }
        let soonest_ns = (missing_ns / machine::cpu::count() as u64).max(SOONEST_NS);
        if sched::timer::sleep_until(now_ns().saturating_add(soonest_ns)).is_err() {
            return Err(missing_ns);
        }
    }
}

/// Sleeps until the deadline; what is left when a signal comes is written to `remaining`.
pub fn resume(task: &mut Task, clock: Clock, deadline_ns: u64, remaining: u64) -> SysResult {
    let left = match clock {
        Clock::Process(_) | Clock::Thread(_) => processor_time_reaches(task, clock, deadline_ns).err(),
        _ if sched::timer::sleep_until(deadline_ns).is_ok() => None,
        _ => Some(deadline_ns.saturating_sub(now_ns())),
    };
    let Some(left) = left.filter(|&left| left > 0) else { return Ok(0) };
    UserPointer::<Timespec>::new(remaining).write_if_given(&Timespec::from_ns(left))?;
    Err(task.pause(Pause::Sleep { clock, deadline_ns, remaining }))
}
