//! The way back to user mode of a thread that has something to do first: end, stop, or take a signal.
//!
//! The attention flag of the kernel thread says that this is needed. It is cleared first and what it stands for examined after, so that a
//! flag set meanwhile brings the thread here again. Order: the process's end; a job-control stop; signals of the thread, then of the
//! process, synchronous ones first. A call that returned a restart code is restarted or ends in EINTR, depending on the first
//! signal that has a handler; without one it is always restarted.

use core::sync::atomic::Ordering;

use sched::current;

use super::actions::{ActionFlags, DEFAULT, IGNORE};
use super::information::{ChildEvent, SignalInformation};
use super::set::{DefaultAction, Signal, SignalSet};
use super::shared::StopState;
use crate::errno::{Errno, SysResult};
use crate::process::table;
use crate::task::{Pause, Task};

/// Bytes of the `syscall` instruction, to which a restarted call goes back.
const SYSCALL_BYTES: u64 = 2;

/// The thread shall end; its loop calls exit.
#[derive(Debug, PartialEq, Eq)]
pub struct MustExit;

/// Does everything that must be done before the program goes on. `restart` is the code of an interrupted call.
#[inline(never)]
pub fn before_user_mode(task: &mut Task, mut restart: Option<Errno>) -> Result<(), MustExit> {
    loop {
        current().set_attention(false);
        if task.thread.is_killed() {
            return Err(MustExit);
        }
        if park_if_stopped(task) {
            continue;
        }
        let Some(information) = take(task) else { break };
        let signal = information.signal;
        crate::timer::signal_taken(task.process(), &information);
        let action = task.process().actions().take_for_delivery(signal);
        if action.handler == IGNORE {
            continue;
        }
        if action.handler != DEFAULT {
            interrupt_call(task, restart.take(), action.flags.contains(ActionFlags::RESTART));
            super::frame::enter_handler(task, &information, &action);
            // Further signals interrupt the handler's first instruction.
            continue;
        }
        if signal == Signal::SIGKILL || default_action(task, &information) {
            return Err(MustExit);
        }
    }
    if let Some(code) = restart {
        restart_call(task, code);
    }
    // A mask that only applied to the call (sigsuspend, ppoll) ends where no handler took it over.
    if let Some(mask) = task.saved_mask.take() {
        task.set_blocked(mask);
    }
    Ok(())
}

/// Takes the next signal this thread can take.
fn take(task: &Task) -> Option<SignalInformation> {
    let process = task.process();
    let mut signals = process.signals.lock();
    let blocked = task.thread.blocked();
    let taken = task.thread.pending.lock().take(blocked);
    taken.or_else(|| signals.pending.take(blocked))
}

/// Whether a signal waits that this thread can take, or it shall end.
pub fn is_pending(task: &Task) -> bool {
    let blocked = task.thread.blocked();
    if task.thread.is_killed() {
        return true;
    }
    let signals = task.process().signals.lock();
    let pending = signals.pending.set() | task.thread.pending.lock().set();
    !(pending & !blocked).is_empty() || signals.stop != StopState::Running
}

/// Whether the running thread shall look at its signals: long loops in system calls ask this.
pub fn attention_wanted() -> bool {
    current().attention()
}

/// A handler runs: the interrupted call ends in EINTR or starts again after it.
fn interrupt_call(task: &mut Task, restart: Option<Errno>, restart_wanted: bool) {
    let Some(code) = restart else { return };
    let again = match code {
        Errno::ERESTARTNOINTR => true,
        Errno::ERESTARTSYS => restart_wanted,
        _ => false,
    };
    if again {
        repeat(task, task.user.call);
    } else {
        task.user.registers.rax = Errno::EINTR.to_register();
    }
}

/// No handler ran: the call goes on.
fn restart_call(task: &mut Task, code: Errno) {
    const RESTART_SYSCALL: u64 = 219;
    let number = if code == Errno::ERESTART_RESTARTBLOCK { RESTART_SYSCALL } else { task.user.call };
    repeat(task, number);
}

fn repeat(task: &mut Task, number: u64) {
    task.user.registers.rax = number;
    task.user.registers.rip = task.user.registers.rip.wrapping_sub(SYSCALL_BYTES);
}

/// Applies the default action; returns whether the thread must end.
#[inline(never)]
fn default_action(task: &mut Task, information: &SignalInformation) -> bool {
    const CORE_DUMPED: u32 = 0x80;
    let signal = information.signal;
    match signal.default_action() {
        DefaultAction::Ignore | DefaultAction::Continue => false,
        DefaultAction::Stop => {
            begin_stop(task, signal);
            false
        }
        action => {
            let process = task.process();
            let core = action == DefaultAction::Core
                && process.limit(crate::process::limits::Resource::Core) > 0
                && process.is_dumpable.load(Ordering::Relaxed) == 1;
            if action == DefaultAction::Core {
                crate::exit::report_fatal_signal(task, information);
            }
            process.begin_exit(signal.number() as u32 | if core { CORE_DUMPED } else { 0 });
            true
        }
    }
}

/// Begins a group stop. A stop signal from a terminal has no effect on an orphaned group.
fn begin_stop(task: &Task, signal: Signal) {
    let process = task.process();
    if signal != Signal::SIGSTOP && process.group().is_orphaned() {
        return;
    }
    let mut signals = process.signals.lock();
    // A SIGCONT or SIGKILL sent since has priority over the stop.
    if signals.group_exit.is_some() || signals.pending.set().contains(Signal::SIGCONT) {
        return;
    }
    if signals.stop == StopState::Running {
        let threads = process.threads.lock();
        signals.stop = StopState::Stopping(signal);
        signals.to_park = threads.len();
        signals.continue_unreported = false;
        for thread in threads.iter() {
            thread.interrupt();
        }
    }
}

/// Parks the thread while its process is stopped; returns whether it was.
fn park_if_stopped(task: &mut Task) -> bool {
    let process = task.process().clone();
    let completed = {
        let mut signals = process.signals.lock();
        match signals.stop {
            StopState::Running => return false,
            StopState::Stopped(_) => {
                task.thread.stopped.store(true, Ordering::Relaxed);
                None
            }
            StopState::Stopping(signal) => {
                // Before a parent can learn of the stop and look.
                task.thread.stopped.store(true, Ordering::Relaxed);
                note_parked(&process, &mut signals, signal)
            }
        }
    };
    if let Some(signal) = completed {
        crate::wait::tell_parent_of_stop(&process, ChildEvent::Stopped, signal);
    }
    let thread = task.thread.clone();
    // Signals other than SIGCONT and SIGKILL wait until the process continues; those two end the stop when sent.
    process
        .signal_event
        .wait_until(|| thread.is_killed() || process.signals.lock().stop == StopState::Running);
    task.thread.stopped.store(false, Ordering::Relaxed);
    true
}

/// One thread less to park; the signal if that completes the stop: the caller tells the parent.
pub(crate) fn note_parked(
    process: &crate::process::process::Process,
    signals: &mut super::shared::ProcessSignals,
    signal: Signal,
) -> Option<Signal> {
    signals.to_park = signals.to_park.saturating_sub(1);
    if signals.to_park > 0 {
        return None;
    }
    process.begin_telling();
    signals.stop = StopState::Stopped(signal);
    signals.stop_unreported = true;
    Some(signal)
}

impl Task {
    /// Sets the blocked mask; signals that it lets through are taken on the way back.
    pub fn set_blocked(&mut self, mask: SignalSet) {
        let opened = self.thread.blocked() & !mask;
        let closed = mask & !self.thread.blocked();
        self.thread.set_blocked(mask);
        if !opened.is_empty() && is_pending(self) {
            current().set_attention(true);
        }
        if !closed.is_empty() {
            self.hand_over(closed);
        }
    }

    /// Signals for the process that this thread no longer takes: another thread that can is told.
    fn hand_over(&self, closed: SignalSet) {
        let process = self.process();
        if process.pid() == table::INIT {
            return;
        }
        let pending = process.signals.lock().pending.set() & closed;
        if pending.is_empty() {
            return;
        }
        for thread in process.threads.lock().iter() {
            if !(pending & !thread.blocked()).is_empty() {
                thread.interrupt();
            }
        }
    }

    /// Installs a mask for the duration of one call; it ends on the way back to user mode.
    pub fn set_temporary_mask(&mut self, mask: SignalSet) {
        if self.saved_mask.is_none() {
            self.saved_mask = Some(self.thread.blocked());
        }
        self.set_blocked(mask);
        // The way back restores the mask even when no signal came.
        self.needs_work = true;
    }

    /// Ends the temporary mask before signals are delivered, unless one of them ended the call: what came beside a result stays pending.
    pub fn end_temporary_mask(&mut self, result: SysResult) -> SysResult {
        let interrupted = result.is_err_and(|error| error == Errno::EINTR || error.is_restart());
        if !interrupted && let Some(mask) = self.saved_mask.take() {
            self.set_blocked(mask);
        }
        result
    }

    /// Remembers how an interrupted wait goes on and asks for a restart.
    pub fn pause(&mut self, pause: Pause) -> Errno {
        self.paused = Some(pause);
        Errno::ERESTART_RESTARTBLOCK
    }
}
