//! semget, semop, semtimedop.

use alloc::sync::Arc;
use alloc::vec::Vec;

use machine::time::now_ns;
use sched::WaitError;

use super::operation::{Refusal, alters};
use super::set::{Set, Sleeper};
use super::undo;
use crate::abi::{SemaphoreOperation, Timespec};
use crate::errno::{Errno, SysResult};
use crate::sysv::permissions::{MODE_BITS, Permissions, READ, WRITE};
use crate::sysv::waiting::Waiting;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Finds the set with a key, or makes one.
#[inline(never)]
pub fn semget(task: &mut Task, key: i32, semaphores: i32, flags: i32) -> SysResult {
    let length = usize::try_from(semaphores).map_err(|_| Errno::EINVAL)?;
    let space = task.ipc_space();
    if length > space.semaphore_limits.in_set() {
        return Err(Errno::EINVAL);
    }
    let check = |set: &Set| {
        if length > set.length() {
            return Err(Errno::EINVAL);
        }
        set.state.lock().permissions.check(
            &task.credentials,
            task.ipc_space().owner(),
            flags as u32 & MODE_BITS,
        )?;
        Ok(set.id())
    };
    let make = || match length {
        0 => Err(Errno::EINVAL),
        _ => Set::new(Permissions::new(&task.credentials, flags as u32), length, task.weak_ipc_space()),
    };
    space.sets.find_or_make(key, flags, space.semaphore_limits.sets(), check, make)
}

/// Does operations, all at once, and waits until they can be done.
#[inline(never)]
pub fn semop(task: &mut Task, id: i32, operations: u64, count: u32) -> SysResult {
    semtimedop(task, id, operations, count, 0)
}

/// The same, and waits for a time only.
#[inline(never)]
pub fn semtimedop(task: &mut Task, id: i32, operations: u64, count: u32, time: u64) -> SysResult {
    let time = UserPointer::<Timespec>::new(time).given().map(UserPointer::read).transpose()?;
    let count = count as usize;
    if count > task.ipc_space().semaphore_limits.operations() {
        return Err(Errno::E2BIG);
    }
    if count < 1 {
        return Err(Errno::EINVAL);
    }
    let operations = UserPointer::<SemaphoreOperation>::new(operations).read_vector(count)?;
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let wait_ns = time.map(|time| time.to_ns().ok_or(Errno::EINVAL)).transpose()?;
    let set = task.ipc_space().sets.by_id(id)?;
    if operations.iter().any(|operation| operation.index() >= set.length()) {
        return Err(Errno::EFBIG);
    }
    operate(task, &set, operations, wait_ns.map(|ns| now_ns().saturating_add(ns)))
}

fn operate(
    task: &Task,
    set: &Arc<Set>,
    operations: Vec<SemaphoreOperation>,
    deadline_ns: Option<u64>,
) -> SysResult {
    let process = task.process().pid();
    let undo = match operations.iter().any(SemaphoreOperation::is_undone) {
        true => Some(undo::list_of(&task.thread)?),
        false => None,
    };
    let mut state = set.state.lock();
    state.permissions.check(
        &task.credentials,
        task.ipc_space().owner(),
        if alters(&operations) { WRITE } else { READ },
    )?;
    if state.is_removed {
        return Err(Errno::EIDRM);
    }
    if let Some(list) = undo.as_ref().filter(|list| !state.keeps(list.id())) {
        list.add(set)?;
        state.keep(list.id())?;
    }
    let owner = undo.as_ref().map(|list| list.id());
    let place = match state.operate(&operations, owner, process) {
        Ok(()) => return Ok(0),
        Err(Refusal::Error(errno)) => return Err(errno),
        Err(Refusal::Blocked(place)) => place,
    };
    let sleeper = Sleeper { waiting: Waiting::new(), operations, owner, process };
    let sleeper = memory::fallible::try_arc(sleeper).map_err(|_| Errno::ENOMEM)?;
    state.enter(&sleeper, place)?;
    drop(state);
    let slept = sleeper.waiting.wait(deadline_ns);
    if slept.is_err() {
        // What was done for it meanwhile counts.
        let mut state = set.state.lock();
        if let Some(outcome) = sleeper.waiting.take() {
            return outcome.map(|()| 0);
        }
        state.leave(&sleeper);
    }
    match slept {
        Ok(()) => sleeper.waiting.take().map_or(Err(Errno::EINTR), |outcome| outcome.map(|()| 0)),
        Err(WaitError::Interrupted) => Err(Errno::EINTR),
        Err(WaitError::TimedOut) => Err(Errno::EAGAIN),
    }
}
