//! How tracing begins, and how it ends while the tracee lives.
//!
//! A thread's slot says who came first. It is taken with the slot's lock, under which a thread says that it ends: a tracer comes before that, and the thread knows
//! of it, or is refused. The list of a tracer is closed by the flag that it ends, which is set before the list is emptied; both look at that flag, and at
//! the list, with the list locked.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use vfs::Capabilities;

use super::options::{Course, Event, Options};
use super::scope;
use super::tracee::Tracee;
use crate::credentials::identity::Credentials;
use crate::credentials::inspection::Inspector;
use crate::errno::{Errno, SysResult};
use crate::process::pid_space;
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::Task;

/// Takes the thread's slot and lists the tracee with its tracer.
pub(super) fn link(tracee: &Arc<Tracee>, tracer: &Arc<Thread>) -> Result<(), Errno> {
    let thread = tracee.thread();
    {
        let mut slot = thread.trace.lock();
        if slot.is_some() || thread.exiting.load(Ordering::Relaxed) {
            return Err(Errno::EPERM);
        }
        *slot = Some(tracee.clone());
        // With the slot: a thread that ends finds both or none.
        thread.set_traced(true);
        if tracee.is_leader() {
            tracee.process().is_leader_traced.store(true, Ordering::Relaxed);
        }
    }
    let process = tracer.process();
    let listed = {
        let mut tracees = process.tracees.lock();
        if tracer.exiting.load(Ordering::Relaxed) {
            Err(Errno::ESRCH)
        } else {
            memory::fallible::try_push(&mut tracees.list, tracee.clone()).map_err(|_| Errno::ENOMEM)
        }
    };
    // After the list has it: who finds the flag set looks there.
    process.traces.store(true, Ordering::Release);
    if listed.is_err() {
        let_go(tracee, 0);
    } else if tracee.tracer().is_none() {
        // It has ended before it was listed, and nobody wanted to wait for it.
        unlist(process, tracee);
    }
    listed
}

/// Lets a tracee go, and gives what there is left of it back if it has ended meanwhile: a kill may come at any time. Its tracer's list is the caller's matter.
pub(super) fn let_go(tracee: &Arc<Tracee>, signal: u8) {
    if let Some(Some(_ended)) = release(tracee, signal) {
        super::end::give_back(tracee);
    }
}

/// Lets a tracee go, with a signal if it stands for one. Its tracer's list is the caller's matter. Returns whether it was still traced, and how it has ended.
#[must_use = "what has ended is to be given back"]
pub(super) fn release(tracee: &Arc<Tracee>, signal: u8) -> Option<Option<u32>> {
    let ended = {
        let mut state = tracee.lock();
        let _tracer = state.tracer.take()?;
        if state.stop.is_some() {
            state.resumption = Some(signal);
        }
        state.ended
    };
    let thread = tracee.thread();
    let slot = {
        let mut slot = thread.trace.lock();
        let is_ours = slot.as_ref().is_some_and(|own| Arc::ptr_eq(own, tracee));
        if is_ours {
            thread.set_traced(false);
            if tracee.is_leader() && ended.is_none() {
                tracee.process().is_leader_traced.store(false, Ordering::Relaxed);
            }
            slot.take()
        } else {
            None
        }
    };
    drop(slot);
    tracee.event.wake_all();
    tracee.process().signal_event.wake_all();
    Some(ended)
}

/// Takes a tracee off its tracer's list.
pub(super) fn unlist(process: &Process, tracee: &Arc<Tracee>) {
    let removed = {
        let mut tracees = process.tracees.lock();
        let place = tracees.list.iter().position(|other| Arc::ptr_eq(other, tracee));
        tracees.removals += u64::from(place.is_some());
        place.map(|place| tracees.list.swap_remove(place))
    };
    drop(removed);
}

/// `PTRACE_TRACEME`: the thread that made the caller's process traces it from now on.
pub(super) fn trace_me(task: &mut Task) -> SysResult {
    if task.thread.is_traced() {
        return Err(Errno::EPERM);
    }
    let Some(parent) = task.process().parent() else { return Ok(0) };
    let maker = task.process().maker.load(Ordering::Relaxed);
    // The kernel, which is the parent of orphans, traces nobody; nor does who is about to end.
    let Some(tracer) = parent.thread(maker).or_else(|| parent.representative()) else { return Ok(0) };
    let credentials = tracer.credentials();
    if !can_do_all_of(&credentials, &task.credentials) || !scope::lets_parent(&credentials, &task.credentials)
    {
        return Err(Errno::EPERM);
    }
    let tracee = Tracee::new(&task.thread, &tracer, credentials, Options::default(), false)?;
    match link(&tracee, &tracer) {
        Err(Errno::ESRCH) => Ok(0),
        outcome => outcome.map(|()| 0),
    }
}

/// Whether a tracer gains nothing by a tracee that asks for him: he has its privileges, or may trace all in its name space of users.
fn can_do_all_of(tracer: &Credentials, tracee: &Credentials) -> bool {
    let has_its = tracer.space().is_same(tracee.space()) && tracer.permitted.contains(tracee.permitted);
    has_its || tracer.has_in(tracee.space(), Capabilities::SYS_PTRACE)
}

/// `PTRACE_ATTACH` and `PTRACE_SEIZE`.
pub(super) fn attach(task: &mut Task, thread: &Arc<Thread>, seize: Option<Options>) -> SysResult {
    let process = thread.process();
    if Arc::ptr_eq(process, task.process()) || process.pid() == table::INIT {
        return Err(Errno::EPERM);
    }
    let options = seize.unwrap_or_default();
    let credentials = task.credentials.clone();
    let tracee = Tracee::new(thread, &task.thread, credentials, options, seize.is_some())?;
    // What is inspected is the slot: of a program that may not be traced it is given back before the tracer can make a request.
    let mut linked = Ok(());
    let checked = Inspector::attaching(task).inspect(process, || {
        if linked.is_err() || !thread.is_traced_as(&tracee) {
            linked = link(&tracee, &task.thread);
        }
    });
    if checked.is_err() && thread.is_traced_as(&tracee) {
        let signal = super::stop::signal_of(&tracee.lock());
        unlist(task.process(), &tracee);
        let_go(&tracee, signal);
    }
    checked?;
    linked?;
    if seize.is_none() {
        let _ = send::to_thread(thread, SignalInformation::from_kernel(Signal::SIGSTOP));
    }
    // One that stands with its stopped process stands for its tracer now.
    process.signal_event.wake_all();
    Ok(0)
}

/// `PTRACE_DETACH`: the tracee stands, and goes on with the signal.
pub(super) fn detach(task: &Task, tracee: &Arc<Tracee>, signal: u8) {
    unlist(task.process(), tracee);
    let_go(tracee, signal);
}

/// `PTRACE_INTERRUPT`
pub(super) fn interrupt(tracee: &Tracee) -> SysResult {
    {
        let mut state = tracee.lock();
        if !state.is_seized {
            return Err(Errno::EIO);
        }
        state.interrupt_wanted = true;
    }
    tracee.event.wake_all();
    tracee.thread().interrupt();
    Ok(0)
}

/// A child that is traced as the thread that makes it, and the event that tells of it.
pub(crate) struct TracedChild {
    tracee: Option<Arc<Tracee>>,
    event: Option<Event>,
}

impl TracedChild {
    /// What becomes of a child. `event`: none for those that the tracer is not to hear of; `with_maker`: it is traced whether the tracer hears of it or not
    /// (`CLONE_PTRACE`).
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn new(
        task: &Task,
        thread: &Arc<Thread>,
        event: Option<Event>,
        with_maker: bool,
    ) -> Result<TracedChild, Errno> {
        let untraced = TracedChild { tracee: None, event: None };
        let Some(own) = task.thread.tracee() else { return Ok(untraced) };
        let (tracer, credentials, options, is_seized) = {
            let state = own.lock();
            let Some(tracer) = state.tracer.clone() else { return Ok(untraced) };
            (tracer, state.tracer_credentials.clone(), state.options, state.is_seized)
        };
        let event = event.filter(|event| options.contains(event.option()));
        if event.is_none() && !with_maker {
            return Ok(untraced);
        }
        let tracee = Tracee::new(thread, &tracer, credentials, options, is_seized)?;
        Ok(TracedChild { tracee: Some(tracee), event })
    }

    /// The child is listed and does not run yet: it will stop before its first instruction.
    pub(crate) fn begin(&self) {
        let Some(tracee) = &self.tracee else { return };
        let Some(tracer) = tracee.tracer() else { return };
        // Somebody else may have been faster, or the tracer may have ended.
        if link(tracee, &tracer).is_err() {
            return;
        }
        let is_seized = {
            let mut state = tracee.lock();
            state.interrupt_wanted = state.is_seized;
            state.is_seized
        };
        if !is_seized {
            let _ = send::to_thread(tracee.thread(), SignalInformation::from_kernel(Signal::SIGSTOP));
        }
    }

    /// The child runs.
    pub(crate) fn tell(&self, task: &mut Task, pid: u32) {
        if let Some(event) = self.event {
            super::stop::at_event(task, event, of_tracer(task, pid).into());
        }
    }
}

/// What the tracer of the running thread calls a process or thread.
pub(crate) fn of_tracer(task: &Task, pid: u32) -> u32 {
    let tracer = task.thread.tracee().and_then(|tracee| tracee.tracer());
    tracer.map_or(pid, |tracer| pid_space::seen(tracer.process().space(), pid))
}

impl Thread {
    /// Whether it is traced by this.
    fn is_traced_as(&self, tracee: &Arc<Tracee>) -> bool {
        self.trace.lock().as_ref().is_some_and(|own| Arc::ptr_eq(own, tracee))
    }
}

/// Lets a tracee that stands go on.
pub(super) fn resume(tracee: &Tracee, course: Course, signal: u8) {
    {
        let mut state = tracee.lock();
        state.course = course;
        state.resumption = Some(signal);
        tracee.thread().set_traced_calls(course != Course::Free);
    }
    tracee.event.wake_all();
    if tracee.thread().is_killed() {
        // It may stand because it ends.
        tracee.process().signal_event.wake_all();
    }
}
