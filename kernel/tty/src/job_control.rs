//! What a terminal needs to know of processes: sessions, process groups, signals.
//!
//! The personality implements [`JobControl`] and registers it once at start-up; the numbers are the
//! process ids of the session leader and the group leader.

use alloc::sync::Arc;
use machine::set_once::SetOnce;

use crate::Terminal;

/// Number of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionId(pub u32);

/// Number of a process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupId(pub u32);

/// Signals that terminals send, with their Linux numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum TtySignal {
    /// SIGHUP: the terminal went away.
    HangUp = 1,
    /// SIGINT.
    Interrupt = 2,
    /// SIGQUIT.
    Quit = 3,
    /// SIGCONT, after SIGHUP, so that stopped jobs notice.
    Continue = 18,
    /// SIGTSTP.
    Stop = 20,
    /// SIGTTIN: a background process reads.
    BackgroundRead = 21,
    /// SIGTTOU: a background process writes or changes attributes.
    BackgroundWrite = 22,
    /// SIGWINCH: the window size changed.
    WindowChanged = 28,
}

/// The calling process, as job control sees it.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Its session.
    pub session: SessionId,
    /// Its process group.
    pub group: GroupId,
    /// Whether it leads its session.
    pub leads_session: bool,
    /// Whether it may take a terminal from another session (CAP_SYS_ADMIN).
    pub privileged: bool,
}

/// The personality's part of job control. All calls are made without a lock held.
pub trait JobControl: Sync {
    /// The process on whose behalf the current thread works; None for kernel threads.
    fn caller(&self) -> Option<Caller>;
    /// The controlling terminal of the caller's session.
    fn controlling_terminal(&self) -> Option<Arc<Terminal>>;
    /// Makes the terminal the controlling one of the caller's session, or takes it away.
    fn set_controlling_terminal(&self, terminal: Option<Arc<Terminal>>);
    /// Takes the terminal away from a session (its leader exited, or the terminal was stolen).
    fn forget_terminal(&self, session: SessionId);
    /// Sends a signal to all processes of a group.
    fn signal_group(&self, group: GroupId, signal: TtySignal);
    /// Sends SIGHUP and SIGCONT to the leader of a session whose terminal hung up; when the leader exits, to the group
    /// that was in the foreground.
    fn hang_up_session(&self, session: SessionId, foreground: Option<GroupId>);
    /// The session of a process group; None if there is no such group.
    fn session_of_group(&self, group: GroupId) -> Option<SessionId>;
    /// What the caller calls a group or session; 0 for one that it can't name.
    fn seen_by_caller(&self, number: u32) -> u32 {
        number
    }
    /// The number of the group that the caller calls so.
    fn named_by_caller(&self, number: u32) -> Option<u32> {
        Some(number)
    }
    /// Whether no process of the group has a parent in another group of its session.
    fn is_orphaned(&self, group: GroupId) -> bool;
    /// Whether the calling thread blocks or ignores the signal.
    fn is_blocked_or_ignored(&self, signal: TtySignal) -> bool;
}

static JOB_CONTROL: SetOnce<&'static dyn JobControl> = SetOnce::new();

/// Registers the personality's job control. Once, at start-up.
pub fn register(job_control: &'static dyn JobControl) {
    JOB_CONTROL.set(job_control);
}

/// The registered job control; None before the personality starts (and in tests of this crate).
pub(crate) fn job_control() -> Option<&'static dyn JobControl> {
    JOB_CONTROL.get()
}

/// The controlling terminal of the caller's session.
pub fn controlling_terminal() -> Option<Arc<Terminal>> {
    job_control()?.controlling_terminal()
}

/// What a background process is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Background {
    /// It may go on.
    Proceed,
    /// The operation fails with EIO.
    Fail,
    /// A signal was sent to its group: the operation is to be restarted once it was handled.
    Signalled,
}

/// The rule of termios for reading, writing or changing a controlling terminal from the background.
pub(crate) fn check_background(
    session: Option<SessionId>,
    foreground: Option<GroupId>,
    signal: TtySignal,
) -> Background {
    let Some(control) = job_control() else { return Background::Proceed };
    let Some(caller) = control.caller() else { return Background::Proceed };
    let in_background =
        session == Some(caller.session) && foreground.is_some_and(|group| group != caller.group);
    if !in_background {
        return Background::Proceed;
    }
    if control.is_blocked_or_ignored(signal) {
        return if signal == TtySignal::BackgroundRead { Background::Fail } else { Background::Proceed };
    }
    if control.is_orphaned(caller.group) {
        return Background::Fail;
    }
    control.signal_group(caller.group, signal);
    Background::Signalled
}
