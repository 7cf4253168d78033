//! times and getrusage.

use machine::time::now_ns;

use super::NS_PER_TICK;
use crate::abi::{ProcessTimes, ResourceUsage, Timeval};
use crate::errno::{Errno, SysResult};
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// CPU times of the process and its children in ticks.
pub fn times(task: &mut Task, out: u64) -> SysResult {
    if let Some(pointer) = UserPointer::<ProcessTimes>::new(out).given() {
        let (user, system) = task.process().cpu_time_ns();
        let children = task.process().children.lock().usage;
        let ticks = |time: Timeval| (time.to_ns().unwrap_or(0) / NS_PER_TICK) as i64;
        pointer.write(&ProcessTimes {
            user: (user / NS_PER_TICK) as i64,
            system: (system / NS_PER_TICK) as i64,
            children_user: ticks(children.user_time),
            children_system: ticks(children.system_time),
        })?;
    }
    Ok((now_ns() / NS_PER_TICK) as usize)
}

/// What the process, its children or the thread have used.
#[inline(never)]
pub fn getrusage(task: &mut Task, who: i32, out: u64) -> SysResult {
    const SELF: i32 = 0;
    const CHILDREN: i32 = -1;
    const THREAD: i32 = 1;
    let usage = match who {
        SELF => crate::wait::usage_of(task.process()),
        CHILDREN => task.process().children.lock().usage,
        THREAD => {
            let kernel = sched::current();
            let runtime = kernel.runtime();
            ResourceUsage {
                user_time: Timeval::from_ns(runtime.user_ns),
                system_time: Timeval::from_ns(runtime.system_ns()),
                minor_faults: task.thread.faults() as i64,
                voluntary_switches: kernel.voluntary_switches() as i64,
                involuntary_switches: kernel.preemptions() as i64,
                ..crate::wait::usage_of(task.process())
            }
        }
        _ => return Err(Errno::EINVAL),
    };
    UserPointer::<ResourceUsage>::new(out).write(&usage)?;
    Ok(0)
}
