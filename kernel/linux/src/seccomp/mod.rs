//! Threads that may not make all calls: seccomp(2).
//!
//! A thread without restrictions pays a load and a branch for each call. What restricts a thread is kept where other threads of its process can change it
//! (`SECCOMP_FILTER_FLAG_TSYNC`), under the lock of what it shows of itself; a call that all its filters allow by its number alone
//! is known by a bit.

mod calls;
mod filter;
mod inspection;
mod listener;
mod notifier;
mod program;

use alloc::sync::Arc;

pub use calls::{prctl_set, seccomp};
pub(crate) use filter::Filter;
use filter::{ARCHITECTURE, Action, Verdict};
pub(crate) use inspection::{show_filter, show_metadata};
use notifier::Notifier;

use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::signal::information::SignalInformation;
use crate::signal::set::Signal;
use crate::task::Task;

/// How a thread is restricted; `/proc/PID/status` shows the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mode {
    /// Not at all.
    None = 0,
    /// It may read, write, end, and return from handlers.
    Strict = 1,
    /// Filters decide.
    Filters = 2,
}

/// What restricts a thread.
#[derive(Clone, Default)]
pub(crate) enum Restriction {
    /// Nothing.
    #[default]
    None,
    /// The strict mode.
    Strict,
    /// The last of its filters.
    Filters(Arc<Filter>),
}

impl Restriction {
    pub(crate) fn mode(&self) -> Mode {
        match self {
            Self::None => Mode::None,
            Self::Strict => Mode::Strict,
            Self::Filters(_) => Mode::Filters,
        }
    }

    /// How many filters there are.
    pub(crate) fn filters(&self) -> usize {
        match self {
            Self::Filters(filter) => filter.count(),
            _ => 0,
        }
    }
}

/// What is to be done about a call.
enum Decision {
    Make,
    KillThread,
    Follow(Verdict),
    /// Somebody else decides, who is told this of the call.
    Ask(Option<Arc<Notifier>>, [u32; program::DATA_WORDS]),
}

/// Serves a call of a thread that is restricted.
#[inline(never)]
pub(crate) fn serve(task: &mut Task, number: u64) -> SysResult {
    if task.thread.is_traced() && crate::ptrace::calls::suspends_filters(task) {
        return crate::table::dispatch(task, number);
    }
    match decide(task, number) {
        Decision::Make => crate::table::dispatch(task, number),
        Decision::KillThread => {
            end_thread(task, Signal::SIGKILL);
            Ok(0)
        }
        Decision::Follow(verdict) => follow(task, number, verdict),
        Decision::Ask(notifier, data) => ask(task, number, notifier, &data),
    }
}

fn decide(task: &Task, number: u64) -> Decision {
    let filter = {
        let shared = task.thread.shared.lock();
        match &shared.restriction {
            Restriction::None => return Decision::Make,
            Restriction::Strict => {
                const READ: u64 = 0;
                const WRITE: u64 = 1;
                const RT_SIGRETURN: u64 = 15;
                const EXIT: u64 = 60;
                let may = [READ, WRITE, RT_SIGRETURN, EXIT].contains(&number);
                return if may { Decision::Make } else { Decision::KillThread };
            }
            Restriction::Filters(filter) if filter.allows_any(number) => return Decision::Make,
            Restriction::Filters(filter) => filter.clone(),
        }
    };
    let registers = &task.user.registers;
    let (low, high) = (|value: u64| value as u32, |value: u64| (value >> 32) as u32);
    let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10, registers.r8, registers.r9];
    let mut data = [0; program::DATA_WORDS];
    (data[0], data[1], data[2], data[3]) =
        (low(number), ARCHITECTURE, low(registers.rip), high(registers.rip));
    for (words, argument) in data[4..].chunks_exact_mut(2).zip(arguments) {
        (words[0], words[1]) = (low(argument), high(argument));
    }
    let (verdict, judge) = filter.judge(&data);
    match verdict.action {
        Action::Notify => Decision::Ask(judge.notifier().cloned(), data),
        _ => Decision::Follow(verdict),
    }
}

fn follow(task: &mut Task, number: u64, verdict: Verdict) -> SysResult {
    match verdict.action {
        Action::Allow => crate::table::dispatch(task, number),
        Action::Log => {
            log::debug!("seccomp: process {} makes call {number}", task.process().pid());
            crate::table::dispatch(task, number)
        }
        Action::Error => errno_of(verdict.data),
        Action::Notify => Err(Errno::ENOSYS),
        Action::Trace => ask_tracer(task, verdict.data),
        Action::Trap => {
            crate::signal::send::force(&task.thread, refused(task, number, verdict.data));
            // The handler finds the number where the program had it.
            Ok(number as usize)
        }
        Action::KillThread if task.process().thread_count() > 1 => {
            end_thread(task, Signal::SIGSYS);
            Ok(0)
        }
        Action::KillThread | Action::KillProcess => {
            let information = refused(task, number, verdict.data);
            crate::signal::deliver::die_of(task, &information);
            task.needs_work = true;
            Ok(number as usize)
        }
    }
}

/// A tracer decides, but what it makes of the call is for the filters again, which do not ask twice.
fn ask_tracer(task: &mut Task, data: u16) -> SysResult {
    let number = crate::ptrace::calls::ask_tracer(task, data)?;
    if task.thread.is_killed() {
        return Ok(0);
    }
    let Some(number) = number else { return Ok(task.user.registers.rax as usize) };
    match decide(task, number) {
        Decision::Follow(Verdict { action: Action::Trace, .. }) | Decision::Make => {
            crate::table::dispatch(task, number)
        }
        Decision::KillThread => {
            end_thread(task, Signal::SIGKILL);
            Ok(0)
        }
        Decision::Follow(verdict) => follow(task, number, verdict),
        Decision::Ask(notifier, data) => ask(task, number, notifier, &data),
    }
}

/// A supervisor decides; a filter that has none refuses.
fn ask(
    task: &mut Task,
    number: u64,
    notifier: Option<Arc<Notifier>>,
    data: &[u32; program::DATA_WORDS],
) -> SysResult {
    let answer = notifier.ok_or(Errno::ENOSYS)?.ask(task, data)?;
    answer.unwrap_or_else(|| crate::table::dispatch(task, number))
}

/// An error that a filter chose.
fn errno_of(number: u16) -> SysResult {
    const ERRNO_MAX: u16 = 4095;
    match number.min(ERRNO_MAX) {
        0 => Ok(0),
        number => Ok(usize::MAX - usize::from(number) + 1),
    }
}

fn end_thread(task: &mut Task, signal: Signal) {
    task.exit_code = signal.number().into();
    task.thread.kill();
    task.needs_work = true;
}

/// SIGSYS about a call.
fn refused(task: &Task, number: u64, data: u16) -> SignalInformation {
    const SYS_SECCOMP: i32 = 1;
    SignalInformation {
        signal: Signal::SIGSYS,
        code: SYS_SECCOMP,
        error: data.into(),
        fields: [task.user.registers.rip, number & 0xffff_ffff | u64::from(ARCHITECTURE) << 32, 0, 0],
    }
}

impl Thread {
    /// What restricts it.
    pub(crate) fn restriction(&self) -> Restriction {
        self.shared.lock().restriction.clone()
    }

    /// Restricts it from its next call on, whoever calls this.
    fn restrict(&self, restriction: Restriction) {
        let former = {
            let mut shared = self.shared.lock();
            self.set_filtered(restriction.mode() != Mode::None);
            core::mem::replace(&mut shared.restriction, restriction)
        };
        drop(former);
    }

    /// It has ended: who listens to its filters need not wait until it is reaped.
    pub(crate) fn leave_listeners(&self) {
        if self.is_filtered() {
            let former = {
                let mut shared = self.shared.lock();
                match &shared.restriction {
                    Restriction::Filters(filter) if filter.has_listener() => {
                        core::mem::take(&mut shared.restriction)
                    }
                    _ => return,
                }
            };
            drop(former);
        }
    }

    /// Restricts a thread that was just listed in a process as the one that made it. With the list of threads locked, so that no filter passes between both.
    pub(crate) fn restrict_as(&self, maker: &Thread) {
        if maker.is_filtered() {
            self.restrict(maker.restriction());
        }
        if maker.has_no_new_privileges() {
            self.gain_no_privileges();
        }
    }
}
