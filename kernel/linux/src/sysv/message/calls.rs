//! msgget, msgsnd, msgrcv, msgctl.

use core::sync::atomic::Ordering;

use super::queue::{Message, Queue};
use super::selection::Selection;
use super::transfer::{self, Receiving};
use crate::abi::{MessageLimits, MessageQueueStatus};
use crate::errno::{Errno, SysResult};
use crate::sysv::permissions::{MODE_BITS, Permissions, READ};
use crate::sysv::space::IpcSpace;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes, write_bytes};
use vfs::Capabilities;

mod flag {
    pub(super) const NO_WAIT: i32 = 0o4000;
    pub(super) const CUT: i32 = 0o1_0000;
    pub(super) const EXCEPT: i32 = 0o2_0000;
    pub(super) const COPY: i32 = 0o4_0000;
}

mod command {
    pub(super) const REMOVE: i32 = 0;
    pub(super) const SET: i32 = 1;
    pub(super) const STATUS: i32 = 2;
    pub(super) const LIMITS: i32 = 3;
    pub(super) const STATUS_OF_PLACE: i32 = 11;
    pub(super) const TOTALS: i32 = 12;
    pub(super) const STATUS_OF_ANY_PLACE: i32 = 13;
}

/// Where the text of a message begins, after its type.
const TEXT: u64 = size_of::<i64>() as u64;
/// What Linux says of what it does not use: the size of a segment, and how many there are at most.
const SEGMENT_BYTES: i32 = 16;
const SEGMENTS_MAX: u16 = 0xffff;

/// Finds the queue with a key, or makes one.
#[inline(never)]
pub fn msgget(task: &mut Task, key: i32, flags: i32) -> SysResult {
    let check = |queue: &Queue| {
        queue.state.lock().permissions.check(
            &task.credentials,
            task.ipc_space().owner(),
            flags as u32 & MODE_BITS,
        )?;
        Ok(queue.id())
    };
    let make = || Queue::new(Permissions::new(&task.credentials, flags as u32), task.weak_ipc_space());
    let space = task.ipc_space();
    let limit = space.message_limits.queues_max.load(Ordering::Relaxed) as usize;
    space.queues.find_or_make(key, flags, limit, check, make)
}

/// Sends a message.
#[inline(never)]
pub fn msgsnd(task: &mut Task, id: i32, message: u64, bytes: usize, flags: i32) -> SysResult {
    let kind: i64 = UserPointer::new(message).read()?;
    if bytes as u64 > task.ipc_space().message_limits.bytes_max.load(Ordering::Relaxed) || id < 0 || kind < 1
    {
        return Err(Errno::EINVAL);
    }
    let mut text = memory::fallible::try_vec_of(0, bytes).map_err(|_| Errno::ENOMEM)?;
    read_bytes(message + TEXT, &mut text)?;
    let queue = task.ipc_space().queues.by_id(id)?;
    transfer::send(task, &queue, Message { kind, text }, flags & flag::NO_WAIT == 0)?;
    Ok(0)
}

/// Receives a message.
#[inline(never)]
pub fn msgrcv(task: &mut Task, id: i32, buffer: u64, room: usize, kind: i64, flags: i32) -> SysResult {
    let given = |flag: i32| flags & flag != 0;
    if id < 0 || (room as isize) < 0 {
        return Err(Errno::EINVAL);
    }
    if given(flag::COPY) && (given(flag::EXCEPT) || !given(flag::NO_WAIT)) {
        return Err(Errno::EINVAL);
    }
    let queue = task.ipc_space().queues.by_id(id)?;
    let how = Receiving {
        selection: Selection::new(kind, given(flag::EXCEPT), given(flag::COPY)),
        room,
        cuts: given(flag::CUT),
        waits: !given(flag::NO_WAIT),
    };
    let message = transfer::receive(task, &queue, how)?;
    let text = &message.text[..message.text.len().min(room)];
    UserPointer::new(buffer).write(&message.kind)?;
    write_bytes(buffer + TEXT, text)?;
    Ok(text.len())
}

/// Asks about queues, changes and removes them.
#[inline(never)]
pub fn msgctl(task: &mut Task, id: i32, command: i32, buffer: u64) -> SysResult {
    if command < 0 || id < 0 {
        return Err(Errno::EINVAL);
    }
    let space = task.ipc_space();
    match command {
        command::LIMITS | command::TOTALS => {
            UserPointer::new(buffer).write(&limits_for_user(space, command == command::TOTALS))?;
            Ok(space.queues.highest_place().unwrap_or(0))
        }
        command::STATUS => {
            let queue = task.ipc_space().queues.by_id(id)?;
            queue.state.lock().permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
            UserPointer::new(buffer).write(&queue.status(space.queues.key_of(id), task.viewer()))?;
            Ok(0)
        }
        command::STATUS_OF_PLACE | command::STATUS_OF_ANY_PLACE => {
            let (queue, key, id) = space.queues.by_place(id)?;
            if command == command::STATUS_OF_PLACE {
                queue.state.lock().permissions.check(&task.credentials, task.ipc_space().owner(), READ)?;
            }
            UserPointer::new(buffer).write(&queue.status(key, task.viewer()))?;
            Ok(id as usize)
        }
        command::SET => {
            let new: MessageQueueStatus = UserPointer::new(buffer).read()?;
            set(task, id, &new)
        }
        command::REMOVE => {
            let queue = task.ipc_space().queues.by_id(id)?;
            let mut state = queue.state.lock();
            state.permissions.check_control(&task.credentials, task.ipc_space().owner())?;
            if state.is_removed {
                return Err(Errno::EIDRM);
            }
            queue.remove(&mut state);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

fn set(task: &Task, id: i32, new: &MessageQueueStatus) -> SysResult {
    let queue = task.ipc_space().queues.by_id(id)?;
    let mut state = queue.state.lock();
    state.permissions.check_control(&task.credentials, task.ipc_space().owner())?;
    if new.capacity > task.ipc_space().message_limits.capacity.load(Ordering::Relaxed) {
        task.credentials.require(Capabilities::SYS_RESOURCE)?;
    }
    state.permissions.set(&new.permissions, task.credentials.space())?;
    state.capacity = new.capacity;
    state.was_changed();
    Ok(0)
}

fn limits_for_user(space: &IpcSpace, with_totals: bool) -> MessageLimits {
    let limits = &space.message_limits;
    let capacity = limits.capacity.load(Ordering::Relaxed) as i32;
    let (messages, bytes) = (limits.messages.load(Ordering::Relaxed), limits.bytes.load(Ordering::Relaxed));
    let most = |value: u64| i32::try_from(value).unwrap_or(i32::MAX);
    // What else Linux says of what it does not use follows from the default limits.
    let (pool, map, headers) = if with_totals {
        (space.queues.count() as i32, most(messages), most(bytes))
    } else {
        (512_000, 16_384, 16_384)
    };
    MessageLimits {
        pool,
        map,
        bytes_max: limits.bytes_max.load(Ordering::Relaxed) as i32,
        capacity,
        queues_max: limits.queues_max.load(Ordering::Relaxed) as i32,
        segment_bytes: SEGMENT_BYTES,
        headers,
        segments_max: SEGMENTS_MAX,
        padding: 0,
    }
}
