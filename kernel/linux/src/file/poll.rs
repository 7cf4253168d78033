//! poll(2) and ppoll(2).
//!
//! # Two looks
//! The first look asks each file what is ready and leaves nothing behind: no list of requests, no entry in the files' lists of
//! watchers. Only if nothing is ready and time is left, the requests are collected (up to `INLINE` without an allocation) and
//! [`vfs::poll::poll`] watches the files, looks again and waits.
//!
//! # Cost
//! With n descriptors of which one is ready: n descriptor lookups and n calls of `poll`; no allocation, no list lock. The
//! program's array is read `CHUNK` entries at a time, and written only where the answer differs from what is there.

use alloc::sync::Arc;

use machine::time::now_ns;
use smallvec::SmallVec;
use vfs::poll::{PollEvents, PollRequest, PollWaiter};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::context::descriptor_number;
use crate::abi::Timespec;
use crate::errno::{Errno, SysResult};
use crate::process::limits::Resource;
use crate::signal::set::SignalSet;
use crate::task::{Pause, Task};
use crate::user_pointer::{UserPointer, read_bytes};

/// Descriptors that need no allocation.
const INLINE: usize = 4;

/// `struct pollfd`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct PollWords {
    descriptor: i32,
    events: u16,
    ready: u16,
}

/// Entries of the program's array that are read at once.
const CHUNK: usize = 8;

/// The requests of one call.
pub(super) type Requests = SmallVec<[PollRequest; INLINE]>;

/// The deadline that a time-out in milliseconds means: none when negative.
#[inline(always)]
pub fn deadline_of_milliseconds(timeout_ms: i32) -> Option<u64> {
    match u64::try_from(timeout_ms) {
        Err(_) => None,
        Ok(0) => Some(0),
        Ok(milliseconds) => Some(now_ns().saturating_add(milliseconds * 1_000_000)),
    }
}

/// The deadline that a time-out means.
///
/// # Errors
/// EINVAL for fields out of range.
pub fn deadline_of_timespec(time: &Timespec) -> Result<u64, Errno> {
    match time.to_ns().ok_or(Errno::EINVAL)? {
        0 => Ok(0),
        ns => Ok(now_ns().saturating_add(ns)),
    }
}

/// Room for the requests of a call.
pub(super) fn requests(count: usize) -> Result<Requests, Errno> {
    let mut requests = Requests::new();
    if count > INLINE {
        memory::fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
        requests.try_reserve_exact(count).map_err(|_| Errno::ENOMEM)?;
    }
    Ok(requests)
}

impl Task {
    /// The request of one descriptor: INVALID at once when it is not open.
    pub(super) fn poll_request(&self, descriptor: i32, events: PollEvents) -> PollRequest {
        let file = descriptor_number(descriptor).ok().and_then(|number| self.files.get_usable(number).ok());
        let ready = if file.is_none() && descriptor >= 0 { PollEvents::INVALID } else { PollEvents::empty() };
        PollRequest { file, events, ready }
    }

    /// What is ready now of what a descriptor's file is asked for.
    ///
    /// # Errors
    /// EBADF when it is not open.
    #[inline]
    pub(super) fn look(&self, descriptor: i32, events: PollEvents) -> Result<PollEvents, Errno> {
        Ok(self.files.ready(descriptor_number(descriptor)?)? & (events | PollEvents::ALWAYS))
    }

    /// The thread's poll state, made on first use.
    pub(super) fn poll_waiter(&mut self) -> Result<Arc<PollWaiter>, Errno> {
        if let Some(waiter) = &self.poll_waiter {
            return Ok(waiter.clone());
        }
        let waiter = PollWaiter::create()?;
        self.poll_waiter = Some(waiter.clone());
        Ok(waiter)
    }
}

/// The first look at a program's list: how many entries have an answer, which is stored in them.
#[inline(never)]
fn look_at_list(task: &Task, list: u64, count: u32) -> Result<usize, vfs::Error> {
    let mut found = 0;
    let mut next = 0;
    while next < count as usize {
        let length = CHUNK.min(count as usize - next);
        let pointer = UserPointer::<PollWords>::new(list).add(next);
        let mut chunk = [PollWords { descriptor: -1, events: 0, ready: 0 }; CHUNK];
        read_bytes(pointer.address(), chunk[..length].as_mut_bytes()).map_err(bad_address)?;
        for (at, words) in chunk[..length].iter().enumerate() {
            let ready = match words.descriptor {
                ..0 => PollEvents::empty(),
                descriptor => task
                    .look(descriptor, PollEvents::from_bits_truncate(words.events.into()))
                    .unwrap_or(PollEvents::INVALID),
            };
            found += usize::from(!ready.is_empty());
            if ready.bits() as u16 != words.ready {
                write_ready(pointer.add(at), ready)?;
            }
        }
        next += length;
    }
    Ok(found)
}

fn bad_address(_: Errno) -> vfs::Error {
    vfs::Error::BadAddress
}

fn write_ready(entry: UserPointer<PollWords>, ready: PollEvents) -> Result<(), vfs::Error> {
    let field = entry.address().wrapping_add(core::mem::offset_of!(PollWords, ready) as u64);
    UserPointer::<u16>::new(field).write(&(ready.bits() as u16)).map_err(bad_address)
}

#[inline(never)]
fn poll_list(task: &mut Task, list: u64, count: u32, deadline_ns: Option<u64>) -> Result<usize, vfs::Error> {
    let found = look_at_list(task, list, count)?;
    if found > 0 || deadline_ns == Some(0) {
        return Ok(found);
    }
    wait_for_list(task, list, count, deadline_ns)
}

#[inline(never)]
fn wait_for_list(
    task: &mut Task,
    list: u64,
    count: u32,
    deadline_ns: Option<u64>,
) -> Result<usize, vfs::Error> {
    let pointer = UserPointer::<PollWords>::new(list);
    let waiter = task.poll_waiter().map_err(|_| vfs::Error::OutOfMemory)?;
    let mut requests = requests(count as usize).map_err(|_| vfs::Error::OutOfMemory)?;
    for at in 0..count as usize {
        let words = pointer.add(at).read().map_err(bad_address)?;
        requests
            .push(task.poll_request(words.descriptor, PollEvents::from_bits_truncate(words.events.into())));
    }
    let found = vfs::poll::poll(&waiter, &mut requests, deadline_ns)?;
    for (at, request) in requests.iter().enumerate() {
        write_ready(pointer.add(at), request.ready)?;
    }
    Ok(found)
}

fn check_count(task: &Task, count: u32) -> Result<(), Errno> {
    if u64::from(count) > task.process().limit(Resource::OpenFiles) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// Waits for files; goes on with the rest of the time after a stop or a signal without a handler.
pub fn poll(task: &mut Task, list: u64, count: u32, timeout_ms: i32) -> SysResult {
    check_count(task, count)?;
    let deadline_ns = deadline_of_milliseconds(timeout_ms);
    resume(task, list, count, deadline_ns)
}

/// Goes on with an interrupted poll.
pub fn resume(task: &mut Task, list: u64, count: u32, deadline_ns: Option<u64>) -> SysResult {
    match poll_list(task, list, count, deadline_ns) {
        Ok(found) => Ok(found),
        Err(vfs::Error::Interrupted) => Err(task.pause(Pause::Poll { list, count, deadline_ns })),
        Err(error) => Err(error.into()),
    }
}

/// Waits for files with another signal mask; the time left is stored.
#[inline(never)]
pub fn ppoll(task: &mut Task, list: u64, count: u32, timeout: u64, mask: u64, size: usize) -> SysResult {
    check_count(task, count)?;
    let timeout = UserPointer::<Timespec>::new(timeout);
    let deadline_ns = match timeout.given() {
        None => None,
        Some(pointer) => Some(deadline_of_timespec(&pointer.read()?)?),
    };
    if let Some(pointer) = UserPointer::<u64>::new(mask).given() {
        if size != 8 {
            return Err(Errno::EINVAL);
        }
        let mask = SignalSet::from_bits(pointer.read()?);
        task.set_temporary_mask(mask);
    }
    let result = poll_list(task, list, count, deadline_ns);
    store_rest(timeout, deadline_ns);
    task.end_temporary_mask(result.map_err(super::context::not_restarted))
}

/// Stores the time left of a call; a fault there is not an error of the call.
pub(super) fn store_rest(timeout: UserPointer<Timespec>, deadline_ns: Option<u64>) {
    if let (Some(pointer), Some(deadline_ns)) = (timeout.given(), deadline_ns) {
        let _ = pointer.write(&Timespec::from_ns(deadline_ns.saturating_sub(now_ns())));
    }
}
