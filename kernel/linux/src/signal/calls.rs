//! System calls about signals.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::time::now_ns;
use sched::current;

use super::actions::{Action, IGNORE};
use super::deliver;
use super::frame::{SS_AUTODISARM, SS_DISABLE, SS_ONSTACK, is_on, largest_frame};
use super::information::{SI_TKILL, SI_USER, SignalInformation};
use super::send;
use super::set::{Signal, SignalSet};
use crate::abi::{AlternateStack, SignalActionWords, SignalInfoWords, Timespec};
use crate::errno::{Errno, SysResult};
use crate::process::group::ProcessGroup;
use crate::process::pid_space::{self, PidSpace};
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Size of `sigset_t`, which every call repeats.
const SET_BYTES: usize = 8;
/// Smallest alternate stack.
const MINSIGSTKSZ: u64 = 2048;

fn check_size(size: usize) -> Result<(), Errno> {
    if size == SET_BYTES { Ok(()) } else { Err(Errno::EINVAL) }
}

fn signal_number(number: i32) -> Result<Signal, Errno> {
    u64::try_from(number).ok().and_then(Signal::new).ok_or(Errno::EINVAL)
}

/// Reads and sets a disposition.
#[inline(never)]
pub fn rt_sigaction(task: &mut Task, number: i32, new: u64, old: u64, size: usize) -> SysResult {
    check_size(size)?;
    let signal = signal_number(number)?;
    let actions = task.process().actions();
    let before = match UserPointer::<SignalActionWords>::new(new).given() {
        Some(pointer) => {
            let action = Action::from_words(&pointer.read()?);
            if SignalSet::UNBLOCKABLE.contains(signal) {
                return Err(Errno::EINVAL);
            }
            let (before, ignored) = actions.set(signal, action);
            if ignored {
                discard(task, SignalSet::of(&[signal]));
            }
            before
        }
        None => actions.get(signal),
    };
    UserPointer::<SignalActionWords>::new(old).write_if_given(&before.to_words())?;
    Ok(0)
}

fn discard(task: &Task, set: SignalSet) {
    let mut signals = task.process().signals.lock();
    signals.pending.discard(set);
    for thread in task.process().threads.lock().iter() {
        thread.pending.lock().discard(set);
    }
}

/// Reads and changes the blocked mask.
pub fn rt_sigprocmask(task: &mut Task, how: u32, new: u64, old: u64, size: usize) -> SysResult {
    check_size(size)?;
    let before = task.thread.blocked();
    if new != 0 {
        let set = SignalSet::from_bits(UserPointer::<u64>::new(new).read()?);
        let mask = match how {
            0 => before | set,
            1 => before & !set,
            2 => set,
            _ => return Err(Errno::EINVAL),
        };
        task.set_blocked(mask.blockable());
    }
    UserPointer::<u64>::new(old).write_if_given(&before.bits())?;
    Ok(0)
}

/// Signals pending and blocked.
pub fn rt_sigpending(task: &mut Task, set: u64, size: usize) -> SysResult {
    if size > SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let shared = task.process().signals.lock().pending.set();
    let pending = (shared | task.thread.pending.lock().set()) & task.thread.blocked();
    crate::user_pointer::write_bytes(set, &pending.bits().to_le_bytes()[..size])?;
    Ok(0)
}

/// Waits for a signal with another mask.
pub fn rt_sigsuspend(task: &mut Task, mask: u64, size: usize) -> SysResult {
    check_size(size)?;
    let mask = SignalSet::from_bits(UserPointer::<u64>::new(mask).read()?).blockable();
    task.set_temporary_mask(mask);
    let _ = sched::block_interruptible(|| false, None);
    Err(Errno::ERESTARTNOHAND)
}

/// Waits for a signal.
pub fn pause(_task: &mut Task) -> SysResult {
    let _ = sched::block_interruptible(|| false, None);
    Err(Errno::ERESTARTNOHAND)
}

/// Waits for a blocked signal and takes it.
pub fn rt_sigtimedwait(task: &mut Task, set: u64, information: u64, timeout: u64, size: usize) -> SysResult {
    check_size(size)?;
    let set = SignalSet::from_bits(UserPointer::<u64>::new(set).read()?).blockable();
    let deadline = match UserPointer::<Timespec>::new(timeout).given() {
        Some(pointer) => Some(now_ns().saturating_add(pointer.read()?.to_ns().ok_or(Errno::EINVAL)?)),
        None => None,
    };
    let taken = match take_from(task, set) {
        Some(taken) => taken,
        None => wait_for(task, set, deadline)?,
    };
    crate::timer::signal_taken(task.process(), &taken);
    if information != 0 {
        UserPointer::<SignalInfoWords>::new(information)
            .write(&taken.seen_in(task.credentials.space()).to_words())?;
    }
    Ok(taken.signal.number() as usize)
}

fn take_from(task: &Task, set: SignalSet) -> Option<SignalInformation> {
    let mut signals = task.process().signals.lock();
    let taken = task.thread.pending.lock().take(!set);
    taken.or_else(|| signals.pending.take(!set))
}

/// Sleeps until one of the set comes. Meanwhile the set is not blocked, so that a sender wakes this thread.
#[inline(never)]
fn wait_for(task: &mut Task, set: SignalSet, deadline: Option<u64>) -> Result<SignalInformation, Errno> {
    if deadline.is_some_and(|deadline| deadline <= now_ns()) {
        return Err(Errno::EAGAIN);
    }
    let before = task.thread.blocked();
    {
        let _signals = task.process().signals.lock();
        task.thread.awaited.store(set.bits(), core::sync::atomic::Ordering::Relaxed);
        task.thread.set_blocked(before & !set);
    }
    // A signal sent since the first look found it blocked and interrupted nobody.
    let taken = take_from(task, set);
    let slept = match taken {
        Some(_) => Ok(()),
        None => sched::block_interruptible(|| false, deadline),
    };
    let taken = taken.or_else(|| take_from(task, set));
    {
        // Both in one step for senders: a signal that is let through and not awaited may end the process.
        let _signals = task.process().signals.lock();
        task.thread.set_blocked(before);
        task.thread.awaited.store(0, core::sync::atomic::Ordering::Relaxed);
    }
    task.hand_over(before & set);
    if taken.is_some() {
        // Cleared before the look, so that what comes after the look keeps its attention.
        current().set_attention(false);
        if deliver::is_pending(task) {
            current().set_attention(true);
        }
        return taken.ok_or(Errno::EAGAIN);
    }
    match slept {
        Err(sched::WaitError::TimedOut) => Err(Errno::EAGAIN),
        _ => Err(Errno::EINTR),
    }
}

/// Reads and sets the alternate stack.
pub fn sigaltstack(task: &mut Task, new: u64, old: u64) -> SysResult {
    let sp = task.user.registers.rsp;
    let mut before = task.alternate_stack;
    if before.size == 0 {
        before.flags = SS_DISABLE;
    } else if is_on(&task.alternate_stack, sp) {
        before.flags |= SS_ONSTACK;
    }
    if let Some(pointer) = UserPointer::<AlternateStack>::new(new).given() {
        let wanted = pointer.read()?;
        if is_on(&task.alternate_stack, sp) {
            return Err(Errno::EPERM);
        }
        set_alternate_stack(task, &wanted)?;
    }
    UserPointer::<AlternateStack>::new(old).write_if_given(&before)?;
    Ok(0)
}

/// Checks and installs an alternate stack.
pub(super) fn set_alternate_stack(task: &mut Task, wanted: &AlternateStack) -> Result<(), Errno> {
    if is_on(&task.alternate_stack, task.user.registers.rsp) {
        return Err(Errno::EPERM);
    }
    match wanted.flags & !SS_AUTODISARM {
        SS_DISABLE => task.alternate_stack = AlternateStack { flags: SS_DISABLE, ..Default::default() },
        0 | SS_ONSTACK => {
            if wanted.size < MINSIGSTKSZ.max(largest_frame() as u64 / 2) {
                return Err(Errno::ENOMEM);
            }
            task.alternate_stack = AlternateStack { flags: wanted.flags & SS_AUTODISARM, ..*wanted };
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(())
}

/// Whether the caller may send the signal; SIGCONT may go to any process of the session.
fn permitted(task: &Task, target: &Process, signal: Option<Signal>) -> bool {
    let same_session = || task.process().session_id() == target.session_id();
    target.look_at_credentials(|theirs| task.credentials.may_signal(theirs))
        || (signal == Some(Signal::SIGCONT) && same_session())
}

/// Sends to one process; signal `None` (0) only checks.
fn kill_one(task: &Task, target: &Arc<Process>, signal: Option<Signal>) -> Result<(), Errno> {
    if !permitted(task, target, signal) {
        return Err(Errno::EPERM);
    }
    let Some(signal) = signal else { return Ok(()) };
    let information = send::user_information(signal, task.process(), &task.credentials);
    send::from_program(target, None, information, (task.process(), &task.credentials))
}

/// Sends to each; succeeds if one could be signalled.
fn kill_each(
    task: &Task,
    targets: impl IntoIterator<Item = Arc<Process>>,
    signal: Option<Signal>,
) -> SysResult {
    let mut outcome = Err(Errno::ESRCH);
    targets.into_iter().for_each(|target| note_sent(&mut outcome, kill_one(task, &target, signal)));
    outcome
}

/// Sends to each member of a group. The list stays locked: a child that a member forks meanwhile is either in it or not made before the
/// member has taken the signal.
fn kill_members(task: &Task, group: &ProcessGroup, signal: Option<Signal>) -> SysResult {
    let mut outcome = Err(Errno::ESRCH);
    group.for_each(|target| note_sent(&mut outcome, kill_one(task, target, signal)));
    outcome
}

fn note_sent(outcome: &mut SysResult, sent: Result<(), Errno>) {
    if *outcome != Ok(0) {
        *outcome = sent.map(|()| 0);
    }
}

fn optional_signal(number: i32) -> Result<Option<Signal>, Errno> {
    if number == 0 { Ok(None) } else { signal_number(number).map(Some) }
}

/// Sends a signal to a process, a group, or all.
#[inline(never)]
pub fn kill(task: &mut Task, pid: i32, number: i32) -> SysResult {
    let signal = optional_signal(number)?;
    match pid {
        1.. => {
            let target = task.find_process_of(pid as u32).ok_or(Errno::ESRCH)?;
            kill_one(task, &target, signal).map(|()| 0)
        }
        0 => kill_members(task, &task.process().group(), signal),
        -1 => kill_all(task, signal),
        i32::MIN => Err(Errno::ESRCH),
        _ => {
            let group = task.find_group(pid.unsigned_abs()).ok_or(Errno::ESRCH)?;
            kill_members(task, &group, signal)
        }
    }
}

/// Rounds of [`kill_all`]: each halves, at least, what fork could add meanwhile, as who has a signal does not fork.
const ROUNDS_MAX: usize = 32;

/// Sends to all processes but the first and the caller's, and to those that they fork meanwhile. Those that may not be
/// signalled do not matter, as long as there are any.
#[inline(never)]
fn kill_all(task: &mut Task, signal: Option<Signal>) -> SysResult {
    let me = task.process().pid();
    let mut signalled: Vec<Arc<Process>> = Vec::new();
    let mut outcome = Err(Errno::ESRCH);
    for _ in 0..ROUNDS_MAX {
        let mut others = table::processes()?;
        let space = task.process().space();
        others.retain(|process| {
            process.pid() != me
                && process.pid() != table::INIT
                && PidSpace::encloses(space, process.space())
                && pid_space::seen(space, process.pid()) != table::INIT
        });
        let is_new = |process: &Arc<Process>| {
            let found = signalled.binary_search_by_key(&process.pid(), |known| known.pid());
            !found.is_ok_and(|index| Arc::ptr_eq(&signalled[index], process))
        };
        let mut fresh = others.iter().filter(|process| is_new(process)).cloned().peekable();
        if fresh.peek().is_none() {
            break;
        }
        let sent = match kill_each(task, fresh, signal) {
            Err(Errno::EPERM) => Ok(0),
            sent => sent,
        };
        outcome = outcome.or(sent);
        signalled = others;
    }
    outcome
}

fn send_to_thread(task: &Task, target: &Arc<Thread>, number: i32) -> SysResult {
    let signal = optional_signal(number)?;
    if !permitted(task, target.process(), signal) {
        return Err(Errno::EPERM);
    }
    if let Some(signal) = signal {
        let sender = (task.process().pid(), task.credentials.user.real);
        let information = SignalInformation::from_process(signal, SI_TKILL, sender.0, sender.1);
        let sender = (&**task.process(), &*task.credentials);
        send::from_program(target.process(), Some(target), information, sender)?;
    }
    Ok(0)
}

/// Sends a signal to a thread of any process.
pub fn tkill(task: &mut Task, tid: i32, number: i32) -> SysResult {
    if tid <= 0 {
        return Err(Errno::EINVAL);
    }
    match task.find_thread(tid as u32) {
        Some(thread) => send_to_thread(task, &thread, number),
        None => send_to_ended(task, tid as u32, number),
    }
}

/// Sends a signal to a thread of a certain process.
pub fn tgkill(task: &mut Task, tgid: i32, tid: i32, number: i32) -> SysResult {
    if tid <= 0 || tgid <= 0 {
        return Err(Errno::EINVAL);
    }
    match task.find_thread(tid as u32) {
        Some(thread) if task.seen_number(thread.process().pid()) == tgid as u32 => {
            send_to_thread(task, &thread, number)
        }
        None if tid == tgid => send_to_ended(task, tid as u32, number),
        _ => Err(Errno::ESRCH),
    }
}

/// A leader that has ended, and was not waited for, takes any signal, and nothing happens.
fn send_to_ended(task: &Task, pid: u32, number: i32) -> SysResult {
    let process = task.find_process(pid).ok_or(Errno::ESRCH)?;
    if permitted(task, &process, optional_signal(number)?) { Ok(0) } else { Err(Errno::EPERM) }
}

fn queue(
    task: &Task,
    target: &Arc<Process>,
    thread: Option<&Arc<Thread>>,
    number: i32,
    words: u64,
) -> SysResult {
    let words = UserPointer::<SignalInfoWords>::new(words).read()?;
    if !send::may_forge(words.code) && target.pid() != task.process().pid() {
        return Err(Errno::EPERM);
    }
    let signal = optional_signal(number)?;
    if !permitted(task, target, signal) {
        return Err(Errno::EPERM);
    }
    if let Some(signal) = signal {
        let information = SignalInformation::from_words(signal, &words).sent_by(task.viewer());
        send::from_program(target, thread, information, (task.process(), &task.credentials))?;
    }
    Ok(0)
}

/// Sends a signal with facts to a process.
pub fn rt_sigqueueinfo(task: &mut Task, pid: i32, number: i32, words: u64) -> SysResult {
    let target = u32::try_from(pid).ok().and_then(|pid| task.find_process_of(pid)).ok_or(Errno::ESRCH)?;
    queue(task, &target, None, number, words)
}

/// Sends a signal with facts to a thread.
pub fn rt_tgsigqueueinfo(task: &mut Task, tgid: i32, tid: i32, number: i32, words: u64) -> SysResult {
    if tid <= 0 || tgid <= 0 {
        return Err(Errno::EINVAL);
    }
    let thread = task.find_thread(tid as u32).ok_or(Errno::ESRCH)?;
    if task.seen_number(thread.process().pid()) != tgid as u32 {
        return Err(Errno::ESRCH);
    }
    queue(task, thread.process(), Some(&thread), number, words)
}

/// Sends a signal to the process of a pidfd.
pub fn pidfd_send_signal(task: &mut Task, descriptor: i32, number: i32, words: u64, flags: u32) -> SysResult {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    let target = crate::pidfd::process_to_signal(task, descriptor)?;
    if target.is_zombie() && target.state() == crate::process::process::State::Dead {
        return Err(Errno::ESRCH);
    }
    if words != 0 {
        let given = UserPointer::<SignalInfoWords>::new(words).read()?;
        if given.signal != number {
            return Err(Errno::EINVAL);
        }
        return queue(task, &target, None, number, words);
    }
    kill_one(task, &target, optional_signal(number)?).map(|()| 0)
}

/// Goes on with an interrupted wait.
pub fn restart_syscall(task: &mut Task) -> SysResult {
    match task.paused.take() {
        Some(pause) => crate::task::resume(task, pause),
        None => Err(Errno::EINTR),
    }
}

const _: () = assert!(SI_USER == 0 && IGNORE == 1);
