//! Limits on time: RLIMIT_CPU, and RLIMIT_RTTIME, which is about what a real-time thread runs without sleeping.
//!
//! Each is watched by a timer of the process, from when it is set until it is set to nothing. At the soft limit the process is told, and again after each second, as
//! the limit is raised by so much each time; at the hard one it is killed. Nothing is counted for that: the run queue notes what a real-time thread had run when it
//! came from its last sleep, and the timer is armed for the earliest moment at which that can be as long ago as the limit says, while there is such a thread.

use alloc::sync::Arc;

use super::{Counted, Expiry, Notice, ProcessTimer};
use crate::abi::{NANOSECONDS, ResourceLimit};
use crate::errno::Errno;
use crate::process::limits::{INFINITY, Resource};
use crate::process::process::Process;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

/// A limit on time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TimeLimit {
    /// RLIMIT_CPU
    Processor,
    /// RLIMIT_RTTIME
    RealTime,
}

impl TimeLimit {
    pub(super) const ALL: [TimeLimit; 2] = [TimeLimit::Processor, TimeLimit::RealTime];

    fn resource(self) -> usize {
        match self {
            TimeLimit::Processor => Resource::Cpu as usize,
            TimeLimit::RealTime => Resource::RealTimeTime as usize,
        }
    }

    fn unit_ns(self) -> u64 {
        match self {
            TimeLimit::Processor => NANOSECONDS,
            TimeLimit::RealTime => 1000,
        }
    }

    /// By how much the limit is raised each time that a process is told: a second.
    fn step(self) -> u64 {
        NANOSECONDS / self.unit_ns()
    }

    fn counted(self) -> Counted {
        match self {
            TimeLimit::Processor => Counted::CpuTime,
            TimeLimit::RealTime => Counted::RealTime,
        }
    }

    /// When it is reached next; `None`: never.
    fn expiry(self, process: &Process) -> Option<u64> {
        let limit = process.limit_pair(self.resource());
        let units = limit.current.min(limit.maximum);
        (units != INFINITY).then(|| units.saturating_mul(self.unit_ns()))
    }
}

/// The longest that a real-time thread of the process has run since it slept; `None` if there is no such thread.
pub(super) fn longest_realtime_ns(process: &Process) -> Option<u64> {
    let threads = process.threads.lock();
    threads.iter().filter_map(|thread| thread.kernel_thread()?.realtime_since_sleep_ns()).max()
}

/// At the hard limit the process is killed; at the soft one, and every second after, it is told. Returns when it is looked at next.
pub(super) fn enforce(which: TimeLimit, process: &Arc<Process>, used_ns: u64) -> Option<u64> {
    let limit = process.limit_pair(which.resource());
    let reached = |units: u64| units != INFINITY && used_ns >= units.saturating_mul(which.unit_ns());
    if reached(limit.maximum) {
        let _ = send::to_process(process, SignalInformation::from_kernel(Signal::SIGKILL));
        return None;
    }
    if reached(limit.current) {
        let _ = send::to_process(process, SignalInformation::from_kernel(Signal::SIGXCPU));
        // Unless somebody has set another one meanwhile.
        let _ = process.change_limit(which.resource(), |now| {
            let unchanged = (now.current, now.maximum) == (limit.current, limit.maximum);
            let current = limit.current.saturating_add(which.step());
            Ok::<_, ()>(if unchanged { ResourceLimit { current, ..limit } } else { now })
        });
    }
    which.expiry(process)
}

/// Watches the limits on time: one was set, or came with the fork, or a thread became a real-time one.
///
/// # Errors
/// ENOMEM.
pub(crate) fn watch_limits(process: &Arc<Process>) -> Result<(), Errno> {
    TimeLimit::ALL.into_iter().try_for_each(|limit| watch(limit, process))
}

fn watch(limit: TimeLimit, process: &Arc<Process>) -> Result<(), Errno> {
    let expiry = limit.expiry(process);
    if expiry.is_none() && process.timers.inner.lock().is_none() {
        return Ok(());
    }
    let existing = process.timers.with(|inner| Ok(inner.limits[limit as usize].clone()))?;
    let timer = match existing {
        Some(timer) => timer,
        None if expiry.is_none() => return Ok(()),
        None => {
            let fresh = ProcessTimer::new(0, process, (limit.counted(), 0), Notice::Limit(limit))?;
            process.timers.with(|inner| Ok(inner.limits[limit as usize].get_or_insert(fresh).clone()))?
        }
    };
    timer.set(expiry.map_or(Expiry::Never, Expiry::At), 0);
    Ok(())
}
