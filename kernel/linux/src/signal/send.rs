//! Sending a signal: to a thread, a process or a group.
//!
//! A send (1) applies the side effects of stop and continue signals, (2) drops the signal if nobody could ever see it, (3) queues it,
//! (4) picks a thread to take it and interrupts that one. Steps 1 to 3 are under the target's `signals` lock; step 4 sets the
//! attention flag of a kernel thread, which takes it out of user mode or an interruptible wait. A thread that is about to sleep
//! or to return to user mode looks at the flag after it is set or is woken by it, so nothing is lost.
//!
//! SIGKILL does not wait for a thread to take it: the sender begins the process's end. So it does with other signals that end the process
//! by default, if a thread could take them: no thread forks a child in between that the signal does not reach.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::actions::{DEFAULT, SignalActions};
use super::information::{SI_QUEUE, SI_USER, SignalInformation};
use super::pending::Charge;
use super::set::{DefaultAction, Signal, SignalSet};
use super::shared::StopState;
use crate::credentials::identity::Credentials;
use crate::errno::Errno;
use crate::process::limits::Resource;
use crate::process::pid_space::PidSpace;
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;

/// Whom a signal is for.
enum Target<'a> {
    Process,
    Thread(&'a Arc<Thread>),
}

/// Sends a signal to a process: any of its threads may take it.
pub fn to_process(process: &Arc<Process>, information: SignalInformation) -> Result<(), Errno> {
    send(process, Target::Process, information, None)
}

/// Sends a signal to a thread.
pub fn to_thread(thread: &Arc<Thread>, information: SignalInformation) -> Result<(), Errno> {
    send(thread.process(), Target::Thread(thread), information, None)
}

/// Sends a timer's signal. While one is pending another expiry adds to the overrun only; returns whether that was so.
pub(crate) fn timer_to(
    process: &Arc<Process>,
    thread: Option<&Arc<Thread>>,
    information: SignalInformation,
) -> Result<bool, Errno> {
    let signal = information.signal;
    let id = information.fields[0] as u32;
    let more = (information.fields[0] >> 32) as u32 + 1;
    let already = match thread {
        Some(thread) => thread.pending.lock().add_overrun(signal, id, more),
        None => process.signals.lock().pending.add_overrun(signal, id, more),
    };
    if already {
        return Ok(true);
    }
    let account = process.look_at_credentials(|credentials| credentials.account.clone());
    let charge = Charge::claim(&account, u64::MAX);
    send(process, thread.map_or(Target::Process, Target::Thread), information, charge).map(|()| false)
}

/// Sends the signal of a message queue, counted for whom it is sent to.
pub(crate) fn from_queue(process: &Arc<Process>, information: SignalInformation) -> Result<(), Errno> {
    let account = process.look_at_credentials(|credentials| credentials.account.clone());
    let charge = Charge::claim(&account, process.limit(Resource::PendingSignals));
    send(process, Target::Process, information, charge)
}

/// Sends a program's signal, counted against the sender's limit.
pub(super) fn from_program(
    process: &Arc<Process>,
    thread: Option<&Arc<Thread>>,
    information: SignalInformation,
    sender: (&Process, &Credentials),
) -> Result<(), Errno> {
    let limit = sender.0.limit(Resource::PendingSignals);
    let charge = Charge::claim(&sender.1.account, limit);
    send(process, thread.map_or(Target::Process, Target::Thread), information, charge)
}

fn send(
    process: &Arc<Process>,
    target: Target<'_>,
    information: SignalInformation,
    charge: Option<Charge>,
) -> Result<(), Errno> {
    let signal = information.signal;
    let information = information.addressed_to(process.space());
    // The kernel's own process 1 has no thread that could take a signal.
    if process.pid() == table::INIT || process.is_zombie() {
        return Ok(());
    }
    let actions = process.actions();
    let is_out_of_reach =
        process.is_protected.load(Ordering::Relaxed) && protects(process, &actions, &information);
    if is_out_of_reach && signal == Signal::SIGKILL {
        return Ok(());
    }
    let continued;
    let ends;
    {
        let mut signals = process.signals.lock();
        if signals.group_exit.is_some() {
            if signal == Signal::SIGKILL {
                process.abort_dump();
            }
            return Ok(());
        }
        continued = apply_job_control(process, &mut signals, signal);
        let thread_blocks = match &target {
            Target::Thread(thread) => is_wanted_by(thread, signal),
            Target::Process => any_holds_back(process, signal),
        };
        let is_ignored = signal != Signal::SIGKILL && actions.is_ignored(signal) || is_out_of_reach;
        if is_ignored && !thread_blocks {
            drop(signals);
            finish_continue(process, continued);
            return Ok(());
        }
        let outcome = match &target {
            Target::Process => signals.pending.add(information, charge),
            Target::Thread(thread) => thread.pending.lock().add(information, charge),
        };
        if outcome.is_err() {
            drop(signals);
            finish_continue(process, continued);
            return Err(Errno::EAGAIN);
        }
        ends = signal == Signal::SIGKILL
            || is_fatal(&actions, signal)
                && !is_out_of_reach
                && signals.stop == StopState::Running
                && is_taken_at_once(process, &target, signal);
        if ends {
            // Under the lock, with which a thread ends its wait for a signal.
            process.begin_exit_locked(&mut signals, signal.number() as u32);
        }
    }
    if !ends {
        choose_thread(process, &target, signal);
    }
    finish_continue(process, continued);
    super::source::notify(process);
    Ok(())
}

/// Whether the init of a name space does not feel a signal: it has no handler for it, and it is none of those that outside nobody can be kept from sending.
#[cold]
#[inline(never)]
fn protects(process: &Process, actions: &SignalActions, information: &SignalInformation) -> bool {
    let signal = information.signal;
    if actions.get(signal).handler != DEFAULT {
        return false;
    }
    let is_from_outside = || {
        let sender = crate::terminal::calling_thread();
        sender.is_none_or(|sender| !PidSpace::encloses(process.space(), sender.process().space()))
    };
    let is_forced = || information.is_from_kernel() || is_from_outside();
    !(matches!(signal, Signal::SIGKILL | Signal::SIGSTOP) && is_forced())
}

/// Side effects of stop signals and SIGCONT on what is pending; returns whether a stopped process continues.
fn apply_job_control(process: &Process, signals: &mut super::shared::ProcessSignals, signal: Signal) -> bool {
    let discard = |signals: &mut super::shared::ProcessSignals, set: SignalSet| {
        signals.pending.discard(set);
        for thread in process.threads.lock().iter() {
            thread.pending.lock().discard(set);
        }
    };
    if SignalSet::STOP.contains(signal) {
        discard(signals, SignalSet::of(&[Signal::SIGCONT]));
        return false;
    }
    if signal != Signal::SIGCONT && signal != Signal::SIGKILL {
        return false;
    }
    let was = signals.stop;
    if was != StopState::Running {
        // Ends in `finish_continue`.
        process.begin_telling();
    }
    signals.stop = StopState::Running;
    signals.round = signals.round.wrapping_add(1).max(1);
    signals.to_park = 0;
    if signal == Signal::SIGKILL {
        return was != StopState::Running;
    }
    discard(signals, SignalSet::STOP);
    for thread in process.threads.lock().iter().filter(|thread| thread.is_traced()) {
        if let Some(tracee) = thread.tracee() {
            tracee.note_continued();
            thread.interrupt();
        }
    }
    match was {
        StopState::Running => false,
        StopState::Stopping(_) | StopState::Stopped(_) => {
            signals.stop_unreported = false;
            signals.continue_unreported = true;
            true
        }
    }
}

fn finish_continue(process: &Arc<Process>, continued: bool) {
    if continued {
        process.signal_event.wake_all();
        let group_exit = process.signals.lock().group_exit.is_some();
        if group_exit {
            process.end_telling();
        } else {
            crate::wait::tell_parent_of_stop(
                process,
                super::information::ChildEvent::Continued,
                Signal::SIGCONT,
            );
        }
    }
}

/// Whether a thread may still take an ignored signal: it blocks it now, or waits for it.
fn any_holds_back(process: &Process, signal: Signal) -> bool {
    process.threads.lock().iter().any(|thread| is_wanted_by(thread, signal))
}

/// Whether a thread, or who traces it, wants to see a signal that is ignored.
fn is_wanted_by(thread: &Thread, signal: Signal) -> bool {
    thread.holds_back(signal) || crate::ptrace::stop::shows(thread, signal)
}

/// Whether the signal ends the process and leaves no trace of the thread that took it.
fn is_fatal(actions: &SignalActions, signal: Signal) -> bool {
    signal.default_action() == DefaultAction::Terminate
        && !(actions.caught() | actions.ignored()).contains(signal)
}

/// Whether a thread that it is for would take the signal now, and none waits for it (sigwait), which then has it without its effect, or
/// has a tracer, who decides.
fn is_taken_at_once(process: &Process, target: &Target<'_>, signal: Signal) -> bool {
    match target {
        Target::Thread(thread) => thread.can_take(signal) && !thread.awaits(signal) && !thread.is_traced(),
        Target::Process => {
            let threads = process.threads.lock();
            threads.iter().any(|thread| thread.can_take(signal))
                && !threads.iter().any(|thread| thread.awaits(signal) || thread.is_traced())
        }
    }
}

/// Interrupts a thread that can take the signal: the target or, for a process, its leader if it can, else the first that can.
/// When all block the signal, whoever unblocks it finds it.
fn choose_thread(process: &Process, target: &Target<'_>, signal: Signal) {
    match target {
        Target::Thread(thread) => {
            if !thread.blocked().contains(signal) {
                thread.interrupt();
            }
        }
        Target::Process => {
            let threads = process.threads.lock();
            let able = |thread: &&Arc<Thread>| thread.can_take(signal);
            let leader = threads.iter().find(|thread| thread.tid() == process.pid()).filter(able);
            if let Some(thread) = leader.or_else(|| threads.iter().find(able)) {
                thread.interrupt();
            }
        }
    }
}

/// A fault of the thread itself, which it cannot outrun: if the signal is blocked or ignored, the default action applies.
#[inline(never)]
pub fn force(thread: &Arc<Thread>, information: SignalInformation) {
    let signal = information.signal;
    // A fault ends also who is the init of a name space.
    thread.process().is_protected.store(false, Ordering::Relaxed);
    let actions = thread.process().actions();
    let blocked = thread.blocked();
    if blocked.contains(signal) || actions.is_ignored(signal) {
        actions.force_default(signal);
        let mut open = blocked;
        open.remove(signal);
        thread.set_blocked(open);
    }
    // A kernel signal needs no charge: it is pending even when its facts cannot be kept.
    let _ = thread.pending.lock().add(information, None);
    thread.interrupt();
}

/// Sends a signal of the kernel to all members of a group.
pub fn to_group(group: &crate::process::group::ProcessGroup, information: SignalInformation) {
    group.for_each(|member| {
        let _ = to_process(member, information);
    });
}

/// The facts of a signal that `kill` sends.
pub fn user_information(signal: Signal, sender: &Process, credentials: &Credentials) -> SignalInformation {
    SignalInformation::from_process(signal, SI_USER, sender.pid(), credentials.user.real)
}

/// Whether a program may set this `si_code` itself when it signals another process: no kernel code, none of kill's.
pub fn may_forge(code: i32) -> bool {
    code < 0 && code != super::information::SI_TKILL
}

const _: () = assert!(SI_QUEUE < 0);
