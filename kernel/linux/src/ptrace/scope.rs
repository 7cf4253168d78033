//! Who may trace whom, beyond the rule of ptrace(2): `/proc/sys/kernel/yama/ptrace_scope`, as the security module Yama has it on Linux.
//!
//! | level | who may trace a process, read or write its memory, and see where it is |
//! |---|---|
//! | 0 | whom the rule of ptrace(2) lets |
//! | 1 | of those, its ancestors, whom it has named (`PR_SET_PTRACER`) with what descends from him, who traces it already, and who has CAP_SYS_PTRACE over it |
//! | 2 | who has CAP_SYS_PTRACE over it |
//! | 3 | nobody; the level can't be changed any more |
//!
//! The level is looked at after the rule, so that it takes away only. It is 0 when the system starts, as Debian's kernel has it.

use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicU32, Ordering};

use vfs::Capabilities;

use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult};
use crate::process::process::Process;
use crate::process::table;
use crate::task::Task;

/// The level at which it stays.
const NOBODY: u32 = 3;
/// Processes on a way up that are looked at: more than there can be on one.
const ANCESTORS_MAX: u32 = table::PID_MAX;
/// `PR_SET_PTRACER_ANY`
const EVERYBODY: u32 = u32::MAX;

static LEVEL: AtomicU32 = AtomicU32::new(0);

/// Whom a process lets trace it.
#[derive(Default)]
pub(crate) enum Named {
    /// Nobody but who may anyway.
    #[default]
    Nobody,
    /// Whom the rule of ptrace(2) lets.
    Everybody,
    /// This one and what descends from it, as long as it is there.
    Process(Weak<Process>),
}

/// The level.
pub(crate) fn level() -> u32 {
    // Relaxed: checks that begin after the change see it.
    LEVEL.load(Ordering::Relaxed)
}

/// Changes it.
///
/// # Errors
/// EINVAL when it is the last one already.
pub(crate) fn set_level(level: u32) -> Result<(), Errno> {
    let change = |now: u32| (now != NOBODY || level == NOBODY).then_some(level);
    LEVEL.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change).map(|_| ()).map_err(|_| Errno::EINVAL)
}

/// Whether a process is another one or descends from it.
fn descends(process: &Arc<Process>, from: &Arc<Process>) -> bool {
    let mut current = Some(process.clone());
    for _ in 0..ANCESTORS_MAX {
        match current {
            Some(process) if Arc::ptr_eq(&process, from) => return true,
            Some(process) => current = process.parent(),
            None => return false,
        }
    }
    false
}

fn has_named(tracee: &Process, tracer: &Arc<Process>) -> bool {
    let named = match &*tracee.named_tracer.lock() {
        Named::Nobody => return false,
        Named::Everybody => return true,
        Named::Process(named) => named.upgrade(),
    };
    named.is_some_and(|named| descends(tracer, &named))
}

fn traces(tracer: &Process, tracee: &Arc<Process>) -> bool {
    tracer.tracees.lock().list.iter().any(|one| Arc::ptr_eq(one.process(), tracee))
}

/// Whether the level lets who has these credentials trace another process.
pub(crate) fn lets(tracer: &Arc<Process>, credentials: &Credentials, tracee: &Arc<Process>) -> bool {
    let is_capable =
        || tracee.look_at_credentials(|target| credentials.has_in(target.space(), Capabilities::SYS_PTRACE));
    match level() {
        0 => true,
        1 => descends(tracee, tracer) || traces(tracer, tracee) || has_named(tracee, tracer) || is_capable(),
        2 => is_capable(),
        _ => false,
    }
}

/// Whether the level lets a process ask its parent to trace it.
pub(crate) fn lets_parent(parent: &Credentials, tracee: &Credentials) -> bool {
    match level() {
        0 | 1 => true,
        2 => parent.has_in(tracee.space(), Capabilities::SYS_PTRACE),
        _ => false,
    }
}

/// `PR_SET_PTRACER`: names who may trace the caller's process; 0: nobody.
///
/// # Errors
/// EINVAL when there is no such process.
pub(crate) fn name_tracer(task: &Task, number: u64) -> SysResult {
    // As much of it as a process number has: many programs say -1, and a C compiler leaves the upper half of an int away.
    let named = match number as u32 {
        0 => Named::Nobody,
        EVERYBODY => Named::Everybody,
        number => Named::Process(Arc::downgrade(&task.find_process_of(number).ok_or(Errno::EINVAL)?)),
    };
    let before = core::mem::replace(&mut *task.process().named_tracer.lock(), named);
    drop(before);
    Ok(0)
}
