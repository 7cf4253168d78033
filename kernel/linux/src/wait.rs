//! wait4 and waitid, and what a parent is told about its children.

use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use crate::abi::{ResourceUsage, SignalInfoWords, Timeval};
use crate::errno::{Errno, SysResult};
use crate::process::pid_space;
use crate::process::process::{Process, State};
use crate::process::table::{self, Pid};
use crate::process::thread::Thread;
use crate::signal::actions::{ActionFlags, IGNORE};
use crate::signal::information::{ChildEvent, SignalInformation};
use crate::signal::send;
use crate::signal::set::Signal;
use crate::signal::shared::StopState;
use crate::task::Task;
use crate::user_pointer::UserPointer;

bitflags::bitflags! {
    /// Options of the wait calls.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WaitOptions: u32 {
        /// `WNOHANG`.
        const NO_HANG = 1;
        /// `WSTOPPED`.
        const STOPPED = 2;
        /// `WEXITED`.
        const EXITED = 4;
        /// `WCONTINUED`.
        const CONTINUED = 8;
        /// `WNOWAIT`.
        const NO_WAIT = 0x0100_0000;
        /// `__WNOTHREAD`.
        const NO_THREAD = 0x2000_0000;
        /// `__WALL`.
        const ALL = 0x4000_0000;
        /// `__WCLONE`.
        const CLONE = 0x8000_0000;
    }
}

/// Which children are waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Selection {
    Any,
    One(Pid),
    Group(Pid),
}

/// A change of a child's state.
pub(crate) struct Report {
    /// What who waits calls it.
    pub(crate) pid: Pid,
    pub(crate) user: u32,
    pub(crate) event: ChildEvent,
    /// Exit status or signal number.
    pub(crate) value: i32,
    /// As wait4 encodes it.
    pub(crate) status: u32,
    pub(crate) usage: ResourceUsage,
}

/// The event and value that a wait status encodes.
pub(crate) fn decode(status: u32) -> (ChildEvent, i32) {
    if status & 0x7f == 0 {
        (ChildEvent::Exited, (status >> 8 & 0xff) as i32)
    } else if status & 0x80 != 0 {
        (ChildEvent::Dumped, (status & 0x7f) as i32)
    } else {
        (ChildEvent::Killed, (status & 0x7f) as i32)
    }
}

/// Tells the parent that the process stopped or continued. The telling has begun, and ends here.
pub(crate) fn tell_parent_of_stop(process: &Arc<Process>, event: ChildEvent, signal: Signal) {
    // A parent that traces its child is told of each thread that stands.
    let traces =
        |tracer: Arc<Thread>| process.parent().is_some_and(|parent| Arc::ptr_eq(&parent, tracer.process()));
    if event != ChildEvent::Stopped || !process.tracer_of_leader().is_some_and(traces) {
        send_stop(process, event, signal);
    }
    process.end_telling();
}

fn send_stop(process: &Arc<Process>, event: ChildEvent, signal: Signal) {
    let Some(parent) = process.parent() else { return };
    let action = parent.actions().get(Signal::SIGCHLD);
    if action.handler != IGNORE && !action.flags.contains(ActionFlags::NO_CHILD_STOP) {
        let (user, system) = process.cpu_time_ns();
        let ticks = |ns: u64| ns / crate::time::NS_PER_TICK;
        let information = SignalInformation::child(
            Signal::SIGCHLD,
            event,
            process.pid(),
            process.credentials().user.real,
            signal.number().into(),
            ticks(user),
            ticks(system),
        );
        let _ = send::to_process(&parent, information);
    }
}

/// Remembers the greatest memory use for getrusage, before the memory goes.
pub(crate) fn note_peak_memory(process: &Process) {
    if let Some(space) = process.address_space() {
        let mut usage = process.usage_of_ended.lock();
        usage.maximum_resident_kib = usage.maximum_resident_kib.max(crate::memory::peak_resident_kib(&space));
    }
}

/// What a process itself has used.
pub(crate) fn usage_of(process: &Process) -> ResourceUsage {
    let (user, system) = process.cpu_time_ns();
    let mut usage = *process.usage_of_ended.lock();
    if let Some(space) = process.address_space() {
        usage.maximum_resident_kib = crate::memory::peak_resident_kib(&space);
    }
    usage.user_time = Timeval::from_ns(user);
    usage.system_time = Timeval::from_ns(system);
    usage.minor_faults = process.faults() as i64;
    let (voluntary, preemptions) = process.switches();
    (usage.voluntary_switches, usage.involuntary_switches) = (voluntary as i64, preemptions as i64);
    usage
}

/// Whether a parent has waited for a child: only then the child's usage counts as that of the parent's children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    Yes,
    No,
}

/// Removes a dead process (whose zombie the caller has claimed, or that never was one) from its parent, its group and the table.
/// Returns the parent.
pub(crate) fn bury(process: &Arc<Process>, waited: Waited) -> Option<Arc<Process>> {
    debug_assert_eq!(process.state(), State::Dead);
    let mut total = usage_of(process);
    total.add(&process.children.lock().usage);
    let parent = {
        // The parent may just be giving it to its heir: `kinship` says who has it.
        let parent = process.kinship.lock().parent.take();
        if let Some(parent) = &parent {
            let mut children = parent.children.lock();
            if let Some(at) = children.list.iter().position(|child| Arc::ptr_eq(child, process)) {
                children.list.remove(at);
                children.removals += 1;
            }
            if waited == Waited::Yes {
                children.usage.add(&total);
            }
            drop(children);
            if waited == Waited::Yes {
                parent.add_transferred(process.transferred());
            }
        }
        parent
    };
    crate::process::group::leave_group(process);
    process.control_group.release();
    table::remove_process(process.pid());
    pid_space::left(process.space());
    procfs::forget_process(process.pid());
    parent
}

/// Whether a child has ended, its parent has been told, and no tracer is to wait for it first.
fn is_left(child: &Arc<Process>) -> bool {
    child.state() == State::Zombie && !child.is_leader_traced.load(Ordering::Acquire) && !child.is_telling()
}

/// Whether a child has ended and nobody waits for it.
pub(crate) fn has_zombie(process: &Process) -> bool {
    process.children.lock().list.iter().any(is_left)
}

/// Waits for all children that have ended, for a parent that will not.
pub(crate) fn bury_zombies_of(process: &Process) {
    loop {
        let zombie = {
            let children = process.children.lock();
            children.list.iter().find(|child| is_left(child)).cloned()
        };
        let Some(zombie) = zombie else { return };
        if zombie.claim_zombie() {
            bury(&zombie, Waited::Yes);
        }
    }
}

fn selects(selection: Selection, options: WaitOptions, child: &Process) -> bool {
    let named = match selection {
        Selection::Any => true,
        Selection::One(pid) => child.pid() == pid,
        Selection::Group(id) => child.group_id() == id,
    };
    // Who is being buried is nobody's child any more: nothing tells who waits when the burial is over.
    if !named || child.state() == State::Dead {
        return false;
    }
    let is_clone = child.kinship.lock().exit_signal != Signal::SIGCHLD.number();
    options.contains(WaitOptions::ALL) || is_clone == options.contains(WaitOptions::CLONE)
}

/// What a look at the children found.
pub(crate) enum Finding {
    /// A change to report.
    Report(Report),
    /// A change that the parent is just being told of: the next look, after its event, sees it.
    InTheMaking,
    /// None of the children to wait for has changed.
    Nothing,
    /// There is no child to wait for.
    NoChild,
}

impl Finding {
    /// What this look and the next one at somebody else came to.
    pub(crate) fn or(self, next: Finding) -> Finding {
        match (self, next) {
            (Finding::Report(report), _) | (_, Finding::Report(report)) => Finding::Report(report),
            (Finding::InTheMaking, _) | (_, Finding::InTheMaking) => Finding::InTheMaking,
            (Finding::Nothing, _) | (_, Finding::Nothing) => Finding::Nothing,
            (Finding::NoChild, Finding::NoChild) => Finding::NoChild,
        }
    }
}

/// One look at all children, and at those that are traced.
fn look(caller: &Arc<Thread>, selection: Selection, options: WaitOptions) -> Finding {
    let process = caller.process();
    let finding = look_at_children(process, selection, options);
    // Acquire: pairs with the Release of who lists the first.
    if matches!(finding, Finding::Report(_)) || !process.traces.load(Ordering::Acquire) {
        return finding;
    }
    finding.or(crate::ptrace::waiting::look(caller, process, selection, options))
}

fn look_at_children(process: &Arc<Process>, selection: Selection, options: WaitOptions) -> Finding {
    loop {
        let removals = process.children.lock().removals;
        let finding = look_once(process, selection, options);
        // A child that another thread took out meanwhile moved the rest forward: one may have been missed, perhaps the only one.
        if matches!(finding, Finding::Report(_)) || process.children.lock().removals == removals {
            return finding;
        }
    }
}

fn look_once(process: &Arc<Process>, selection: Selection, options: WaitOptions) -> Finding {
    let mut finding = Finding::NoChild;
    // A copy of each candidate is taken under the lock, its state examined after: locks of children nest outside this one.
    let mut index = 0;
    loop {
        let child = {
            let children = process.children.lock();
            children.list.get(index).cloned()
        };
        let Some(child) = child else { break };
        index += 1;
        if !selects(selection, options, &child) {
            continue;
        }
        // None: another thread has just taken it.
        finding = finding.or(examine(process, &child, options));
        if matches!(finding, Finding::Report(_)) {
            return finding;
        }
    }
    finding
}

fn examine(parent: &Arc<Process>, child: &Arc<Process>, options: WaitOptions) -> Finding {
    let keep = options.contains(WaitOptions::NO_WAIT);
    // What the waiter calls it: now, as the number is free when the child has been buried.
    let pid = pid_space::seen(parent.space(), child.pid());
    let tracer = child.tracer_of_leader();
    let is_mine = tracer.as_ref().is_none_or(|tracer| Arc::ptr_eq(tracer.process(), parent));
    if child.state() == State::Zombie && options.contains(WaitOptions::EXITED) {
        if !is_mine {
            // First its tracer waits for it.
            return Finding::Nothing;
        }
        if child.is_telling() {
            return Finding::InTheMaking;
        }
        let status = child.exit_status.load(Ordering::Relaxed);
        let mut usage = usage_of(child);
        usage.add(&child.children.lock().usage);
        if !keep {
            if tracer.is_some() {
                // It was given to its tracer's process as its child after it had ended: it is waited for once.
                crate::ptrace::end::waited_for(child);
            }
            if !child.claim_zombie() {
                return Finding::NoChild;
            }
            bury(child, Waited::Yes);
        }
        let (event, value) = decode(status);
        return Finding::Report(report(pid, child, (event, value), status, usage));
    }
    let mut signals = child.signals.lock();
    if let StopState::Stopped(signal) = signals.stop
        && signals.stop_unreported
        // Who traces its child is told otherwise.
        && !(tracer.is_some() && is_mine)
        && options.contains(WaitOptions::STOPPED)
    {
        if child.is_telling() {
            return Finding::InTheMaking;
        }
        signals.stop_unreported = keep;
        drop(signals);
        let number = u32::from(signal.number());
        let status = number << 8 | 0x7f;
        return Finding::Report(report(
            pid,
            child,
            (ChildEvent::Stopped, number as i32),
            status,
            usage_of(child),
        ));
    }
    if signals.continue_unreported && options.contains(WaitOptions::CONTINUED) {
        if child.is_telling() {
            return Finding::InTheMaking;
        }
        signals.continue_unreported = keep;
        drop(signals);
        let value = Signal::SIGCONT.number().into();
        return Finding::Report(report(pid, child, (ChildEvent::Continued, value), 0xffff, usage_of(child)));
    }
    Finding::Nothing
}

fn report(
    pid: Pid,
    child: &Process,
    (event, value): (ChildEvent, i32),
    status: u32,
    usage: ResourceUsage,
) -> Report {
    let user = child.look_at_credentials(|credentials| credentials.user.real);
    Report { pid, user, event, value, status, usage }
}

#[inline(never)]
fn wait(task: &mut Task, selection: Selection, options: WaitOptions) -> Result<Option<Report>, Errno> {
    let caller = task.thread.clone();
    let process = caller.process();
    let mut finding = look(&caller, selection, options);
    loop {
        match finding {
            Finding::Report(report) => return Ok(Some(report)),
            Finding::NoChild => return Err(Errno::ECHILD),
            // Not for long: who tells is in the kernel and does not sleep.
            Finding::InTheMaking => process.child_event.wait_until(|| {
                finding = look(&caller, selection, options);
                !matches!(finding, Finding::InTheMaking)
            }),
            Finding::Nothing if options.contains(WaitOptions::NO_HANG) => return Ok(None),
            Finding::Nothing => {
                let waited = process.child_event.wait_interruptible(|| {
                    finding = look(&caller, selection, options);
                    !matches!(finding, Finding::Nothing)
                });
                // Interruption only asks whether something came: what the last look found wins over a signal.
                if waited.is_err() && matches!(finding, Finding::Nothing) {
                    return Err(Errno::ERESTARTSYS);
                }
            }
        }
    }
}

/// Waits for a child.
pub fn wait4(task: &mut Task, pid: i32, status: u64, options: u32, usage: u64) -> SysResult {
    let allowed = WaitOptions::all() - WaitOptions::EXITED - WaitOptions::NO_WAIT;
    let options =
        WaitOptions::from_bits(options).filter(|given| allowed.contains(*given)).ok_or(Errno::EINVAL)?;
    let selection = match pid {
        -1 => Selection::Any,
        0 => Selection::Group(task.process().group_id()),
        1.. => Selection::One(named(task, pid.unsigned_abs())),
        i32::MIN => return Err(Errno::ESRCH),
        _ => Selection::Group(named(task, pid.unsigned_abs())),
    };
    let Some(report) = wait(task, selection, options | WaitOptions::EXITED)? else { return Ok(0) };
    UserPointer::<u32>::new(status).write_if_given(&report.status)?;
    UserPointer::<ResourceUsage>::new(usage).write_if_given(&report.usage)?;
    Ok(report.pid as usize)
}

/// The kernel's number of what the caller calls so; of nobody, one that no child has.
fn named(task: &Task, number: Pid) -> Pid {
    task.kernel_number(number).unwrap_or(0)
}

/// Waits for a child's change of state.
#[inline(never)]
pub fn waitid(task: &mut Task, kind: u32, id: i32, information: u64, options: u32, usage: u64) -> SysResult {
    const P_ALL: u32 = 0;
    const P_PID: u32 = 1;
    const P_PGID: u32 = 2;
    const P_PIDFD: u32 = 3;
    let mut options = WaitOptions::from_bits(options).ok_or(Errno::EINVAL)?;
    if !options.intersects(WaitOptions::EXITED | WaitOptions::STOPPED | WaitOptions::CONTINUED) {
        return Err(Errno::EINVAL);
    }
    let selection = match kind {
        P_ALL => Selection::Any,
        P_PID if id > 0 => Selection::One(named(task, id as u32)),
        P_PGID if id == 0 => Selection::Group(task.process().group_id()),
        P_PGID if id > 0 => Selection::Group(named(task, id as u32)),
        P_PIDFD if id >= 0 => {
            if crate::pidfd::is_non_blocking(task, id)? {
                options |= WaitOptions::NO_HANG;
            }
            Selection::One(crate::pidfd::process_of(task, id)?.pid())
        }
        _ => return Err(Errno::EINVAL),
    };
    let outcome = wait(task, selection, options);
    let words = match &outcome {
        Ok(Some(report)) => {
            let (pid, user) = (report.pid, report.user);
            let user = task.credentials.space().shown_user(user);
            SignalInformation::child(Signal::SIGCHLD, report.event, pid, user, report.value, 0, 0).to_words()
        }
        // Also a call that fails says that there is no child, and a bad pointer comes first.
        Ok(None) | Err(_) => SignalInfoWords::default(),
    };
    UserPointer::<SignalInfoWords>::new(information).write_if_given(&words)?;
    if let Some(report) = outcome? {
        UserPointer::<ResourceUsage>::new(usage).write_if_given(&report.usage)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_decode_as_the_manual_says() {
        assert_eq!(decode(0x0300), (ChildEvent::Exited, 3));
        assert_eq!(decode(9), (ChildEvent::Killed, 9));
        assert_eq!(decode(0x8b), (ChildEvent::Dumped, 11));
    }
}
