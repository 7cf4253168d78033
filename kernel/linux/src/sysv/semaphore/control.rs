//! semctl.

use super::limits::{ADJUSTMENT_MAX, VALUE_MAX};
use super::set::Set;
use crate::abi::{SemaphoreLimits, SemaphoreSetStatus};
use crate::errno::{Errno, SysResult};
use crate::sysv::permissions::{READ, WRITE};
use crate::sysv::space::IpcSpace;
use crate::task::Task;
use crate::user_pointer::UserPointer;

mod command {
    pub(super) const REMOVE: i32 = 0;
    pub(super) const SET: i32 = 1;
    pub(super) const STATUS: i32 = 2;
    pub(super) const LIMITS: i32 = 3;
    pub(super) const PROCESS: i32 = 11;
    pub(super) const VALUE: i32 = 12;
    pub(super) const VALUES: i32 = 13;
    pub(super) const WAITERS_FOR_MORE: i32 = 14;
    pub(super) const WAITERS_FOR_ZERO: i32 = 15;
    pub(super) const SET_VALUE: i32 = 16;
    pub(super) const SET_VALUES: i32 = 17;
    pub(super) const STATUS_OF_PLACE: i32 = 18;
    pub(super) const TOTALS: i32 = 19;
    pub(super) const STATUS_OF_ANY_PLACE: i32 = 20;
}

/// What Linux says of one entry of undo, and does not use.
const UNDO_BYTES: i32 = 20;

/// Asks about sets, changes and removes them.
#[inline(never)]
pub fn semctl(task: &mut Task, id: i32, number: i32, command: i32, argument: u64) -> SysResult {
    if id < 0 {
        return Err(Errno::EINVAL);
    }
    let space = task.ipc_space();
    match command {
        command::LIMITS | command::TOTALS => {
            UserPointer::new(argument).write(&limits_for_user(space, command == command::TOTALS))?;
            Ok(space.sets.highest_place().unwrap_or(0))
        }
        command::STATUS => {
            let set = task.ipc_space().sets.by_id(id)?;
            set.state.lock().permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
            UserPointer::new(argument).write(&set.status(space.sets.key_of(id), task.viewer()))?;
            Ok(0)
        }
        command::STATUS_OF_PLACE | command::STATUS_OF_ANY_PLACE => {
            let (set, key, id) = space.sets.by_place(id)?;
            if command == command::STATUS_OF_PLACE {
                set.state.lock().permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
            }
            UserPointer::new(argument).write(&set.status(key, task.viewer()))?;
            Ok(id as usize)
        }
        command::PROCESS | command::VALUE | command::WAITERS_FOR_MORE | command::WAITERS_FOR_ZERO => {
            ask(task, id, number, command)
        }
        command::VALUES => values(task, id, argument),
        command::SET_VALUE => set_value(task, id, number, argument as i32),
        command::SET_VALUES => set_values(task, id, argument),
        command::SET => {
            let new: SemaphoreSetStatus = UserPointer::new(argument).read()?;
            let set = task.ipc_space().sets.by_id(id)?;
            let mut state = set.state.lock();
            state.permissions.check_control(&task.credentials, task.ipc_space().owner())?;
            state.permissions.set(&new.permissions, task.credentials.space())?;
            state.was_changed();
            Ok(0)
        }
        command::REMOVE => {
            let set = task.ipc_space().sets.by_id(id)?;
            let mut state = set.state.lock();
            state.permissions.check_control(&task.credentials, task.ipc_space().owner())?;
            if state.is_removed {
                return Err(Errno::EIDRM);
            }
            set.remove(&mut state);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn index(set: &Set, number: i32) -> Result<usize, Errno> {
    usize::try_from(number).ok().filter(|&index| index < set.length()).ok_or(Errno::EINVAL)
}

fn ask(task: &Task, id: i32, number: i32, command: i32) -> SysResult {
    let set = task.ipc_space().sets.by_id(id)?;
    let state = set.state.lock();
    state.permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
    let index = index(&set, number)?;
    if state.is_removed {
        return Err(Errno::EIDRM);
    }
    let semaphore = state.semaphores()[index];
    let (for_more, for_zero) = state.waiters(index);
    Ok(match command {
        command::PROCESS => task.seen_number(semaphore.process) as usize,
        command::VALUE => semaphore.value.into(),
        command::WAITERS_FOR_MORE => for_more,
        _ => for_zero,
    })
}

fn values(task: &Task, id: i32, argument: u64) -> SysResult {
    let set = task.ipc_space().sets.by_id(id)?;
    set.state.lock().permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
    let mut values = memory::fallible::try_vec_of(0, set.length()).map_err(|_| Errno::ENOMEM)?;
    {
        let state = set.state.lock();
        if state.is_removed {
            return Err(Errno::EIDRM);
        }
        values.iter_mut().zip(state.semaphores()).for_each(|(value, semaphore)| *value = semaphore.value);
    }
    UserPointer::<u16>::new(argument).write_slice(&values)?;
    Ok(0)
}

fn set_value(task: &Task, id: i32, number: i32, value: i32) -> SysResult {
    if !(0..=VALUE_MAX).contains(&value) {
        return Err(Errno::ERANGE);
    }
    let set = task.ipc_space().sets.by_id(id)?;
    let index = index(&set, number)?;
    let mut state = set.state.lock();
    state.permissions.check(&task.credentials, task.ipc_space().owner(), WRITE)?;
    if state.is_removed {
        return Err(Errno::EIDRM);
    }
    state.set_values(index, &[value as u16], task.process().pid());
    Ok(0)
}

fn set_values(task: &Task, id: i32, argument: u64) -> SysResult {
    let set = task.ipc_space().sets.by_id(id)?;
    set.state.lock().permissions.check(&task.credentials, task.ipc_space().owner(), WRITE)?;
    let values = UserPointer::<u16>::new(argument).read_vector(set.length())?;
    if values.iter().any(|&value| i32::from(value) > VALUE_MAX) {
        return Err(Errno::ERANGE);
    }
    let mut state = set.state.lock();
    if state.is_removed {
        return Err(Errno::EIDRM);
    }
    state.set_values(0, &values, task.process().pid());
    Ok(0)
}

fn limits_for_user(space: &IpcSpace, with_totals: bool) -> SemaphoreLimits {
    let limits = &space.semaphore_limits;
    let [in_set, in_all, operations, sets] =
        [limits.in_set(), limits.in_all(), limits.operations(), limits.sets()].map(|limit| limit as i32);
    let (undo_bytes, adjustment_max) = match with_totals {
        true => (space.sets.count() as i32, limits.used() as i32),
        false => (UNDO_BYTES, ADJUSTMENT_MAX),
    };
    // The map, and the numbers of undos, are not used on Linux either: it says what the default limits give.
    SemaphoreLimits {
        map: 1_024_000_000,
        sets_max: sets,
        semaphores_max: in_all,
        undos_max: 1_024_000_000,
        set_max: in_set,
        operations_max: operations,
        undo_entries_max: 500,
        undo_bytes,
        value_max: VALUE_MAX,
        adjustment_max,
    }
}
