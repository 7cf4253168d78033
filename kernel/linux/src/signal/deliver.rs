//! The way back to user mode of a thread that has something to do first: end, stop, or take a signal.
//!
//! The attention flag of the kernel thread says that this is needed. It is cleared first and what it stands for examined after, so that a
//! flag set meanwhile brings the thread here again. Order: the process's end; standing still in a frozen control group; a job-control stop; signals of the thread, then of the
//! process, synchronous ones first. A call that returned a restart code is restarted or ends in EINTR, depending on the first
//! signal that has a handler; without one it is always restarted.

use core::sync::atomic::Ordering;

use sched::current;

use super::actions::{ActionFlags, DEFAULT, IGNORE};
use super::information::{ChildEvent, SignalInformation};
use super::set::{DefaultAction, Signal, SignalSet};
use super::shared::StopState;
use crate::errno::{Errno, SysResult};
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::ptrace;
use crate::task::{Pause, Task};

/// Bytes of the `syscall` instruction, to which a restarted call goes back.
const SYSCALL_BYTES: u64 = 2;

/// The thread shall end; its loop calls exit.
#[derive(Debug, PartialEq, Eq)]
pub struct MustExit;

/// Does everything that must be done before the program goes on. `restart` is the code of an interrupted call.
#[inline(never)]
pub fn before_user_mode(task: &mut Task, mut restart: Option<Errno>) -> Result<(), MustExit> {
    if ptrace::calls::settle(task) {
        restart = ptrace::calls::restart(task);
    }
    loop {
        current().set_attention(false);
        if task.thread.is_killed() {
            return Err(MustExit);
        }
        crate::control_group::settle_payer(task);
        if crate::control_group::park_if_frozen(task) {
            continue;
        }
        if park_if_stopped(task) || task.thread.is_traced() && ptrace::stop::if_told(task) {
            restart = ptrace::calls::restart(task);
            continue;
        }
        let Some((mut information, round)) = take(task) else {
            // In a group that has used up its processor time it waits until there is some again, or a signal; so it does with its own reservation.
            if current().has_processor_group() && !sched::control::wait_for_quota()
                || !sched::wait_for_period()
            {
                continue;
            }
            crate::control_group::pause_beyond_mark();
            break;
        };
        crate::timer::signal_taken(task.process(), &information);
        if ptrace::stop::shows(&task.thread, information.signal) {
            let taken = ptrace::stop::at_signal(task, information);
            restart = ptrace::calls::restart(task);
            match taken {
                Some(taken) => information = taken,
                None => continue,
            }
        }
        let signal = information.signal;
        let action = task.process().actions().take_for_delivery(signal);
        if action.handler == IGNORE {
            continue;
        }
        if action.handler != DEFAULT {
            interrupt_call(task, restart.take(), action.flags.contains(ActionFlags::RESTART));
            let was_stepping = task.end_step();
            super::frame::enter_handler(task, &information, &action);
            if was_stepping {
                ptrace::stop::at_handler(task);
            }
            // Further signals interrupt the handler's first instruction.
            continue;
        }
        if signal == Signal::SIGKILL {
            // Its sender does this too, but perhaps later, and the status is that of who does it first.
            task.process().begin_exit(signal.number().into());
            return Err(MustExit);
        }
        // The init of a name space may have had a handler, or a mask, when the signal came.
        if task.process().is_protected.load(Ordering::Relaxed) && signal != Signal::SIGSTOP {
            continue;
        }
        if default_action(task, &information, round) {
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

/// Takes the next signal this thread can take; and says in which round of stops that was.
fn take(task: &Task) -> Option<(SignalInformation, u32)> {
    let process = task.process();
    let mut signals = process.signals.lock();
    let blocked = task.thread.blocked();
    let taken = task.thread.pending.lock().take(blocked);
    let taken = taken.or_else(|| signals.pending.take(blocked))?;
    Some((taken, signals.round))
}

/// Whether a signal waits that this thread can take, or it shall end.
pub fn is_pending(task: &Task) -> bool {
    let blocked = task.thread.blocked();
    if task.thread.is_killed() {
        return true;
    }
    let signals = task.process().signals.lock();
    let pending = signals.pending.set() | task.thread.pending.lock().set();
    !(pending & !blocked).is_empty()
        || signals.stop != StopState::Running
        || task.thread.is_traced() && ptrace::stop::is_told(&task.thread)
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
fn default_action(task: &mut Task, information: &SignalInformation, round: u32) -> bool {
    let signal = information.signal;
    match signal.default_action() {
        DefaultAction::Ignore | DefaultAction::Continue => false,
        DefaultAction::Stop => {
            begin_stop(task, signal, round);
            false
        }
        DefaultAction::Core | DefaultAction::Terminate => {
            die_of(task, information);
            true
        }
    }
}

/// The process ends of a signal.
pub(crate) fn die_of(task: &Task, information: &SignalInformation) {
    let signal = information.signal;
    if signal.default_action() == DefaultAction::Core {
        crate::exit::report_fatal_signal(task, information);
        if crate::core_dump::dump(task, information) {
            return;
        }
    }
    task.process().begin_exit(signal.number().into());
}

/// Begins a group stop for a signal that was taken in this round. A stop signal from a terminal has no effect on an orphaned group.
fn begin_stop(task: &Task, signal: Signal, round: u32) {
    let process = task.process();
    if signal != Signal::SIGSTOP && process.group().is_orphaned() {
        return;
    }
    let mut signals = process.signals.lock();
    // A SIGCONT or SIGKILL sent since has priority over the stop, also when it is ignored, or another thread has taken it.
    if signals.group_exit.is_some() || signals.round != round {
        return;
    }
    signals.stops = signals.stops.wrapping_add(1).max(1);
    let threads = process.threads.lock();
    if signals.stop == StopState::Running {
        signals.stop = StopState::Stopping(signal);
        signals.to_park = threads.len();
        signals.continue_unreported = false;
    }
    // Also in a stopped process threads run, if their tracers have let them.
    for thread in threads.iter() {
        thread.interrupt();
    }
}

/// Parks the thread while its process is stopped; returns whether it was.
fn park_if_stopped(task: &mut Task) -> bool {
    let process = task.process().clone();
    let tracee = task.thread.tracee();
    let (completed, round, signal, stops) = {
        let mut signals = process.signals.lock();
        let (StopState::Stopping(signal) | StopState::Stopped(signal)) = signals.stop else { return false };
        match &tracee {
            Some(tracee) if ptrace::stop::has_passed(tracee, signals.stops) => return false,
            Some(tracee) => tracee.tells_of_now(),
            // Before a parent can learn of the stop and look.
            None => task.thread.stopped.store(true, Ordering::Relaxed),
        }
        (note_parked(&mut signals, &task.thread), signals.round, signal, signals.stops)
    };
    if let Some(signal) = completed {
        crate::wait::tell_parent_of_stop(&process, ChildEvent::Stopped, signal);
    }
    if let Some(tracee) = tracee {
        ptrace::stop::in_group(task, &tracee, signal, stops);
        return true;
    }
    let thread = task.thread.clone();
    // Signals other than SIGCONT and SIGKILL wait until the process continues; those two end the stop when sent. When this thread gets to
    // run, the next stop may have begun: then it parks again, and is counted there.
    // A tracer that has come since is to see it stand; in a group that is frozen it stands still as one of that.
    process.signal_event.wait_until(|| {
        thread.is_killed()
            || thread.is_traced()
            || process.control_group.freezes()
            || process.signals.lock().round != round
    });
    task.thread.stopped.store(false, Ordering::Relaxed);
    true
}

/// If a stop has begun: one thread less to park, unless it was counted before; the signal if that completes the stop: the caller
/// tells the parent.
pub(crate) fn note_parked(signals: &mut super::shared::ProcessSignals, thread: &Thread) -> Option<Signal> {
    let StopState::Stopping(signal) = signals.stop else { return None };
    // Relaxed: written and read under the lock of `signals`.
    if thread.parked_in.swap(signals.round, Ordering::Relaxed) == signals.round {
        return None;
    }
    signals.to_park = signals.to_park.saturating_sub(1);
    if signals.to_park > 0 {
        return None;
    }
    thread.process().begin_telling();
    signals.stop = StopState::Stopped(signal);
    signals.stop_unreported = true;
    Some(signal)
}

/// Tells the threads that can take one of these signals, which are pending for the process.
fn tell_others(process: &Process, pending: SignalSet) {
    for thread in process.threads.lock().iter() {
        if !(pending & !thread.blocked()).is_empty() {
            thread.interrupt();
        }
    }
}

/// The thread takes no signal any more, for it ends; what it was chosen to take is for the others.
pub(crate) fn retire(thread: &Thread) {
    let process = thread.process();
    let pending = {
        let signals = process.signals.lock();
        // Under the lock of the list, where senders choose: who has chosen this thread before has left the signal pending before.
        let threads = process.threads.lock();
        {
            // Who begins to trace it has done so before, so that it knows, or sees that it ends.
            let _slot = thread.trace.lock();
            thread.exiting.store(true, Ordering::Relaxed);
        }
        if threads.len() > 1 && signals.group_exit.is_none() {
            signals.pending.set()
        } else {
            SignalSet::EMPTY
        }
    };
    if !pending.is_empty() {
        tell_others(process, pending);
    }
}

impl Task {
    /// Sets the blocked mask; signals that it lets through are taken on the way back.
    #[inline(always)]
    pub fn set_blocked(&mut self, mask: SignalSet) {
        let opened = self.thread.blocked() & !mask;
        let closed = mask & !self.thread.blocked();
        self.thread.set_blocked(mask);
        if !opened.is_empty() && is_pending(self) {
            current().set_attention(true);
        }
        self.hand_over(closed);
    }

    /// Signals for the process that this thread no longer takes: another thread that can is told.
    pub(super) fn hand_over(&self, closed: SignalSet) {
        if closed.is_empty() {
            return;
        }
        let process = self.process();
        if process.pid() == table::INIT {
            return;
        }
        let pending = process.signals.lock().pending.set() & closed;
        if !pending.is_empty() {
            tell_others(process, pending);
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
