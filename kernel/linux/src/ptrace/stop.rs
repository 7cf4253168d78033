//! The tracee's side of a stop.
//!
//! [`stand`] is the only place where a tracee waits for its tracer. Registers are published before, and taken back after; whether the tracer, SIGKILL or an
//! order that a listening tracee heeds has ended it is asked there. A thread that stands because it ends (`PTRACE_EVENT_EXIT`) may have been killed before: of
//! these, only what has come since lets it go: another thread's exit_group or execve, or SIGKILL.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use super::options::{Course, Event};
use super::tracee::{Reason, State, Stop, Tracee};
use crate::errno::Errno;
use crate::process::process::Process;
use crate::process::thread::Thread;
use crate::signal::actions::{ActionFlags, IGNORE};
use crate::signal::information::{ChildEvent, SI_USER, SignalInformation};
use crate::signal::send;
use crate::signal::set::Signal;
use crate::signal::shared::StopState;
use crate::task::Task;

const TRAP: u32 = Signal::SIGTRAP.number() as u32;
const EVENT_STOP: u32 = 128;
/// In the code of a stop at a call, if the tracer wants it.
const SYSGOOD: u32 = 0x80;
const MESSAGE_ENTRY: u64 = 1;
const MESSAGE_EXIT: u64 = 2;

/// How a tracee goes on.
#[derive(Default)]
struct Released {
    /// It stood. If not, it is traced no more, or killed.
    has_stood: bool,
    /// The signal that the tracer gave it on its way.
    signal: Option<Signal>,
    /// What is known of the signal that it stood for.
    information: Option<SignalInformation>,
}

/// Stands until the tracee may go on.
fn stand(task: &mut Task, tracee: &Arc<Tracee>, stop: Stop) -> Released {
    let is_end = stop.reason == Reason::Event(Event::Exit);
    let tracer = {
        let mut state = tracee.lock();
        let Some(tracer) = state.tracer.clone() else { return Released::default() };
        if task.thread.is_killed() && !is_end {
            return Released::default();
        }
        state.publish(task);
        state.interrupt_wanted = false;
        state.stop = Some(stop);
        state.resumption = None;
        (state.is_telling, state.is_reported, state.is_listening) = (true, false, false);
        task.thread.set_standing(true);
        tracer
    };
    tell(&tracer, of_stop(&task.thread, &stop));
    tracee.lock().is_telling = false;
    tracer.process().child_event.wake_all();
    drop(tracer);
    if is_end {
        wait_in_the_end(task, tracee);
    } else {
        wait(task, tracee);
    }
    go_on(task, tracee)
}

fn goes_on(state: &State) -> bool {
    state.tracer.is_none() || state.resumption.is_some() || state.is_listening && state.wants_trap()
}

fn wait(task: &mut Task, tracee: &Tracee) {
    loop {
        let waited = tracee.event.wait_interruptible(|| goes_on(&tracee.lock()));
        if waited.is_ok() || task.thread.is_killed() {
            return;
        }
        // Signals wait until the tracee runs.
        crate::task::clear_attention_unless_killed(task);
    }
}

fn wait_in_the_end(task: &Task, tracee: &Tracee) {
    let process = task.process();
    let doom = |process: &Process| {
        let signals = process.signals.lock();
        (signals.group_exit.is_some(), signals.executing)
    };
    let before = doom(process);
    process.signal_event.wait_until(|| goes_on(&tracee.lock()) || doom(process) != before);
}

fn go_on(task: &mut Task, tracee: &Tracee) -> Released {
    let mut state = tracee.lock();
    task.thread.set_standing(false);
    let stop = state.stop.take();
    let signal = state.resumption.take().and_then(|number| Signal::new(number.into()));
    state.is_listening = false;
    let mask = state.take_back(task);
    drop(state);
    if let Some(mask) = mask {
        task.saved_mask = None;
        task.set_blocked(mask);
    }
    Released { has_stood: true, signal, information: stop.and_then(|stop| stop.information) }
}

/// Sends a tracer SIGCHLD, if it wants to have that.
pub(super) fn tell(tracer: &Thread, information: SignalInformation) {
    let process = tracer.process();
    let action = process.actions().get(Signal::SIGCHLD);
    if action.handler != IGNORE && !action.flags.contains(ActionFlags::NO_CHILD_STOP) {
        let _ = send::to_process(process, information);
    }
}

fn of_stop(thread: &Thread, stop: &Stop) -> SignalInformation {
    let user = thread.credentials().user.real;
    let (in_user, in_system) = thread.process().cpu_time_ns();
    let ticks = |ns: u64| ns / crate::time::NS_PER_TICK;
    let value = (stop.code & 0x7f) as i32;
    SignalInformation::child(
        Signal::SIGCHLD,
        stop.event,
        thread.tid(),
        user,
        value,
        ticks(in_user),
        ticks(in_system),
    )
}

/// What is known of a stop that no signal is the reason of.
fn of_itself(task: &Task, signal: Signal, code: u32) -> SignalInformation {
    let user = task.credentials.user.real;
    SignalInformation::from_process(signal, code as i32, task.thread.own_number(), user)
}

impl Stop {
    fn new(reason: Reason, code: u32, information: Option<SignalInformation>) -> Stop {
        Stop { reason, code, event: ChildEvent::Trapped, information, message: 0 }
    }
}

/// A signal that the running thread is about to take. Returns the one that it takes.
pub(crate) fn at_signal(task: &mut Task, information: SignalInformation) -> Option<SignalInformation> {
    let Some(tracee) = task.thread.tracee() else { return Some(information) };
    let tracer = tracee.tracer();
    let code = information.signal.number().into();
    let released = stand(task, &tracee, Stop::new(Reason::Signal, code, Some(information)));
    if !released.has_stood {
        // Its tracer has just ended; who is killed takes no signal.
        return (!task.thread.is_killed()).then_some(information);
    }
    let signal = released.signal?;
    let information = match released.information {
        Some(known) if known.signal == signal => known,
        _ => {
            let (pid, user) =
                tracer.map_or((0, 0), |tracer| (tracer.process().pid(), tracer.credentials().user.real));
            SignalInformation::from_process(signal, SI_USER, pid, user)
        }
    };
    if task.thread.blocked().contains(signal) {
        let _ = send::to_thread(&task.thread, information);
        return None;
    }
    Some(information)
}

/// The running thread is to stop with its process.
pub(crate) fn in_group(task: &mut Task, tracee: &Arc<Tracee>, signal: Signal, stops: u32) {
    let number = u32::from(signal.number());
    let is_seized = tracee.lock().is_seized;
    let (reason, code, information) = if is_seized {
        let code = number | EVENT_STOP << 8;
        (Reason::Trap, code, Some(of_itself(task, signal, code)))
    } else {
        (Reason::Group, number, None)
    };
    tracee.lock().passed_stop = stops;
    let stop = Stop { event: ChildEvent::Stopped, ..Stop::new(reason, code, information) };
    let _ = stand(task, tracee, stop);
    let mut state = tracee.lock();
    if state.wants_trap() {
        // Not let out: it was listening, and shall look where its process is now.
        state.passed_stop = 0;
    }
}

/// Whether the tracer has let the tracee out of this stop of its process.
pub(crate) fn has_passed(tracee: &Tracee, stops: u32) -> bool {
    tracee.lock().passed_stop == stops
}

/// Stops if the tracer has asked for it; returns whether it has.
pub(crate) fn if_told(task: &mut Task) -> bool {
    let Some(tracee) = task.thread.tracee() else { return false };
    if !tracee.lock().wants_trap() {
        return false;
    }
    let signal = {
        let signals = task.process().signals.lock();
        tracee.tells_of_now();
        match signals.stop {
            StopState::Running => Signal::SIGTRAP,
            StopState::Stopping(signal) | StopState::Stopped(signal) => signal,
        }
    };
    let code = u32::from(signal.number()) | EVENT_STOP << 8;
    let information = of_itself(task, signal, code);
    let _ = stand(task, &tracee, Stop::new(Reason::Trap, code, Some(information)));
    true
}

/// Whether the running thread has been told to stop.
pub(crate) fn is_told(thread: &Thread) -> bool {
    thread.tracee().is_some_and(|tracee| tracee.lock().wants_trap())
}

/// Tells the tracer of an event, if it wants to know. Inside of a call, where the program has no result yet.
pub(crate) fn at_event(task: &mut Task, event: Event, message: u64) {
    let Some(tracee) = task.thread.tracee() else { return };
    if !tracee.lock().options.contains(event.option()) {
        return;
    }
    if !matches!(event, Event::Exec | Event::Exit) {
        task.user.registers.rax = Errno::ENOSYS.to_register();
    }
    let code = TRAP | (event as u32) << 8;
    let information = of_itself(task, Signal::SIGTRAP, code);
    let stop = Stop { message, ..Stop::new(Reason::Event(event), code, Some(information)) };
    let _ = stand(task, &tracee, stop);
    super::calls::after_event(task);
}

/// Another program runs. A tracer that has not asked to be told finds a SIGTRAP.
pub(crate) fn at_exec(task: &mut Task, former_tid: u32) {
    let Some(tracee) = task.thread.tracee() else { return };
    let (wants_event, is_seized) = {
        let state = tracee.lock();
        (state.options.contains(Event::Exec.option()), state.is_seized)
    };
    if wants_event {
        let seen = super::attach::of_tracer(task, former_tid);
        at_event(task, Event::Exec, seen.into());
    } else if !is_seized {
        let information = SignalInformation::from_process(Signal::SIGTRAP, SI_USER, task.thread.tid(), 0);
        let _ = send::to_thread(&task.thread, information);
    }
}

/// A call begins or ends.
pub(super) fn at_call(task: &mut Task, tracee: &Arc<Tracee>, reason: Reason) {
    let is_marked = tracee.lock().options.contains(super::options::Options::SYSGOOD);
    let code = if is_marked { TRAP | SYSGOOD } else { TRAP };
    let information = of_itself(task, Signal::SIGTRAP, code);
    let message = if reason == Reason::Entry { MESSAGE_ENTRY } else { MESSAGE_EXIT };
    let stop = Stop { message, ..Stop::new(reason, code, Some(information)) };
    if let Some(signal) = stand(task, tracee, stop).signal {
        let _ = send::to_thread(&task.thread, SignalInformation::from_kernel(signal));
    }
}

/// The running thread is at a handler's first instruction, where the tracer's step ends.
pub(crate) fn at_handler(task: &mut Task) {
    let Some(tracee) = task.thread.tracee() else { return };
    let information = of_itself(task, Signal::SIGTRAP, TRAP);
    let _ = stand(task, &tracee, Stop::new(Reason::Handler, TRAP, Some(information)));
}

/// How the tracer wants the tracee to run.
pub(super) fn course(tracee: &Tracee) -> Course {
    let state = tracee.lock();
    if state.tracer.is_some() { state.course } else { Course::Free }
}

/// The signals that a thread takes although its process ignores them: a tracer is told of all but SIGKILL.
pub(crate) fn shows(thread: &Thread, signal: Signal) -> bool {
    signal != Signal::SIGKILL && thread.is_traced()
}

/// Lets what is pending be copied: `PTRACE_PEEKSIGINFO`.
pub(super) fn pending(
    tracee: &Tracee,
    shared: bool,
    skip: u64,
    most: usize,
    mut take: impl FnMut(SignalInformation),
) {
    let process = tracee.process();
    let signals = process.signals.lock();
    let own = tracee.thread().pending.lock();
    let pending = if shared { &signals.pending } else { &*own };
    let skip = usize::try_from(skip).unwrap_or(usize::MAX);
    pending.queue_entries().skip(skip).take(most).for_each(|information| take(*information));
}

/// What a tracee may not lose when its tracer ends while it stands: the signal that it stood for.
pub(super) fn signal_of(state: &State) -> u8 {
    match &state.stop {
        Some(Stop { reason: Reason::Signal, information: Some(information), .. }) => {
            information.signal.number()
        }
        _ => 0,
    }
}

impl Thread {
    /// For `/proc`.
    fn set_standing(&self, stands: bool) {
        self.stands.store(stands, Ordering::Relaxed);
    }
}
