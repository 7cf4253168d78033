//! Job control: what terminals ask of processes.

use alloc::sync::Arc;

use crate::process::process::Process;
use crate::process::table;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;

/// The leader of a session has ended: its terminal's foreground group is told.
pub(crate) fn session_leader_ended(process: &Arc<Process>) {
    let session = process.group().session().clone();
    if let Some(terminal) = session.terminal.lock().take() {
        terminal.leader_ended(session.id());
    }
}

/// The part of a controlling terminal that sessions know.
pub trait ControllingTerminal: Send + Sync {
    /// The leader of the session ended: the terminal is free again, its foreground group gets SIGHUP and SIGCONT.
    fn leader_ended(&self, session: table::Pid);
}

/// Sends a signal of the terminal to a group.
pub fn signal_group(group: table::Pid, signal: Signal) {
    if let Some(group) = table::group(group) {
        send::to_group(&group, SignalInformation::from_kernel(signal));
    }
}
