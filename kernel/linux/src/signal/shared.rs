//! The signal state that the threads of a process share: pending signals, and where it is in a job-control stop or its end.
//!
//! Job control. A stop signal makes the first thread that takes it begin a *group stop*: it counts the threads, each of which
//! parks when it next returns to user mode; the last to park completes the stop and tells the parent. SIGCONT or SIGKILL ends it
//! when sent, not when delivered. Everything here is guarded by the process's `signals` lock.
//!
//! A SIGCONT can come between any two steps of this, and another stop signal soon after it. Each SIGCONT (and SIGKILL) therefore begins a
//! new *round*. A thread that has taken a stop signal begins a stop only in the round in which it took it; a parked thread
//! waits for its round's end, not for the process to run, which it may miss; and who leaves counts only if it has not parked in this round.

use super::pending::Pending;
use super::set::Signal;

/// Where a process is in a stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StopState {
    /// Not stopped.
    Running,
    /// Threads are being parked.
    Stopping(Signal),
    /// All threads are parked.
    Stopped(Signal),
}

/// Signal state of a process.
pub struct ProcessSignals {
    /// Signals for any of its threads.
    pub pending: Pending,
    /// Job control.
    pub stop: StopState,
    /// Counts the signals that end a stop. Starts at 1: a thread that never parked names round 0.
    pub round: u32,
    /// Counts the stops that began. While a traced thread runs in a stopped process, another stop signal begins the next one.
    pub stops: u32,
    /// How many threads have not parked yet in a stop that began.
    pub to_park: usize,
    /// The stop has not been reported by a wait yet.
    pub stop_unreported: bool,
    /// It continued and that has not been reported by a wait yet.
    pub continue_unreported: bool,
    /// The process is ending: its status as wait4 reports it. Set once.
    pub group_exit: Option<u32>,
    /// A thread is executing a program and the others must end.
    pub executing: bool,
}

impl ProcessSignals {
    /// Nothing pending, running.
    pub const fn new() -> ProcessSignals {
        ProcessSignals {
            pending: Pending::new(),
            stop: StopState::Running,
            round: 1,
            stops: 0,
            to_park: 0,
            stop_unreported: false,
            continue_unreported: false,
            group_exit: None,
            executing: false,
        }
    }
}

impl Default for ProcessSignals {
    fn default() -> Self {
        Self::new()
    }
}
