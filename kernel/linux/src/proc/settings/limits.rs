//! Limits: of user ids and name spaces, sockets, System V objects and POSIX message queues.

use vfs::Result;
use vfs::text::Text;

use super::{add, setting};
use crate::mqueue;
use crate::name_space::{NameSpaces, users_of_reader};

pub(super) fn register() -> Result<()> {
    users()?;
    sockets()?;
    system_v()
}

/// What user ids are shown as that are not mapped, and how many name spaces there may be.
fn users() -> Result<()> {
    use core::sync::atomic::Ordering::Relaxed;
    use vfs::user_space::{Kind, OVERFLOW_GROUP, OVERFLOW_USER};

    for (path, id) in [
        ("kernel/overflowuid", &OVERFLOW_USER),
        ("fs/overflowuid", &OVERFLOW_USER),
        ("kernel/overflowgid", &OVERFLOW_GROUP),
        ("fs/overflowgid", &OVERFLOW_GROUP),
    ] {
        setting(path, 0..=0xffff, || id.load(Relaxed).into(), |new| id.store(new as u32, Relaxed))?;
    }
    for (path, kind) in Kind::ALL {
        setting(
            path,
            0..=i32::MAX as u64,
            move || users_of_reader().limit(kind).into(),
            move |new| users_of_reader().set_limit(kind, new as u32),
        )?;
    }
    Ok(())
}

/// Limits of sockets.
fn sockets() -> Result<()> {
    use net::unix::settings;

    setting(
        "net/core/somaxconn",
        0..=i32::MAX as u64,
        || settings::somaxconn().into(),
        |value| settings::set_somaxconn(value as u32),
    )?;
    setting(
        "net/unix/max_dgram_qlen",
        0..=i32::MAX as u64,
        || settings::datagrams().into(),
        |value| settings::set_datagrams(value as u32),
    )
}

/// Limits of System V objects and POSIX message queues.
fn system_v() -> Result<()> {
    use crate::sysv::space::IpcSpace;
    use crate::sysv::{message, semaphore, shm};
    use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

    type Limit = fn(&IpcSpace) -> &AtomicU64;
    let limits: [(&str, Limit, u64); 6] = [
        ("kernel/shmmax", |space| &space.memory_limits.bytes_max, u64::MAX),
        ("kernel/shmall", |space| &space.memory_limits.pages_max, u64::MAX),
        ("kernel/shmmni", |space| &space.memory_limits.segments_max, shm::limits::SEGMENTS_MOST),
        ("kernel/msgmax", |space| &space.message_limits.bytes_max, message::limits::BYTES_MOST),
        ("kernel/msgmnb", |space| &space.message_limits.capacity, message::limits::BYTES_MOST),
        ("kernel/msgmni", |space| &space.message_limits.queues_max, message::limits::QUEUES_MOST),
    ];
    for (path, limit, most) in limits {
        let value = move || limit(&NameSpaces::of_reader().ipc).load(Relaxed);
        setting(path, 0..=most, value, move |new| limit(&NameSpaces::of_reader().ipc).store(new, Relaxed))?;
    }
    let limits: [(&str, Limit, (u64, u64)); 5] = [
        ("fs/mqueue/queues_max", |space| &space.queue_limits.queues, mqueue::limits::QUEUES_RANGE),
        ("fs/mqueue/msg_max", |space| &space.queue_limits.messages, mqueue::limits::MESSAGES_RANGE),
        ("fs/mqueue/msgsize_max", |space| &space.queue_limits.bytes, mqueue::limits::BYTES_RANGE),
        ("fs/mqueue/msg_default", |space| &space.queue_limits.usual_messages, mqueue::limits::MESSAGES_RANGE),
        ("fs/mqueue/msgsize_default", |space| &space.queue_limits.usual_bytes, mqueue::limits::BYTES_RANGE),
    ];
    for (path, limit, (least, most)) in limits {
        let value = move || limit(&NameSpaces::of_reader().ipc).load(Relaxed);
        setting(path, least..=most, value, move |new| {
            limit(&NameSpaces::of_reader().ipc).store(new, Relaxed)
        })?;
    }
    let show = |out: &mut Text| semaphore::limits::show(&NameSpaces::of_reader().ipc.semaphore_limits, out);
    add("kernel/sem", 0o644, show, |bytes| {
        semaphore::limits::store(&NameSpaces::of_reader().ipc.semaphore_limits, bytes)
    })
}
