//! How urgent a thread's transfers are (ioprio_set(2)). What becomes of it: [`sched::io_context`], and schedulers of disks.

use alloc::sync::Arc;

use sched::{IoClass, IoPriority};
use vfs::Capabilities;

use crate::credentials::identity::Credentials;
use crate::errno::{Errno, SysResult};
use crate::process::process::Process;
use crate::process::table;
use crate::process::thread::Thread;
use crate::task::Task;

const WHO_PROCESS: u32 = 1;
const WHO_PGRP: u32 = 2;
const WHO_USER: u32 = 3;

const CLASS_NONE: u32 = 0;
const CLASS_REAL_TIME: u32 = 1;
const CLASS_BEST_EFFORT: u32 = 2;
const CLASS_IDLE: u32 = 3;
const CLASS_SHIFT: u32 = 13;
/// Bits of the class; what is above them is not looked at.
const CLASS_MASK: u32 = 7;
const DATA_MASK: u32 = (1 << CLASS_SHIFT) - 1;

/// The priority that a program asks for, if it may have it.
fn wanted(task: &Task, word: u32) -> Result<IoPriority, Errno> {
    let data = word & DATA_MASK;
    let in_range = data < u32::from(IoPriority::LEVELS);
    match (word >> CLASS_SHIFT) & CLASS_MASK {
        CLASS_REAL_TIME => {
            if !task.credentials.has(Capabilities::SYS_ADMIN) {
                task.credentials.require(Capabilities::SYS_NICE)?;
            }
            if !in_range {
                return Err(Errno::EINVAL);
            }
        }
        CLASS_BEST_EFFORT if in_range => {}
        CLASS_IDLE => {}
        CLASS_NONE if data == 0 => {}
        _ => return Err(Errno::EINVAL),
    }
    Ok(IoPriority::from_word(word as u16))
}

/// Whether the caller may change the transfers of somebody with these credentials.
fn require_right(task: &Task, target: &Credentials) -> Result<(), Errno> {
    let me = &task.credentials.user;
    if target.user.real == me.effective || target.user.real == me.real {
        return Ok(());
    }
    task.credentials.require_in(target.space(), Capabilities::SYS_NICE)
}

/// Sets the priority of one thread, and of those that share its I/O context.
fn set(task: &Task, thread: &Thread, priority: IoPriority) -> Result<(), Errno> {
    require_right(task, &thread.credentials())?;
    match thread.kernel_thread() {
        Some(kernel) => kernel.set_io_priority(priority).map_err(|_| Errno::ENOMEM),
        None => Ok(()),
    }
}

/// Whom a number names. A process without a thread of its number (process 1, which is the kernel's own; a zombie) has no priority, and
/// setting one changes nothing.
enum Target {
    Thread(Arc<Thread>),
    Threadless(Arc<Process>),
}

fn target(task: &Task, id: i32) -> Result<Target, Errno> {
    if id == 0 {
        return Ok(Target::Thread(task.thread.clone()));
    }
    let number = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
    match task.find_thread(number) {
        Some(thread) => Ok(Target::Thread(thread)),
        None => task.find_process(number).map(Target::Threadless).ok_or(Errno::ESRCH),
    }
}

/// Calls for each thread of processes of which it is true, until one fails; ESRCH when there is none.
fn for_each(
    processes: &[Arc<Process>],
    chosen: impl Fn(&Thread) -> bool,
    mut visit: impl FnMut(&Thread) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let mut found = Err(Errno::ESRCH);
    for process in processes {
        for thread in process.threads()?.iter().filter(|thread| chosen(thread)) {
            visit(thread)?;
            found = Ok(());
        }
    }
    found
}

fn group_members(task: &Task, id: i32) -> Result<alloc::vec::Vec<Arc<Process>>, Errno> {
    match id {
        0 => task.process().group().members(),
        _ => u32::try_from(id).ok().and_then(|id| task.find_group(id)).ok_or(Errno::ESRCH)?.members(),
    }
}

/// Sets the I/O priority of threads.
#[inline(never)]
pub fn ioprio_set(task: &mut Task, kind: u32, id: i32, priority: u32) -> SysResult {
    let priority = wanted(task, priority)?;
    let task = &*task;
    match kind {
        WHO_PROCESS => match target(task, id)? {
            Target::Thread(thread) => set(task, &thread, priority)?,
            Target::Threadless(process) => require_right(task, &process.credentials())?,
        },
        WHO_PGRP => {
            for_each(&group_members(task, id)?, |_| true, |thread| set(task, thread, priority))?;
        }
        // As on Linux, 0 is the superuser here, and the caller's user in `ioprio_get`.
        WHO_USER => {
            let of_user = |thread: &Thread| thread.credentials().user.real == id as u32;
            for_each(&table::processes()?, of_user, |thread| set(task, thread, priority))?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// The I/O priority of a thread as it was set, or the most urgent one that several have.
#[inline(never)]
pub fn ioprio_get(task: &mut Task, kind: u32, id: i32) -> SysResult {
    let mut best = IoPriority::new(IoClass::Idle, IoPriority::LEVELS - 1).word();
    let look = |thread: &Thread| {
        if let Some(kernel) = thread.kernel_thread() {
            best = best.min(kernel.effective_io_priority().word());
        }
        Ok(())
    };
    match kind {
        WHO_PROCESS => {
            let target = target(task, id)?;
            let Target::Thread(thread) = &target else { return Ok(0) };
            let set = thread.kernel_thread().map_or(IoPriority::UNSET, |kernel| kernel.io_priority());
            return Ok(set.word().into());
        }
        WHO_PGRP => for_each(&group_members(task, id)?, |_| true, look)?,
        WHO_USER => {
            let user = if id == 0 { task.credentials.user.real } else { id as u32 };
            for_each(&table::processes()?, |thread| thread.credentials().user.real == user, look)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(best.into())
}
