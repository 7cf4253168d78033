//! clock_gettime and the rest of its family.
//!
//! All clocks are the machine's monotonic one plus something: CLOCK_REALTIME adds the wall-clock time of the boot or what
//! was set since ([`super::wall_clock`]); CPU clocks are the scheduler's counts. There is no suspend, so CLOCK_BOOTTIME equals CLOCK_MONOTONIC. The coarse
//! clocks go on in steps, as Linux's do, and the times of files with them.

use machine::time::{COARSE_NS, coarse_now_ns, now_ns};
use vfs::Capabilities;

use crate::abi::{Timespec, Timeval, Timezone};
use crate::errno::{Errno, SysResult};
use crate::name_space::Shifted;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// A clock that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// Time of day.
    Realtime,
    /// Since boot.
    Monotonic,
    /// The same: the machine is never suspended. Its offset in a name space of times is another one.
    BootTime,
    /// CPU time of a process; 0 for the caller's.
    Process(u32),
    /// CPU time of a thread; 0 for the caller.
    Thread(u32),
}

/// Numbers of the clocks that go in steps.
const REALTIME_COARSE: i32 = 5;
const MONOTONIC_COARSE: i32 = 6;

/// Time of day in nanoseconds since 1970.
pub fn realtime_ns() -> u64 {
    realtime_offset_ns() + now_ns()
}

/// What [`realtime_ns`] adds to the monotonic clock.
pub fn realtime_offset_ns() -> u64 {
    vfs::attributes::time_of_day_base_ns()
}

/// When, on the monotonic clock, the time of day will be `ns`.
pub fn realtime_to_monotonic(ns: u64) -> u64 {
    ns.saturating_sub(realtime_offset_ns())
}

impl Clock {
    /// The clock of a number, for who wants to wait by it: the raw and the coarse clocks only tell the time.
    pub fn to_wait_by(number: i32) -> Result<Clock, Errno> {
        match number {
            4..=6 => Err(Errno::EOPNOTSUPP),
            _ => Clock::from_number(number),
        }
    }

    /// The clock of a number of clock_gettime.
    pub fn from_number(number: i32) -> Result<Clock, Errno> {
        Ok(match number {
            0 | 5 | 8 => Clock::Realtime,
            1 | 4 | 6 => Clock::Monotonic,
            7 | 9 => Clock::BootTime,
            // TAI: no leap seconds are known.
            11 => Clock::Realtime,
            2 => Clock::Process(0),
            3 => Clock::Thread(0),
            ..0 => {
                const THREAD: i32 = 4;
                const KIND_MASK: i32 = 3;
                const SCHED: i32 = 2;
                let pid = !(number >> 3) as u32;
                if number & KIND_MASK > SCHED {
                    return Err(Errno::EINVAL);
                }
                if number & THREAD != 0 { Clock::Thread(pid) } else { Clock::Process(pid) }
            }
            _ => return Err(Errno::EINVAL),
        })
    }

    /// Its time.
    pub fn now(self, task: &Task) -> Result<u64, Errno> {
        Ok(match self {
            Clock::Realtime => realtime_ns(),
            Clock::Monotonic => now_ns().wrapping_add_signed(task.clock_offset_ns(Shifted::Monotonic)),
            Clock::BootTime => now_ns().wrapping_add_signed(task.clock_offset_ns(Shifted::BootTime)),
            Clock::Process(0) => sum(task.process().cpu_time_ns()),
            Clock::Process(pid) => {
                let process = task.find_process(pid).ok_or(Errno::EINVAL)?;
                sum(process.cpu_time_ns())
            }
            Clock::Thread(0) => sched::current().runtime().total_ns,
            Clock::Thread(tid) => {
                let thread = task.find_thread(tid).ok_or(Errno::EINVAL)?;
                if thread.process().pid() != task.process().pid() {
                    return Err(Errno::EINVAL);
                }
                thread.kernel_thread().map_or(0, |kernel| kernel.runtime().total_ns)
            }
        })
    }

    /// The same with the kernel's number of the process or thread that the caller has named.
    pub(crate) fn known_to_kernel(self, task: &Task) -> Result<Self, Errno> {
        let known = |number| task.kernel_number(number).ok_or(Errno::EINVAL);
        Ok(match self {
            Clock::Thread(0) => Clock::Thread(task.thread.tid()),
            Clock::Thread(tid) => Clock::Thread(known(tid)?),
            Clock::Process(pid) if pid != 0 => Clock::Process(known(pid)?),
            other => other,
        })
    }

    /// When, on the monotonic clock, this one will show `ns`; for the clocks that sleeps and timers run on.
    pub fn to_monotonic(self, ns: u64) -> u64 {
        if self == Clock::Realtime { realtime_to_monotonic(ns) } else { ns }
    }
}

fn sum((user, system): (u64, u64)) -> u64 {
    user + system
}

/// Reads a clock.
pub fn clock_gettime(task: &mut Task, clock: i32, out: u64) -> SysResult {
    let now = match clock {
        REALTIME_COARSE => realtime_offset_ns() + coarse_now_ns(),
        MONOTONIC_COARSE => coarse_now_ns().wrapping_add_signed(task.clock_offset_ns(Shifted::Monotonic)),
        _ => Clock::from_number(clock)?.now(task)?,
    };
    UserPointer::<Timespec>::new(out).write(&Timespec::from_ns(now))?;
    Ok(0)
}

/// Sets the time of day.
pub fn clock_settime(task: &mut Task, clock: i32, time: u64) -> SysResult {
    if clock != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = UserPointer::<Timespec>::new(time).read()?.to_ns().ok_or(Errno::EINVAL)?;
    set_realtime(task, wanted)
}

fn set_realtime(task: &Task, wanted: u64) -> SysResult {
    task.credentials.require(Capabilities::SYS_TIME)?;
    super::wall_clock::set(wanted)?;
    Ok(0)
}

/// Resolution of a clock.
pub fn clock_getres(task: &mut Task, clock: i32, out: u64) -> SysResult {
    Clock::from_number(clock)?.now(task)?;
    let resolution_ns = if matches!(clock, REALTIME_COARSE | MONOTONIC_COARSE) { COARSE_NS } else { 1 };
    UserPointer::<Timespec>::new(out).write_if_given(&Timespec::from_ns(resolution_ns))?;
    Ok(0)
}

/// Time of day in microseconds.
pub fn gettimeofday(_task: &mut Task, out: u64, zone: u64) -> SysResult {
    UserPointer::<Timeval>::new(out).write_if_given(&Timeval::from_ns(realtime_ns()))?;
    UserPointer::<Timezone>::new(zone).write_if_given(&Timezone::default())?;
    Ok(0)
}

/// Sets the time of day. The time zone is accepted and has no effect.
pub fn settimeofday(task: &mut Task, time: u64, _zone: u64) -> SysResult {
    match UserPointer::<Timeval>::new(time).given() {
        Some(pointer) => set_realtime(task, pointer.read()?.to_ns().ok_or(Errno::EINVAL)?),
        None => task.credentials.require(Capabilities::SYS_TIME).map(|()| 0),
    }
}

/// Time of day in seconds.
pub fn time(_task: &mut Task, out: u64) -> SysResult {
    let seconds = realtime_ns() / crate::abi::NANOSECONDS;
    UserPointer::<u64>::new(out).write_if_given(&seconds)?;
    Ok(seconds as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_clock_numbers_name_processes_and_threads() {
        let of_process = |pid: i32| !pid << 3 | 2;
        let of_thread = |tid: i32| !tid << 3 | 6;
        assert_eq!(Clock::from_number(of_process(42)), Ok(Clock::Process(42)));
        assert_eq!(Clock::from_number(of_thread(43)), Ok(Clock::Thread(43)));
        assert_eq!(Clock::from_number(10), Err(Errno::EINVAL));
        assert_eq!(Clock::from_number(1), Ok(Clock::Monotonic));
    }
}
