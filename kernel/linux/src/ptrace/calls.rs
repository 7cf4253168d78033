//! Calls of threads that are watched: by filters, by a tracer, or by both.
//!
//! In this order: the tracer, which may change number, arguments or result, or have no call made (number -1); the filters, which see what the tracer has
//! made of it; the call; the tracer again. What the tracer finds as result may say that the call is to be started again, and is believed when it is there
//! still after the stop: a debugger that has the program do something else in the midst of a call saves and restores it with the registers.

use machine::user::NO_CALL;

use super::options::{Course, Event};
use super::stop;
use super::tracee::Reason;
use crate::errno::{Errno, SysResult, register_of};
use crate::signal::information::SignalInformation;
use crate::signal::send;
use crate::signal::set::Signal;
use crate::task::Task;

const RT_SIGRETURN: u64 = 15;
const TRAP_BRKPT: i32 = 1;

/// Serves a call of a thread whose calls are watched.
#[inline(never)]
pub(crate) fn serve(task: &mut Task, number: u64) -> SysResult {
    let (number, emulated) = if task.thread.has_traced_calls() { begin(task) } else { (Some(number), false) };
    if emulated || task.thread.is_killed() {
        return Ok(task.user.registers.rax as usize);
    }
    task.call_end = CallEnd::Watched;
    let result = match number {
        None => Ok(task.user.registers.rax as usize),
        Some(number) if task.thread.is_filtered() => crate::seccomp::serve(task, number),
        Some(number) => crate::table::dispatch(task, number),
    };
    task.call_end = CallEnd::Unwatched;
    if task.thread.has_traced_calls() && !task.thread.is_killed() { end(task, result) } else { result }
}

/// Who sees to it that the tracer is told of a call's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallEnd {
    /// Nobody: when the call began the tracer did not want to know.
    #[default]
    Unwatched,
    /// [`serve`].
    Watched,
    /// The way back to user mode: the tracer has asked in the midst of the call, where it stood for an event.
    Owed,
}

/// The thread stood inside of a call; its tracer may want to know of the end now.
pub(super) fn after_event(task: &mut Task) {
    if task.call_end == CallEnd::Unwatched && task.thread.has_traced_calls() {
        task.call_end = CallEnd::Owed;
        task.needs_work = true;
    }
}

/// On the way back to user mode: tells what is owed. Returns whether something was.
pub(crate) fn settle(task: &mut Task) -> bool {
    let is_owed = core::mem::take(&mut task.call_end) == CallEnd::Owed;
    if is_owed && task.thread.has_traced_calls() && !task.thread.is_killed() {
        let result = Ok(task.user.registers.rax as usize);
        task.user.registers.rax = register_of(end(task, result));
    }
    is_owed
}

/// The number of the call that is to be made, if one is; and whether the tracer makes it instead.
fn begin(task: &mut Task) -> (Option<u64>, bool) {
    let Some(tracee) = task.thread.tracee() else { return (made(task), false) };
    let course = stop::course(&tracee);
    if !course.stops_before_calls() {
        return (made(task), false);
    }
    task.user.registers.rax = Errno::ENOSYS.to_register();
    stop::at_call(task, &tracee, Reason::Entry);
    (made(task), course.emulates())
}

/// The number of the call that the registers name now; none after a tracer has put -1 there.
fn made(task: &Task) -> Option<u64> {
    let number = task.user.call as u32;
    (number != u32::MAX).then_some(number.into())
}

fn end(task: &mut Task, result: SysResult) -> SysResult {
    let Some(tracee) = task.thread.tracee() else { return result };
    task.user.registers.rax = register_of(result);
    if task.user.call == RT_SIGRETURN {
        // What was interrupted by the signal is not to be started again.
        task.user.call = NO_CALL;
    }
    match stop::course(&tracee) {
        Course::Calls => stop::at_call(task, &tracee, Reason::Exit),
        course if course.steps() => {
            task.end_step();
            let place = task.user.registers.rip;
            send::force(&task.thread, SignalInformation::fault(Signal::SIGTRAP, TRAP_BRKPT, place));
        }
        _ => {}
    }
    match restart(task) {
        Some(code) => Err(code),
        None => Ok(task.user.registers.rax as usize),
    }
}

/// How the registers say that a call is to go on, which they do from its end to the way back to the program.
pub(crate) fn restart(task: &Task) -> Option<Errno> {
    const CODES: [Errno; 4] =
        [Errno::ERESTARTSYS, Errno::ERESTARTNOINTR, Errno::ERESTARTNOHAND, Errno::ERESTART_RESTARTBLOCK];
    let rax = task.user.registers.rax;
    let is_in_call = (task.user.call as i32) >= 0;
    CODES.into_iter().find(|code| is_in_call && code.to_register() == rax)
}

/// A filter wants the tracer to decide. Returns the number of the call that is to be made, if one is.
pub(crate) fn ask_tracer(task: &mut Task, data: u16) -> Result<Option<u64>, Errno> {
    let asks = task.thread.tracee().is_some_and(|tracee| tracee.is_told_of_filters());
    if !asks {
        return Err(Errno::ENOSYS);
    }
    stop::at_event(task, Event::Seccomp, data.into());
    Ok(made(task))
}

/// Whether filters have no effect on the running thread, because its tracer wants that.
pub(crate) fn suspends_filters(task: &Task) -> bool {
    task.thread.tracee().is_some_and(|tracee| tracee.suspends_filters())
}
