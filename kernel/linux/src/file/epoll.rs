//! epoll(7).

use vfs::epoll::{Epoll, EpollEvent, EpollEvents, create_epoll};
use vfs::flags::OpenFlags;

use super::context::{descriptor_number, not_restarted};
use super::poll::{deadline_of_milliseconds, deadline_of_timespec};
use crate::abi::Timespec;
use crate::errno::{Errno, SysResult};
use crate::signal::set::SignalSet;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};

/// `struct epoll_event` is packed: 4 bytes of events, 8 of data.
const EVENT_BYTES: usize = 12;
/// Most events that one call returns (`EP_MAX_EVENTS`).
const EVENTS_MAX: i32 = i32::MAX / EVENT_BYTES as i32;

/// Makes an epoll set; the size is a hint that must be positive.
pub fn epoll_create(task: &mut Task, size: i32) -> SysResult {
    if size <= 0 { Err(Errno::EINVAL) } else { epoll_create1(task, 0) }
}

/// Makes an epoll set.
pub fn epoll_create1(task: &mut Task, flags: u32) -> SysResult {
    if flags & !OpenFlags::CLOSE_ON_EXEC.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    task.install_file(create_epoll(task.credentials.account.interests())?, flags != 0)
}

/// Adds, changes or removes a watched file.
#[inline(never)]
pub fn epoll_ctl(task: &mut Task, set: i32, operation: i32, descriptor: i32, event: u64) -> SysResult {
    const ADD: i32 = 1;
    const DELETE: i32 = 2;
    const MODIFY: i32 = 3;
    let (mut flags, mut data) = (EpollEvents::empty(), 0);
    if operation != DELETE {
        let mut bytes = [0; EVENT_BYTES];
        read_bytes(event, &mut bytes)?;
        let (events, rest) = bytes.split_at(4);
        flags =
            EpollEvents::from_bits_retain(u32::from_ne_bytes(events.try_into().map_err(|_| Errno::EINVAL)?));
        data = u64::from_ne_bytes(rest.try_into().map_err(|_| Errno::EINVAL)?);
    }
    let (set, file) = (task.lent_usable_file(set)?, task.usable_file(descriptor)?);
    let epoll = set.object::<Epoll>().ok_or(Errno::EINVAL)?;
    let event = EpollEvent { events: flags, data };
    let number = descriptor_number(descriptor)?;
    match operation {
        ADD => epoll.add(number, &file, event)?,
        DELETE => epoll.remove(number, &file)?,
        MODIFY => epoll.modify(number, &file, event)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

#[inline(never)]
fn wait(task: &Task, set: i32, events: u64, maximum: i32, deadline_ns: Option<u64>) -> SysResult {
    let maximum = usize::try_from(maximum)
        .ok()
        .filter(|&maximum| maximum > 0 && maximum <= EVENTS_MAX as usize)
        .ok_or(Errno::EINVAL)?;
    let set = task.lent_usable_file(set)?;
    let epoll = set.object::<Epoll>().ok_or(Errno::EINVAL)?;
    let mut next = events;
    epoll
        .wait(maximum, deadline_ns, &mut |event| {
            let mut bytes = [0; EVENT_BYTES];
            bytes[..4].copy_from_slice(&event.events.bits().to_ne_bytes());
            bytes[4..].copy_from_slice(&event.data.to_ne_bytes());
            write_bytes(next, &bytes).map_err(|_| vfs::Error::BadAddress)?;
            next += EVENT_BYTES as u64;
            Ok(())
        })
        .map_err(not_restarted)
}

/// Waits for events.
pub fn epoll_wait(task: &mut Task, set: i32, events: u64, maximum: i32, timeout_ms: i32) -> SysResult {
    wait(task, set, events, maximum, deadline_of_milliseconds(timeout_ms))
}

fn set_mask(task: &mut Task, mask: u64, size: usize) -> Result<(), Errno> {
    if let Some(pointer) = UserPointer::<u64>::new(mask).given() {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let mask = SignalSet::from_bits(pointer.read()?);
        task.set_temporary_mask(mask);
    }
    Ok(())
}

/// Waits for events with another signal mask.
pub fn epoll_pwait(
    task: &mut Task,
    set: i32,
    events: u64,
    maximum: i32,
    timeout_ms: i32,
    mask: u64,
    size: usize,
) -> SysResult {
    set_mask(task, mask, size)?;
    let result = wait(task, set, events, maximum, deadline_of_milliseconds(timeout_ms));
    task.end_temporary_mask(result)
}

/// Waits for events with another signal mask and a time-out in nanoseconds.
pub fn epoll_pwait2(
    task: &mut Task,
    set: i32,
    events: u64,
    maximum: i32,
    timeout: u64,
    mask: u64,
    size: usize,
) -> SysResult {
    let deadline_ns = match UserPointer::<Timespec>::new(timeout).given() {
        None => None,
        Some(pointer) => Some(deadline_of_timespec(&pointer.read()?)?),
    };
    set_mask(task, mask, size)?;
    let result = wait(task, set, events, maximum, deadline_ns);
    task.end_temporary_mask(result)
}
