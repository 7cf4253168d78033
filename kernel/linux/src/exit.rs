//! exit, exit_group, and the end of threads and processes.
//!
//! A thread ends in `end_thread`, on its own stack, from its loop: `exit` and `exit_group` only mark it. The last one to leave ends
//! the process: its memory and files go, its children are given away, and it becomes a zombie, or vanishes at once if the
//! parent does not care (SIGCHLD ignored or SA_NOCLDWAIT, and process 1 always).

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

use sched::current;

use crate::errno::SysResult;
use crate::process::process::{Kinship, Process, State};
use crate::process::thread::Thread;
use crate::process::{family, init, table};
use crate::ptrace::end::Held;
use crate::ptrace::options::Event;
use crate::signal::actions::{ActionFlags, IGNORE};
use crate::signal::information::{ChildEvent, SignalInformation};
use crate::signal::send;
use crate::signal::set::Signal;
use crate::signal::shared::{ProcessSignals, StopState};
use crate::task::Task;
use crate::user_pointer::UserPointer;
use crate::wait::Waited;

/// Ends the calling thread.
pub fn exit(task: &mut Task, code: u32) -> SysResult {
    task.exit_code = (code & 0xff) << 8;
    task.thread.kill();
    task.needs_work = true;
    Ok(0)
}

/// Ends all threads of the process.
pub fn exit_group(task: &mut Task, code: u32) -> SysResult {
    task.process().begin_exit((code & 0xff) << 8);
    task.needs_work = true;
    Ok(0)
}

impl Process {
    /// Begins the end of the process with this status (as wait4 reports it): all its threads leave. The first caller's status counts.
    pub(crate) fn begin_exit(&self, status: u32) {
        self.begin_exit_locked(&mut self.signals.lock(), status);
        self.signal_event.wake_all();
    }

    /// The same with the signals locked; the caller wakes those who wait for `signal_event` afterwards.
    pub(crate) fn begin_exit_locked(&self, signals: &mut ProcessSignals, status: u32) {
        if signals.group_exit.is_some() {
            if status == Signal::SIGKILL.number().into() {
                self.abort_dump();
            }
            return;
        }
        signals.group_exit = Some(status);
        signals.stop = StopState::Running;
        for thread in self.threads.lock().iter() {
            thread.kill();
        }
    }

    /// SIGKILL has come to a process that ends: if it is dumped, that ends, too. With the signals locked.
    pub(crate) fn abort_dump(&self) {
        if let Some(gathering) = &*self.gathering.lock() {
            gathering.abort();
        }
    }
}

/// One line for the log about a program that a fault killed.
#[inline(never)]
pub(crate) fn report_fatal_signal(task: &Task, information: &SignalInformation) {
    let name = task.thread.name();
    let length = name.iter().position(|&byte| byte == 0).unwrap_or(name.len());
    log::info!(
        "{}[{}] killed by {:?} (code {}, address {:#x}) at {:#x}",
        alloc::string::String::from_utf8_lossy(&name[..length]),
        task.thread.tid(),
        information.signal,
        information.code,
        task.last_fault.address,
        task.user.registers.rip,
    );
}

/// The end of the running thread.
#[inline(never)]
pub(crate) fn end_thread(mut task: Box<Task>) {
    if task.thread.is_traced() {
        // Before it stands: whom it traces may be its tracer, and stand, too.
        crate::ptrace::end::tracer_ends(&task.thread);
        let status = task.process().signals.lock().group_exit.unwrap_or(task.exit_code);
        crate::ptrace::stop::at_event(&mut task, Event::Exit, status.into());
    }
    // Its workers end before it does: they are threads of the process that must not be the last ones.
    if let Some(submitter) = task.submitter.take() {
        submitter.shut_down(&task);
    }
    crate::signal::deliver::retire(&task.thread);
    crate::ptrace::end::tracer_ends(&task.thread);
    release_user_memory(&mut task);
    crate::futex::inheritance::close(&task.thread);
    crate::scheduling::end_reservation();
    let Task { thread, address_space, files, file_system, name_spaces, exit_code, .. } = *task;
    let process = thread.process().clone();
    let (undo, shared_files, rest) = {
        let mut shared = thread.shared.lock();
        let rest = (shared.file_system.take(), shared.charge.take(), shared.name_spaces.take());
        (shared.undo.take(), shared.files.take(), rest)
    };
    thread.leave_listeners();
    // What is undone is in the name space.
    drop(undo);
    drop((shared_files, file_system, rest, name_spaces));
    // The last one closes what is open.
    drop(files);
    // Before the end is announced: who waits for it finds the memory free. The process's own reference goes there too.
    drop(current().set_address_space(None));
    drop(address_space);
    finish_thread(&process, &thread, exit_code);
    if current().has_processor_group() {
        drop(current().set_processor_group(None));
    }
    drop(::memory::charge::pay_with(None));
}

/// The thread is no more: its process goes on without it, or ends with it.
fn finish_thread(process: &Arc<Process>, thread: &Arc<Thread>, exit_code: u32) {
    let tid = thread.tid();
    if tid == process.pid() {
        *process.last_name.lock() = thread.name();
        let former = core::mem::replace(&mut *process.last_credentials.lock(), thread.credentials());
        drop(former);
    }
    let (last, status, completed_stop) = leave(process, thread);
    let status = status.unwrap_or(exit_code);
    if !thread.is_traced() || !crate::ptrace::end::thread_ended(process, thread, status) {
        table::remove_thread(tid, thread);
    }
    if let Some(signal) = completed_stop {
        crate::wait::tell_parent_of_stop(process, ChildEvent::Stopped, signal);
    }
    if !last {
        process.control_group.thread_has_ended();
    } else {
        // Without exit_group the status is that of the thread that leaves last.
        process.exit_status.store(status, Ordering::Relaxed);
        end_process(process);
    }
    process.thread_event.wake_all();
}

/// Registers what happens to the process of a thread that overflowed its kernel stack. Once, at start-up.
pub(crate) fn register_death_hook() {
    sched::set_death_hook(thread_abandoned);
}

/// A thread died in the kernel and will never run again: its process ends with SIGSEGV. What the thread's own stack held cannot be
/// dropped, so what others wait for (open files, memory) is given back by hand.
fn thread_abandoned(kernel: sched::ThreadRef, died: &sync::arc_table::OwnerDied) {
    let Some(thread) = kernel.personality().and_then(|object| object.downcast::<Thread>().ok()) else {
        return;
    };
    let process = thread.process().clone();
    process.begin_exit(Signal::SIGSEGV.number().into());
    ::ipc::end_abandoned(::ipc::ThreadId::from_bits(thread.ipc_id.load(Ordering::Relaxed)));
    crate::signal::deliver::retire(&thread);
    crate::futex::inheritance::close(&thread);
    crate::ptrace::end::tracer_ends(&thread);
    let (undo, files, rest) = {
        let mut shared = thread.shared.lock();
        let rest = (shared.file_system.take(), shared.charge.take(), shared.name_spaces.take());
        (shared.undo.take(), shared.files.take(), rest)
    };
    // Its own are lost on the dead stack. Dropped, these close what is open.
    drop(files.and_then(|files| vfs::Descriptors::inherit(files, died)));
    drop(undo);
    drop(rest);
    // One reference here and the one that is lost on the dead stack.
    const LAST_REFERENCES: usize = 2;
    let space = process.address_space().filter(|_| process.thread_count() == 1);
    finish_thread(&process, &thread, 0);
    if let Some(space) = space
        && Arc::strong_count(&space) <= LAST_REFERENCES
    {
        let _ = space.unmap(machine::address::UserAddr::new(0), machine::address::USER_END as u64);
    }
}

/// Takes the thread off its process's list. Returns whether it was the last, the status of a group exit, and the signal of
/// a stop that its leaving completed.
fn leave(process: &Process, thread: &Arc<Thread>) -> (bool, Option<u32>, Option<Signal>) {
    let mut signals = process.signals.lock();
    let mut threads = process.threads.lock();
    threads.retain(|other| !Arc::ptr_eq(other, thread));
    // Under the lock of the list: who adds up what the process has used finds each thread in one of both places.
    process.ended.add(thread);
    let last = threads.is_empty();
    if !last {
        process.control_group.thread_ends();
    }
    drop(threads);
    thread.pending.lock().discard(crate::signal::set::SignalSet::ALL);
    let completed = if last { None } else { crate::signal::deliver::note_parked(&mut signals, thread) };
    (last, signals.group_exit, completed)
}

/// What the thread left in user memory: robust futexes, its clear-tid word; and its number for messages.
#[inline(never)]
pub(crate) fn release_user_memory(task: &mut Task) {
    if task.robust_list != 0 {
        crate::futex::robust::release(task);
        task.robust_list = 0;
    }
    crate::futex::inheritance::end(&task.thread);
    let clear = core::mem::take(&mut task.clear_tid);
    if clear != 0 && UserPointer::<u32>::new(clear).write(&0).is_ok() {
        crate::futex::wake_address(task, clear);
    }
    task.sequence = Default::default();
    // Its number goes too: who waits for it is told.
    if task.ipc.take().is_some() {
        task.thread.ipc_id.store(0, Ordering::Relaxed);
    }
}

/// The child of a vfork gives the memory back.
pub(crate) fn release_vfork(process: &Process) {
    let release = process.vfork_release.lock().take();
    if let Some(release) = release {
        release.complete();
    }
}

/// The last thread has left: turns the process into a zombie or less.
#[inline(never)]
fn end_process(process: &Arc<Process>) {
    crate::accounting::process_ends(process);
    table::count_faults(process.faults());
    release_vfork(process);
    process.timers.cancel_all();
    process.contexts.end();
    crate::wait::note_peak_memory(process);
    process.control_group.end(&**process);
    // The memory itself goes when the last thread that runs on it lets go.
    drop(process.replace_address_space(None));
    let executable = core::mem::take(&mut *process.executable.lock());
    drop(executable);
    process.signals.lock().pending.discard(crate::signal::set::SignalSet::ALL);
    if process.session_id() == process.pid() {
        crate::terminal::session_leader_ended(process);
    }
    if process.is_init_of_space()
        && let Some(space) = process.space().clone()
    {
        space.end(process);
    }
    let children = {
        let children = process.children.lock();
        let mut copy = alloc::vec::Vec::new();
        if memory::fallible::try_reserve(&mut copy, children.list.len()).is_ok() {
            copy.extend(children.list.iter().cloned());
        }
        copy
    };
    family::release_orphaned_groups(process, &children);
    drop(children);
    family::bequeath(process);
    let status = process.exit_status.load(Ordering::Relaxed);
    let end = {
        // Under `kinship`, so that a parent that ends at the same time either hands over a running child or one that has ended.
        let kinship = process.kinship.lock();
        match Held::of(process, &kinship, status) {
            Some(held) => {
                process.set_state(State::Zombie);
                Err(held)
            }
            None => {
                let end = End::of(&kinship);
                process.begin_telling();
                process.set_state(if end.wanted { State::Zombie } else { State::Dead });
                Ok(end)
            }
        }
    };
    match end {
        Ok(end) => {
            crate::ptrace::end::forget_tracee(process);
            end.announce(process);
        }
        Err(held) => held.announce(status),
    }
    process.end_pollers.notify(vfs::PollEvents::INPUT);
}

/// What the parent will see of the end.
fn end_information(process: &Process, signal: Signal) -> SignalInformation {
    let status = process.exit_status.load(Ordering::Relaxed);
    let (event, value) = crate::wait::decode(status);
    let (user, system) = process.cpu_time_ns();
    let ticks = |ns: u64| ns / crate::time::NS_PER_TICK;
    let uid = process.last_credentials.lock().user.real;
    SignalInformation::child(signal, event, process.pid(), uid, value, ticks(user), ticks(system))
}

/// The end of a process as its parent is told it.
pub(crate) struct End {
    parent: Option<Arc<Process>>,
    exit_signal: u8,
    /// Whether the parent wants to wait for it. A child that nobody wants becomes [`State::Dead`] in one step: were it a zombie for a
    /// moment, a parent that ignores its children could wait for it.
    pub(crate) wanted: bool,
}

impl End {
    /// What the parent of now makes of the end.
    pub(crate) fn of(kinship: &Kinship) -> End {
        let Kinship { parent, exit_signal, .. } = kinship;
        let careless = |parent: &Arc<Process>| {
            let action = parent.actions().get(Signal::SIGCHLD);
            let ignores = action.handler == IGNORE || action.flags.contains(ActionFlags::NO_CHILD_WAIT);
            parent.pid() == table::INIT || ignores && *exit_signal == Signal::SIGCHLD.number()
        };
        let wanted = !parent.as_ref().is_some_and(careless);
        End { parent: parent.clone(), exit_signal: *exit_signal, wanted }
    }

    /// Sends the signal, buries the process if it is not wanted, and wakes who waits. The telling has begun.
    pub(crate) fn announce(self, process: &Arc<Process>) {
        if let (Some(parent), Some(signal)) = (&self.parent, Signal::new(self.exit_signal.into()))
            && (signal != Signal::SIGCHLD || parent.actions().get(Signal::SIGCHLD).handler != IGNORE)
        {
            let _ = send::to_process(parent, end_information(process, signal));
        }
        if self.wanted {
            process.end_telling();
            return;
        }
        // Who has inherited it meanwhile waits for nothing any more, too.
        if let Some(parent) = crate::wait::bury(process, Waited::No) {
            if parent.pid() == table::INIT {
                init::note_end(process);
            }
            parent.child_event.wake_all();
        }
    }
}
