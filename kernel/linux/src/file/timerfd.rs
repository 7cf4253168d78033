//! Timers that are descriptors (timerfd_create(2)).

use vfs::OpenFlags;
use vfs::timerfd::{TimerClock, TimerFile, TimerSetting};

use crate::abi::{IntervalTimerSpec, Timespec};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::time::Clock;
use crate::user_pointer::UserPointer;

fn to_spec(setting: TimerSetting) -> IntervalTimerSpec {
    IntervalTimerSpec {
        interval: Timespec::from_ns(setting.interval_ns),
        value: Timespec::from_ns(setting.value_ns),
    }
}

/// Makes a timer.
pub fn timerfd_create(task: &mut Task, clock: i32, flags: u32) -> SysResult {
    let known = OpenFlags::NON_BLOCK | OpenFlags::CLOSE_ON_EXEC;
    let flags = OpenFlags::from_bits(flags).filter(|flags| known.contains(*flags)).ok_or(Errno::EINVAL)?;
    let clock = match clock {
        0 | 8 => TimerClock::RealTime,
        1 => TimerClock::Monotonic,
        7 | 9 => TimerClock::BootTime,
        _ => return Err(Errno::EINVAL),
    };
    let file = vfs::timerfd::create(clock, flags - OpenFlags::CLOSE_ON_EXEC)?;
    task.install_file(file, flags.contains(OpenFlags::CLOSE_ON_EXEC))
}

/// Sets a timer.
pub fn timerfd_settime(task: &mut Task, descriptor: i32, flags: u32, new: u64, old: u64) -> SysResult {
    const ABSOLUTE: u32 = 1;
    const CANCEL_ON_SET: u32 = 2;
    if flags & !(ABSOLUTE | CANCEL_ON_SET) != 0 {
        return Err(Errno::EINVAL);
    }
    let wanted = UserPointer::<IntervalTimerSpec>::new(new).read()?;
    let mut setting = TimerSetting {
        value_ns: wanted.value.to_ns().ok_or(Errno::EINVAL)?,
        interval_ns: wanted.interval.to_ns().ok_or(Errno::EINVAL)?,
    };
    let file = task.lent_usable_file(descriptor)?;
    let timer = TimerFile::of(&file)?;
    if flags & ABSOLUTE != 0 && setting.value_ns != 0 {
        let clock = match timer.clock() {
            TimerClock::RealTime => Clock::Realtime,
            TimerClock::Monotonic => Clock::Monotonic,
            TimerClock::BootTime => Clock::BootTime,
        };
        // A time that is over already still is one.
        setting.value_ns = task.to_kernel_time(clock, setting.value_ns).max(1);
    }
    let before = timer.set(setting, flags & ABSOLUTE != 0, flags & CANCEL_ON_SET != 0);
    UserPointer::<IntervalTimerSpec>::new(old).write_if_given(&to_spec(before))?;
    Ok(0)
}

/// Reads a timer.
pub fn timerfd_gettime(task: &mut Task, descriptor: i32, out: u64) -> SysResult {
    let file = task.lent_usable_file(descriptor)?;
    let setting = TimerFile::of(&file)?.get();
    UserPointer::<IntervalTimerSpec>::new(out).write(&to_spec(setting))?;
    Ok(0)
}
