//! io_uring_register: what a ring keeps for later.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use ::memory::buffer::UserRange;
use ::memory::fallible;
use vfs::OpenFile;
use vfs::eventfd::EventCounter;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::abi::{entry, operation, setup};
use super::calls::{issuer, ring_file};
use super::cancel;
use super::groups::{self, RING_ENTRY_BYTES};
use super::resources::{BUFFERS_MAX, FILES_MAX};
use super::ring::{Restrictions, Ring, RingFile, is_ring};
use super::submitter::{REGISTERED_MAX, Submitter};
use crate::abi::IoVector;
use crate::errno::{Errno, SysResult};
use crate::process::limits::Resource;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// What can be registered.
mod kind {
    pub(super) const BUFFERS: u32 = 0;
    pub(super) const NO_BUFFERS: u32 = 1;
    pub(super) const FILES: u32 = 2;
    pub(super) const NO_FILES: u32 = 3;
    pub(super) const EVENT_COUNTER: u32 = 4;
    pub(super) const NO_EVENT_COUNTER: u32 = 5;
    pub(super) const UPDATE_FILES: u32 = 6;
    pub(super) const ASYNCHRONOUS_EVENT_COUNTER: u32 = 7;
    pub(super) const PROBE: u32 = 8;
    pub(super) const PERSONALITY: u32 = 9;
    pub(super) const NO_PERSONALITY: u32 = 10;
    pub(super) const RESTRICTIONS: u32 = 11;
    pub(super) const ENABLE: u32 = 12;
    pub(super) const FILES2: u32 = 13;
    pub(super) const UPDATE_FILES2: u32 = 14;
    pub(super) const WORKERS_MAX: u32 = 19;
    pub(super) const RINGS: u32 = 20;
    pub(super) const NO_RINGS: u32 = 21;
    pub(super) const BUFFER_RING: u32 = 22;
    pub(super) const NO_BUFFER_RING: u32 = 23;
    pub(super) const TAKE_BACK: u32 = 24;
    pub(super) const GIVEN_OUT: u32 = 25;
    /// One more than the last.
    pub(super) const COUNT: u32 = 26;
    /// With this bit the ring is one that was registered.
    pub(super) const REGISTERED_RING: u32 = 1 << 31;
}

/// A place that stays as it is.
const SKIP: i32 = -2;
/// Buffers that may be as long as this.
const BUFFER_BYTES_MAX: u64 = 1 << 30;
/// Places of a table of files that is registered without files.
const SPARSE: u32 = 1;

/// `struct io_uring_files_update`, `struct io_uring_rsrc_update`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Update {
    offset: u32,
    reserved: u32,
    data: u64,
}

/// `struct io_uring_rsrc_update2`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Update2 {
    offset: u32,
    reserved: u32,
    data: u64,
    tags: u64,
    number: u32,
    reserved2: u32,
}

/// `struct io_uring_rsrc_register`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Register {
    number: u32,
    flags: u32,
    reserved: u64,
    data: u64,
    tags: u64,
}

/// `struct io_uring_probe_op`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct ProbedOperation {
    operation: u8,
    reserved: u8,
    flags: u16,
    reserved2: u32,
}

/// `struct io_uring_restriction`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Restriction {
    kind: u16,
    value: u8,
    reserved: u8,
    reserved2: [u32; 3],
}

/// `struct io_uring_buf_reg`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct BufferRing {
    address: u64,
    entries: u32,
    group: u16,
    reserved: u16,
    reserved2: [u64; 3],
}

/// `struct io_uring_file_index_range`.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Places {
    first: u32,
    count: u32,
    reserved: u64,
}

/// Registers something with a ring.
#[inline(never)]
pub(crate) fn io_uring_register(
    task: &mut Task,
    descriptor: i32,
    number: u32,
    argument: u64,
    count: u32,
) -> SysResult {
    let is_registered = number & kind::REGISTERED_RING != 0;
    let number = number & !kind::REGISTERED_RING;
    if number >= kind::COUNT {
        return Err(Errno::EINVAL);
    }
    let file = ring_file(task, descriptor, is_registered)?;
    let ring = file.object::<RingFile>().ok_or(Errno::EOPNOTSUPP)?.0.clone();
    if ring.flags & setup::SINGLE_ISSUER != 0 {
        let issuer_of_ring = ring.issuer.load(Ordering::Relaxed);
        if issuer_of_ring != 0 && issuer_of_ring != issuer(&Submitter::of(task)?) {
            return Err(Errno::EEXIST);
        }
    }
    if ring.is_restricted.load(Ordering::Acquire) {
        let restrictions = *ring.restrictions.lock();
        if restrictions.is_some_and(|restrictions| {
            restrictions.restricts_registrations && restrictions.registrations & 1 << number == 0
        }) {
            return Err(Errno::EACCES);
        }
    }
    register(task, &ring, number, argument, count)
}

/// Whether nothing is said where nothing may be.
fn nothing(argument: u64, count: u32) -> Result<(), Errno> {
    if argument != 0 || count != 0 { Err(Errno::EINVAL) } else { Ok(()) }
}

fn register(task: &mut Task, ring: &Arc<Ring>, number: u32, argument: u64, count: u32) -> SysResult {
    match number {
        kind::BUFFERS => set_buffers(task, ring, argument, count),
        kind::NO_BUFFERS => {
            nothing(argument, count)?;
            ring.resources.forget_buffers().map(|()| 0)
        }
        kind::FILES => set_files(task, ring, argument, count),
        kind::FILES2 => set_files2(task, ring, argument, count),
        kind::NO_FILES => {
            nothing(argument, count)?;
            ring.resources.forget_files().map(|()| 0)
        }
        kind::UPDATE_FILES => {
            let update: Update = UserPointer::new(argument).read()?;
            if count == 0 || update.reserved != 0 {
                return Err(Errno::EINVAL);
            }
            update_files(task, ring, update.offset, update.data, count)
        }
        kind::UPDATE_FILES2 => {
            if count as usize != size_of::<Update2>() {
                return Err(Errno::EINVAL);
            }
            let update: Update2 = UserPointer::new(argument).read()?;
            if update.reserved != 0 || update.reserved2 != 0 || update.tags != 0 || update.number == 0 {
                return Err(Errno::EINVAL);
            }
            update_files(task, ring, update.offset, update.data, update.number)
        }
        kind::EVENT_COUNTER | kind::ASYNCHRONOUS_EVENT_COUNTER => {
            if count != 1 {
                return Err(Errno::EINVAL);
            }
            set_event_counter(task, ring, argument, number == kind::ASYNCHRONOUS_EVENT_COUNTER)
        }
        kind::NO_EVENT_COUNTER => {
            nothing(argument, count)?;
            ring.completions.tell(None).map(|_| 0).ok_or(Errno::ENXIO)
        }
        kind::PROBE => probe(argument, count),
        kind::PERSONALITY => {
            nothing(argument, count)?;
            ring.resources.add_personality(&task.credentials)
        }
        kind::NO_PERSONALITY => {
            if argument != 0 {
                return Err(Errno::EINVAL);
            }
            let number = u16::try_from(count).map_err(|_| Errno::EINVAL)?;
            ring.resources.remove_personality(number).map(|()| 0)
        }
        kind::RESTRICTIONS => restrict(ring, argument, count),
        kind::ENABLE => {
            nothing(argument, count)?;
            enable(task, ring)
        }
        kind::WORKERS_MAX => limit_workers(task, argument, count),
        kind::RINGS => register_rings(task, argument, count),
        kind::NO_RINGS => unregister_rings(task, argument, count),
        kind::BUFFER_RING => {
            let ring_of_buffers = read_buffer_ring(argument, count)?;
            add_buffer_ring(ring, &ring_of_buffers)
        }
        kind::NO_BUFFER_RING => {
            let group = read_buffer_ring(argument, count)?.group;
            ring.resources.groups.remove_ring(group).map(|()| 0)
        }
        kind::TAKE_BACK => cancel::take_back_now(task, ring, argument, count),
        kind::GIVEN_OUT => give_out(ring, argument, count),
        _ => Err(Errno::EINVAL),
    }
}

/// Registers buffers. They are remembered, not pinned: what is unmapped later is EFAULT for who uses it.
fn set_buffers(task: &Task, ring: &Ring, argument: u64, count: u32) -> SysResult {
    let count = count as usize;
    if count == 0 || count > BUFFERS_MAX {
        return Err(Errno::EINVAL);
    }
    let mut buffers = fallible::try_vec(count).map_err(|_| Errno::ENOMEM)?;
    for index in 0..count {
        let vector: IoVector = UserPointer::new(argument).add(index).read()?;
        buffers.push(checked_buffer(vector.base, vector.length)?);
        if task.thread.is_killed() {
            return Err(Errno::EINTR);
        }
    }
    ring.resources.set_buffers(buffers).map(|()| 0)
}

fn checked_buffer(base: u64, length: u64) -> Result<UserRange, Errno> {
    if base == 0 || length == 0 {
        return if base == 0 && length == 0 { Ok(UserRange::default()) } else { Err(Errno::EFAULT) };
    }
    if length > BUFFER_BYTES_MAX {
        return Err(Errno::EFAULT);
    }
    let (address, length) = crate::file::transfer::user_range(base, length as usize)?;
    check_there(base, length as u64)?;
    Ok(UserRange { address, length })
}

/// Whether every page of a range is there.
fn check_there(base: u64, length: u64) -> Result<(), Errno> {
    let mut at = base & !(machine::address::PAGE_SIZE as u64 - 1);
    while at < base + length {
        UserPointer::<u8>::new(at.max(base)).read()?;
        at += machine::address::PAGE_SIZE as u64;
    }
    Ok(())
}

fn read_buffer_ring(argument: u64, count: u32) -> Result<BufferRing, Errno> {
    if argument == 0 || count != 1 {
        return Err(Errno::EINVAL);
    }
    let ring: BufferRing = UserPointer::new(argument).read()?;
    if ring.reserved != 0 || ring.reserved2 != [0; 3] { Err(Errno::EINVAL) } else { Ok(ring) }
}

/// Makes a ring of buffers in the program's memory a group. It is remembered, not pinned.
fn add_buffer_ring(ring: &Ring, new: &BufferRing) -> SysResult {
    if new.address == 0 {
        return Err(Errno::EFAULT);
    }
    if !new.address.is_multiple_of(machine::address::PAGE_SIZE as u64) {
        return Err(Errno::EINVAL);
    }
    groups::check_entries(new.entries)?;
    let bytes = u64::from(new.entries) * RING_ENTRY_BYTES;
    crate::file::transfer::user_range(new.address, bytes as usize)?;
    check_there(new.address, bytes)?;
    ring.resources.groups.add_ring(new.group, new.address, new.entries).map(|()| 0)
}

/// Says from which places of the table of files operations that open get theirs.
fn give_out(ring: &Ring, argument: u64, count: u32) -> SysResult {
    if argument == 0 || count != 0 {
        return Err(Errno::EINVAL);
    }
    let places: Places = UserPointer::new(argument).read()?;
    places.first.checked_add(places.count).ok_or(Errno::EOVERFLOW)?;
    if places.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    ring.resources.give_out(places.first, places.count).map(|()| 0)
}

/// The file of a descriptor that is to be registered; −1: none.
fn registrable(task: &Task, descriptor: i32) -> Result<Option<Arc<OpenFile>>, Errno> {
    if descriptor == -1 {
        return Ok(None);
    }
    let file = task.usable_file(descriptor)?;
    // A ring that had itself would never be closed.
    if is_ring(&file) { Err(Errno::EBADF) } else { Ok(Some(file)) }
}

fn set_files(task: &Task, ring: &Ring, argument: u64, count: u32) -> SysResult {
    let files = read_files(task, ring, argument, count)?;
    ring.resources.set_files(files).map(|()| 0)
}

fn read_files(
    task: &Task,
    ring: &Ring,
    argument: u64,
    count: u32,
) -> Result<Vec<Option<Arc<OpenFile>>>, Errno> {
    if ring.resources.files().is_some() {
        return Err(Errno::EBUSY);
    }
    if count == 0 {
        return Err(Errno::EINVAL);
    }
    if count as usize > FILES_MAX || u64::from(count) > task.process().limit(Resource::OpenFiles) {
        return Err(Errno::EMFILE);
    }
    let mut files = fallible::try_vec(count as usize).map_err(|_| Errno::ENOMEM)?;
    for index in 0..count as usize {
        let file = match UserPointer::<i32>::new(argument).given() {
            Some(list) => registrable(task, list.add(index).read()?)?,
            None => None,
        };
        files.push(file);
    }
    Ok(files)
}

fn set_files2(task: &Task, ring: &Ring, argument: u64, count: u32) -> SysResult {
    if count as usize != size_of::<Register>() {
        return Err(Errno::EINVAL);
    }
    let register: Register = UserPointer::new(argument).read()?;
    let sparse = register.flags & SPARSE != 0;
    if register.number == 0
        || register.reserved != 0
        || register.flags & !SPARSE != 0
        || register.tags != 0
        || (sparse && register.data != 0)
    {
        return Err(Errno::EINVAL);
    }
    set_files(task, ring, register.data, register.number)
}

/// Replaces files of the table; how many. An error is that of the first.
pub(super) fn update_files(task: &Task, ring: &Ring, first: u32, list: u64, count: u32) -> SysResult {
    let places = ring.resources.files().ok_or(Errno::ENXIO)?;
    if first.checked_add(count).ok_or(Errno::EOVERFLOW)? as usize > places {
        return Err(Errno::EINVAL);
    }
    let mut done = 0;
    while done < count {
        let place = first + done;
        let replaced = UserPointer::<i32>::new(list).add(done as usize).read().and_then(|descriptor| {
            if descriptor == SKIP {
                return Ok(None);
            }
            ring.resources.replace_file(place, registrable(task, descriptor)?)
        });
        match replaced {
            Ok(former) => drop(former),
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
        done += 1;
    }
    Ok(done as usize)
}

fn set_event_counter(task: &Task, ring: &Ring, argument: u64, only_asynchronous: bool) -> SysResult {
    let file = task.usable_file(UserPointer::<i32>::new(argument).read()?)?;
    file.object::<EventCounter>().ok_or(Errno::EINVAL)?;
    if let Some(former) = ring.completions.tell(Some((file, only_asynchronous))) {
        drop(ring.completions.tell(Some(former)));
        return Err(Errno::EBUSY);
    }
    Ok(0)
}

/// Says which operations there are.
fn probe(argument: u64, count: u32) -> SysResult {
    const SUPPORTED: u16 = 1;
    const MOST: u32 = 256;
    const HEADER: u64 = 16;
    if count > MOST {
        return Err(Errno::EINVAL);
    }
    let header: [u8; HEADER as usize] = UserPointer::new(argument).read()?;
    if header != [0; HEADER as usize] {
        return Err(Errno::EINVAL);
    }
    let listed = count.min(operation::COUNT.into());
    let mut answer = [0_u8; HEADER as usize];
    answer[0] = operation::COUNT - 1;
    answer[1] = listed as u8;
    let places = UserPointer::<ProbedOperation>::new(argument.wrapping_add(HEADER));
    for number in 0..listed {
        let one = ProbedOperation { operation: number as u8, reserved: 0, flags: SUPPORTED, reserved2: 0 };
        places.add(number as usize).write(&one)?;
    }
    UserPointer::new(argument).write(&answer)?;
    Ok(0)
}

/// Says once what a ring that is not enabled yet may be used for.
fn restrict(ring: &Ring, argument: u64, count: u32) -> SysResult {
    const REGISTRATION: u16 = 0;
    const OPERATION: u16 = 1;
    const ALLOWED_FLAGS: u16 = 2;
    const REQUIRED_FLAGS: u16 = 3;
    const MOST: u32 = 128;
    if ring.is_enabled.load(Ordering::Acquire) {
        return Err(Errno::EBADFD);
    }
    if ring.restrictions.lock().is_some() {
        return Err(Errno::EBUSY);
    }
    if argument == 0 || count > MOST {
        return Err(Errno::EINVAL);
    }
    let mut all = Restrictions::default();
    for index in 0..count as usize {
        let one: Restriction = UserPointer::new(argument).add(index).read()?;
        match one.kind {
            REGISTRATION if u32::from(one.value) < kind::COUNT => {
                all.registrations |= 1 << one.value;
                all.restricts_registrations = true;
            }
            OPERATION if one.value < operation::COUNT => {
                all.operations |= 1 << one.value;
                all.restricts_operations = true;
            }
            ALLOWED_FLAGS if one.value & !entry::KNOWN == 0 => {
                all.allowed_flags = one.value;
                all.restricts_operations = true;
            }
            REQUIRED_FLAGS if one.value & !entry::KNOWN == 0 => {
                all.required_flags = one.value;
                all.restricts_operations = true;
            }
            _ => return Err(Errno::EINVAL),
        }
    }
    *ring.restrictions.lock() = Some(all);
    Ok(0)
}

fn enable(task: &mut Task, ring: &Ring) -> SysResult {
    if ring.is_enabled.load(Ordering::Acquire) {
        return Err(Errno::EBADFD);
    }
    if ring.flags & setup::SINGLE_ISSUER != 0 {
        ring.issuer.store(issuer(&Submitter::of(task)?), Ordering::Relaxed);
    }
    ring.is_restricted.store(ring.restrictions.lock().is_some(), Ordering::Release);
    ring.is_enabled.store(true, Ordering::Release);
    Ok(0)
}

/// Changes how many workers the thread may have, and says what the numbers were.
fn limit_workers(task: &mut Task, argument: u64, count: u32) -> SysResult {
    if argument == 0 || count != 2 {
        return Err(Errno::EINVAL);
    }
    let pointer = UserPointer::<[u32; 2]>::new(argument);
    let new = pointer.read()?;
    if new.iter().any(|number| *number > i32::MAX as u32) {
        return Err(Errno::EINVAL);
    }
    let former = Submitter::of(task)?.set_limits(new);
    pointer.write(&former)?;
    Ok(0)
}

/// Rings that the thread will name by number; how many were registered.
fn register_rings(task: &mut Task, argument: u64, count: u32) -> SysResult {
    let count = registered_count(count)?;
    let submitter = Submitter::of(task)?;
    for index in 0..count {
        let pointer = UserPointer::<Update>::new(argument).add(index);
        let outcome = pointer.read().and_then(|mut update| {
            let number = usize::try_from(update.offset).ok().filter(|_| update.offset != u32::MAX);
            if update.reserved != 0 || number.is_some_and(|number| number >= REGISTERED_MAX) {
                return Err(Errno::EINVAL);
            }
            let file = task.usable_file(update.data as i32)?;
            if !is_ring(&file) {
                return Err(Errno::EOPNOTSUPP);
            }
            let number = submitter.register(number, file)?;
            update.offset = number as u32;
            pointer.write(&update).inspect_err(|_| drop(submitter.unregister(number)))
        });
        if let Err(errno) = outcome {
            return if index > 0 { Ok(index) } else { Err(errno) };
        }
    }
    Ok(count)
}

fn unregister_rings(task: &mut Task, argument: u64, count: u32) -> SysResult {
    let count = registered_count(count)?;
    let submitter = Submitter::of(task)?;
    for index in 0..count {
        let outcome = UserPointer::<Update>::new(argument).add(index).read().and_then(|update| {
            if update.reserved != 0 || update.data != 0 || update.offset as usize >= REGISTERED_MAX {
                return Err(Errno::EINVAL);
            }
            drop(submitter.unregister(update.offset as usize));
            Ok(())
        });
        if let Err(errno) = outcome {
            return if index > 0 { Ok(index) } else { Err(errno) };
        }
    }
    Ok(count)
}

fn registered_count(count: u32) -> Result<usize, Errno> {
    if count == 0 || count as usize > REGISTERED_MAX { Err(Errno::EINVAL) } else { Ok(count as usize) }
}
