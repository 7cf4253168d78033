//! Job control: what terminals ask of processes (`tty::job_control`).
//!
//! Terminals call from below without a context; the calling process is found through the kernel thread's personality.
//! A session's pointer to its terminal and the terminal's to its session are both cleared when either ends.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use tty::Terminal;
use tty::job_control::{Caller, GroupId, JobControl, SessionId, TtySignal};
use vfs::Capabilities;

use crate::errno::{Errno, SysResult};
use crate::process::group::Session;
use crate::process::pid_space;
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::Task;

/// The leader of a session has ended: the terminal is free again, its foreground group gets SIGHUP and SIGCONT. If it
/// has hung up before, only the leader was told, and this is when the group is.
pub(crate) fn session_leader_ended(process: &Arc<Process>) {
    let group = process.group();
    let session = group.session();
    let terminal = session.terminal.lock().take();
    if let Some(terminal) = terminal {
        terminal.disassociate(true);
    } else if let Some(group) = table::group(session.hung_up_group.swap(0, Ordering::Relaxed)) {
        for signal in [Signal::SIGHUP, Signal::SIGCONT] {
            send::to_group(&group, SignalInformation::from_kernel(signal));
        }
    }
}

/// Makes a terminal the controlling one of a new session, with its only group in the foreground.
pub(crate) fn adopt(terminal: &Arc<Terminal>, process: &Process) {
    let group = process.group();
    let session = group.session();
    terminal.associate(SessionId(session.id()), GroupId(group.id()));
    *session.terminal.lock() = Some(terminal.clone());
}

/// Makes the personality answer the terminals. Once, at start-up.
pub(crate) fn register() {
    static CONTROL: Control = Control;
    tty::job_control::register(&CONTROL);
}

struct Control;

/// The program's thread on whose behalf the kernel works now; `None` in threads of the kernel's own.
pub(crate) fn calling_thread() -> Option<Arc<Thread>> {
    sched::current().personality()?.downcast().ok()
}

fn calling_session() -> Option<Arc<Session>> {
    Some(calling_thread()?.process().group().session().clone())
}

/// Cuts off who has the caller's controlling terminal open, if there is one.
pub fn vhangup(task: &mut Task) -> SysResult {
    if !task.credentials.has(Capabilities::SYS_TTY_CONFIG) {
        return Err(Errno::EPERM);
    }
    let terminal = task.process().group().session().terminal.lock().clone();
    if let Some(terminal) = terminal {
        terminal.cut_off();
    }
    Ok(0)
}

fn signal_of(signal: TtySignal) -> Signal {
    match signal {
        TtySignal::HangUp => Signal::SIGHUP,
        TtySignal::Interrupt => Signal::SIGINT,
        TtySignal::Quit => Signal::SIGQUIT,
        TtySignal::Continue => Signal::SIGCONT,
        TtySignal::Stop => Signal::SIGTSTP,
        TtySignal::BackgroundRead => Signal::SIGTTIN,
        TtySignal::BackgroundWrite => Signal::SIGTTOU,
        TtySignal::WindowChanged => Signal::SIGWINCH,
    }
}

impl JobControl for Control {
    fn caller(&self) -> Option<Caller> {
        let thread = calling_thread()?;
        let process = thread.process();
        let group = process.group();
        let session = group.session().id();
        Some(Caller {
            session: SessionId(session),
            group: GroupId(group.id()),
            leads_session: process.pid() == session,
            privileged: thread.credentials().file.has(Capabilities::SYS_ADMIN),
        })
    }

    fn controlling_terminal(&self) -> Option<Arc<Terminal>> {
        calling_session()?.terminal.lock().clone()
    }

    fn set_controlling_terminal(&self, terminal: Option<Arc<Terminal>>) {
        if let Some(session) = calling_session() {
            let before = core::mem::replace(&mut *session.terminal.lock(), terminal);
            drop(before);
        }
    }

    fn forget_terminal(&self, session: SessionId) {
        if let Some(session) = table::session(session.0) {
            let before = session.terminal.lock().take();
            drop(before);
        }
    }

    fn signal_group(&self, group: GroupId, signal: TtySignal) {
        if let Some(group) = table::group(group.0) {
            send::to_group(&group, SignalInformation::from_kernel(signal_of(signal)));
        }
    }

    fn hang_up_session(&self, session: SessionId, foreground: Option<GroupId>) {
        if let (Some(session), Some(group)) = (table::session(session.0), foreground) {
            // Relaxed: the leader finds it when it exits, after the signal below.
            session.hung_up_group.store(group.0, Ordering::Relaxed);
        }
        if let Some(leader) = table::process(session.0) {
            for signal in [Signal::SIGHUP, Signal::SIGCONT] {
                let _ = send::to_process(&leader, SignalInformation::from_kernel(signal));
            }
        }
    }

    fn session_of_group(&self, group: GroupId) -> Option<SessionId> {
        Some(SessionId(table::group(group.0)?.session().id()))
    }

    fn seen_by_caller(&self, number: u32) -> u32 {
        calling_thread().map_or(number, |thread| pid_space::seen(thread.process().space(), number))
    }

    fn named_by_caller(&self, number: u32) -> Option<u32> {
        calling_thread().and_then(|thread| pid_space::kernel(thread.process().space(), number))
    }

    fn is_orphaned(&self, group: GroupId) -> bool {
        table::group(group.0).is_none_or(|group| group.is_orphaned())
    }

    fn is_blocked_or_ignored(&self, signal: TtySignal) -> bool {
        let Some(thread) = calling_thread() else { return false };
        let signal = signal_of(signal);
        thread.blocked().contains(signal) || thread.process().actions().is_ignored(signal)
    }
}

/// Device number of a session's terminal and its foreground group, as /proc/PID/stat shows them: 0 and -1 without one.
pub(crate) fn numbers_of(session: &Session) -> (u64, i64) {
    match session.terminal.lock().clone() {
        Some(terminal) => {
            let name = terminal.name();
            let device = vfs::DeviceNumber::new(name.major, name.minor).encode();
            (device, terminal.foreground().map_or(-1, |group| group.0.into()))
        }
        None => (0, -1),
    }
}
