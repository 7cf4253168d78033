//! Resource limits (getrlimit(2)).

use alloc::sync::Arc;

use vfs::Capabilities;

use crate::abi::ResourceLimit;
use crate::errno::{Errno, SysResult};
use crate::process::process::Process;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// "Unlimited".
pub const INFINITY: u64 = u64::MAX;

/// What can be limited, with the numbers of x86-64.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
#[allow(missing_docs, reason = "named as in the manual")]
pub enum Resource {
    Cpu = 0,
    FileSize = 1,
    Data = 2,
    Stack = 3,
    Core = 4,
    ResidentSet = 5,
    Processes = 6,
    OpenFiles = 7,
    LockedMemory = 8,
    AddressSpace = 9,
    Locks = 10,
    PendingSignals = 11,
    MessageQueue = 12,
    Nice = 13,
    RealTimePriority = 14,
    RealTimeTime = 15,
}

/// How many there are.
pub const COUNT: usize = 16;
/// Most a limit on open files can be (fs.nr_open).
pub const OPEN_FILES_MAX: u64 = 1 << 20;

/// The limits of a process.
pub type Limits = [ResourceLimit; COUNT];

const fn limit(current: u64, maximum: u64) -> ResourceLimit {
    ResourceLimit { current, maximum }
}

/// The limits of the first process; `threads` is how many threads the memory has room for.
pub fn initial(threads: u64) -> Limits {
    let mut limits = [limit(INFINITY, INFINITY); COUNT];
    limits[Resource::Stack as usize] = limit(8 << 20, INFINITY);
    limits[Resource::Core as usize] = limit(0, INFINITY);
    limits[Resource::Processes as usize] = limit(threads / 2, threads / 2);
    limits[Resource::OpenFiles as usize] = limit(1024, 4096);
    limits[Resource::LockedMemory as usize] = limit(8 << 20, 8 << 20);
    limits[Resource::PendingSignals as usize] = limit(threads / 2, threads / 2);
    limits[Resource::MessageQueue as usize] = limit(819_200, 819_200);
    limits[Resource::Nice as usize] = limit(0, 0);
    limits[Resource::RealTimePriority as usize] = limit(0, 0);
    limits
}

/// Whether `new` may replace `old`.
fn check(resource: usize, old: ResourceLimit, new: ResourceLimit, privileged: bool) -> Result<(), Errno> {
    if resource >= COUNT || new.current > new.maximum {
        return Err(Errno::EINVAL);
    }
    if resource == Resource::OpenFiles as usize && new.maximum > OPEN_FILES_MAX {
        return Err(Errno::EPERM);
    }
    if new.maximum > old.maximum && !privileged { Err(Errno::EPERM) } else { Ok(()) }
}

/// Tells those that keep a limit that it changed.
fn apply(process: &Arc<Process>, resource: usize) -> Result<(), Errno> {
    if resource == Resource::Cpu as usize || resource == Resource::RealTimeTime as usize {
        return crate::timer::watch_limits(process);
    }
    if let Some(space) = process.address_space() {
        space.set_limits(crate::memory::limits_of(process, &process.credentials()));
    }
    Ok(())
}

/// Sets a limit, if the caller may; returns what it was.
fn change(
    task: &Task,
    target: &Arc<Process>,
    resource: usize,
    wanted: ResourceLimit,
) -> Result<ResourceLimit, Errno> {
    let privileged = task.credentials.has(Capabilities::SYS_RESOURCE);
    let permitted = |before| check(resource, before, wanted, privileged).map(|()| wanted);
    let before = target.change_limit(resource, permitted)?;
    apply(target, resource)?;
    Ok(before)
}

/// Reads and sets a limit of any process.
pub fn prlimit64(task: &mut Task, pid: i32, resource: u32, new: u64, old: u64) -> SysResult {
    let resource = resource as usize;
    if resource >= COUNT {
        return Err(Errno::EINVAL);
    }
    let target = if pid == 0 {
        task.process().clone()
    } else {
        let thread = task.find_thread(pid as u32);
        let process = match &thread {
            Some(thread) => thread.process().clone(),
            None => task.find_process(pid as u32).ok_or(Errno::ESRCH)?,
        };
        let theirs = thread.map_or_else(|| process.credentials(), |thread| thread.credentials());
        let mine = &task.credentials;
        let same = theirs.user == super::super::credentials::identity::Ids::all(mine.user.real)
            && theirs.group == super::super::credentials::identity::Ids::all(mine.group.real);
        if !same && !mine.has_in(theirs.space(), Capabilities::SYS_RESOURCE) {
            return Err(Errno::EPERM);
        }
        process
    };
    let wanted = match UserPointer::<ResourceLimit>::new(new).given() {
        Some(pointer) => Some(pointer.read()?),
        None => None,
    };
    let before = match wanted {
        Some(wanted) => change(task, &target, resource, wanted)?,
        None => target.limit_pair(resource),
    };
    UserPointer::<ResourceLimit>::new(old).write_if_given(&before)?;
    Ok(0)
}

/// Reads a limit of the calling process.
pub fn getrlimit(task: &mut Task, resource: u32, limit: u64) -> SysResult {
    if resource as usize >= COUNT {
        return Err(Errno::EINVAL);
    }
    UserPointer::<ResourceLimit>::new(limit).write(&task.process().limit_pair(resource as usize))?;
    Ok(0)
}

/// Sets a limit of the calling process.
pub fn setrlimit(task: &mut Task, resource: u32, limit: u64) -> SysResult {
    let wanted = UserPointer::<ResourceLimit>::new(limit).read()?;
    if resource as usize >= COUNT {
        return Err(Errno::EINVAL);
    }
    change(task, task.process(), resource as usize, wanted)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hard_limits_only_fall_without_privilege() {
        let old = limit(10, 20);
        assert_eq!(check(0, old, limit(20, 20), false), Ok(()));
        assert_eq!(check(0, old, limit(20, 21), false), Err(Errno::EPERM));
        assert_eq!(check(0, old, limit(20, 21), true), Ok(()));
        assert_eq!(check(0, old, limit(5, 4), true), Err(Errno::EINVAL));
    }
}
