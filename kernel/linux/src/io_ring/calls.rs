//! io_uring_setup, io_uring_enter.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

use ::memory::fallible;
use machine::time::now_ns;
use sched::{WaitError, current};
use vfs::{Capabilities, OpenFile, OpenFlags};

use super::abi::{Parameters, enter, feature, setup};
use super::completions::Completions;
use super::execute::{self, By, without_waiting};
use super::memory::RingMemory;
use super::ring::{Ring, RingFile, is_ring};
use super::submit;
use super::submitter::Submitter;
use crate::abi::Timespec;
use crate::credentials::account::LockedMemory;
use crate::errno::{Errno, SysResult};
use crate::process::limits::Resource;
use crate::signal::set::SignalSet;
use crate::task::Task;
use crate::user_pointer::UserPointer;

pub(crate) use super::register::io_uring_register;

const PAGE: u64 = machine::address::PAGE_SIZE as u64;
/// Submissions that a ring has places for at most; completions twice that.
const ENTRIES_MAX: u32 = 1 << 15;

/// Who may make rings (`/proc/sys/kernel/io_uring_disabled`): 0: everybody; 1: CAP_SYS_ADMIN; 2: nobody.
static DISABLED: AtomicU32 = AtomicU32::new(0);

/// Who may not make rings.
pub(crate) fn disabled() -> u64 {
    DISABLED.load(Ordering::Relaxed).into()
}

/// Changes it; numbers beyond 2 are refused by the caller.
pub(crate) fn set_disabled(value: u64) {
    DISABLED.store(value as u32, Ordering::Relaxed);
}

/// How many entries a ring gets.
fn sizes(entries: u32, parameters: &Parameters) -> Result<(u32, u32), Errno> {
    let flags = parameters.flags;
    let clamp = |number: u32, most: u32| match number {
        0 => Err(Errno::EINVAL),
        number if number <= most => Ok(number.next_power_of_two()),
        _ if flags & setup::CLAMP != 0 => Ok(most),
        _ => Err(Errno::EINVAL),
    };
    let submissions = clamp(entries, ENTRIES_MAX)?;
    let completions = match flags & setup::OWN_COMPLETIONS {
        0 => 2 * submissions,
        _ => clamp(parameters.completion_entries, 2 * ENTRIES_MAX)?,
    };
    if completions < submissions { Err(Errno::EINVAL) } else { Ok((submissions, completions)) }
}

fn check_flags(flags: u32) -> Result<(), Errno> {
    let has = |flag: u32| flags & flag != 0;
    let task_work = has(setup::COOPERATIVE) || has(setup::DEFER_TASK_WORK);
    if flags & !setup::KNOWN != 0
        || (has(setup::FLAG_TASK_WORK) && !task_work)
        || (has(setup::DEFER_TASK_WORK) && !has(setup::SINGLE_ISSUER))
    {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Makes a ring.
#[inline(never)]
pub(crate) fn io_uring_setup(task: &mut Task, entries: u32, pointer: u64) -> SysResult {
    match DISABLED.load(Ordering::Relaxed) {
        0 => {}
        1 if task.credentials.has(Capabilities::SYS_ADMIN) => {}
        _ => return Err(Errno::EPERM),
    }
    let pointer = UserPointer::<Parameters>::new(pointer);
    let mut parameters = pointer.read()?;
    if parameters.reserved != [0; 3] {
        return Err(Errno::EINVAL);
    }
    check_flags(parameters.flags)?;
    let (submissions, completions) = sizes(entries, &parameters)?;
    if parameters.flags & setup::ATTACH_WORKERS != 0 {
        // A thread's rings share its workers in any case.
        let other = task.usable_file(parameters.attached_to as i32)?;
        if !is_ring(&other) {
            return Err(Errno::EINVAL);
        }
    }
    let charge = charge(task, RingMemory::pages(submissions, completions))?;
    let memory = RingMemory::new(submissions, completions)?;
    (parameters.submission, parameters.completion) = memory.offsets();
    parameters.submission_entries = submissions;
    parameters.completion_entries = completions;
    parameters.features = feature::ALL;
    let ring = Ring::new(memory, parameters.flags, charge)?;
    if parameters.flags & (setup::SINGLE_ISSUER | setup::DISABLED) == setup::SINGLE_ISSUER {
        ring.issuer.store(issuer(&Submitter::of(task)?), Ordering::Relaxed);
    }
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let object = fallible::try_arc(RingFile(ring)).map_err(|_| Errno::ENOMEM)?;
    let file = OpenFile::anonymous(
        vfs::anonymous::shared_inode()?,
        object,
        OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC,
    )?;
    pointer.write(&parameters)?;
    Ok(reserved.install(file, vfs::DescriptorFlags::CLOSE_ON_EXEC) as usize)
}

/// What makes a thread the only one that submits.
pub(super) fn issuer(submitter: &Arc<Submitter>) -> u64 {
    Arc::as_ptr(submitter) as u64
}

/// Counts a ring's pages as memory that its user keeps.
fn charge(task: &Task, pages: u64) -> Result<Option<LockedMemory>, Errno> {
    if task.credentials.has(Capabilities::IPC_LOCK) {
        return Ok(None);
    }
    let limit = task.process().limit(Resource::LockedMemory) / PAGE;
    LockedMemory::claim(&task.credentials.account, pages, limit).map(Some).ok_or(Errno::ENOMEM)
}

/// `struct io_uring_getevents_arg`.
#[derive(
    Clone, Copy, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
)]
#[repr(C)]
struct EventsArgument {
    mask: u64,
    mask_bytes: u32,
    padding: u32,
    time: u64,
}

/// How a call waits.
struct Wait {
    mask: u64,
    deadline_ns: Option<u64>,
}

/// What the argument of a call says.
fn read_argument(flags: u32, argument: u64, bytes: usize) -> Result<Wait, Errno> {
    let mut wait = Wait { mask: argument, deadline_ns: None };
    let mut mask_bytes = bytes as u32;
    if flags & enter::EXTENDED_ARGUMENT != 0 {
        if bytes != size_of::<EventsArgument>() {
            return Err(Errno::EINVAL);
        }
        let argument: EventsArgument = UserPointer::new(argument).read()?;
        if argument.padding != 0 {
            return Err(Errno::EINVAL);
        }
        wait.mask = argument.mask;
        mask_bytes = argument.mask_bytes;
        if let Some(time) = UserPointer::<Timespec>::new(argument.time).given() {
            let ns = time.read()?.to_ns().ok_or(Errno::EINVAL)?;
            wait.deadline_ns = Some(now_ns().saturating_add(ns));
        }
    }
    if wait.mask != 0 && mask_bytes != size_of::<u64>() as u32 {
        return Err(Errno::EINVAL);
    }
    Ok(wait)
}

/// The ring that a call is about.
pub(super) fn ring_file(task: &Task, descriptor: i32, is_registered: bool) -> Result<Arc<OpenFile>, Errno> {
    if !is_registered {
        return task.usable_file(descriptor);
    }
    let number = usize::try_from(descriptor).map_err(|_| Errno::EINVAL)?;
    let submitter = task.submitter.as_ref().ok_or(Errno::EINVAL)?;
    if number >= super::submitter::REGISTERED_MAX {
        return Err(Errno::EINVAL);
    }
    submitter.registered(number).ok_or(Errno::EBADF)
}

/// Submits, and waits for completions.
#[inline(never)]
pub(crate) fn io_uring_enter(
    task: &mut Task,
    descriptor: i32,
    to_submit: u32,
    least: u32,
    flags: u32,
    argument: u64,
    argument_bytes: usize,
) -> SysResult {
    const KNOWN: u32 = enter::GET_EVENTS
        | enter::WAKE_THREAD
        | enter::WAIT_FOR_ROOM
        | enter::EXTENDED_ARGUMENT
        | enter::REGISTERED_RING;
    if flags & !KNOWN != 0 {
        return Err(Errno::EINVAL);
    }
    let file = ring_file(task, descriptor, flags & enter::REGISTERED_RING != 0)?;
    let ring = file.object::<RingFile>().ok_or(Errno::EOPNOTSUPP)?.0.clone();
    if !ring.is_enabled.load(Ordering::Acquire) {
        return Err(Errno::EBADFD);
    }
    let submitter = Submitter::of(task)?;
    if ring.flags & setup::SINGLE_ISSUER != 0 && ring.issuer.load(Ordering::Relaxed) != issuer(&submitter) {
        return Err(Errno::EEXIST);
    }
    let submitted = match to_submit {
        0 => Ok(0),
        count => without_waiting(task, |task| submit::submit(task, &ring, &submitter, count as usize)),
    };
    let is_complete = submitted.is_ok_and(|submitted| submitted == to_submit as usize);
    if flags & enter::GET_EVENTS == 0 || !is_complete {
        if submitter.has_ready() {
            go_on(task, &submitter);
        }
        return submitted;
    }
    let waited = read_argument(flags, argument, argument_bytes)
        .and_then(|wait| wait_for_completions(task, &ring, &submitter, least, &wait));
    match (submitted, waited) {
        (Ok(count), _) if count > 0 => Ok(count),
        (_, Err(errno)) => Err(errno),
        (submitted, Ok(())) => submitted,
    }
}

/// Goes on with what was told of.
fn go_on(task: &mut Task, submitter: &Arc<Submitter>) {
    // No more than there are when it begins to: what becomes ready again and again must not keep the call.
    without_waiting(task, |task| {
        for _ in 0..READY_AT_ONCE {
            let Some(request) = submitter.take_ready() else { return };
            execute::go_on(task, request, By::Call);
        }
    });
}

/// Requests that a call goes on with before it looks whether it has what it waits for.
const READY_AT_ONCE: usize = 64;

fn wait_for_completions(
    task: &mut Task,
    ring: &Arc<Ring>,
    submitter: &Arc<Submitter>,
    least: u32,
    wait: &Wait,
) -> Result<(), Errno> {
    let least = least.min(ring.memory.completion_entries);
    if let Some(mask) = UserPointer::<u64>::new(wait.mask).given() {
        let mask = SignalSet::from_bits(mask.read()?);
        task.set_temporary_mask(mask);
    }
    submitter.set_waiting(Some(ring));
    let result = wait_until_there(task, ring, submitter, least, wait.deadline_ns);
    submitter.set_waiting(None);
    task.end_temporary_mask(result.map(|()| 0)).map(|_| ())
}

fn wait_until_there(
    task: &mut Task,
    ring: &Arc<Ring>,
    submitter: &Arc<Submitter>,
    least: u32,
    deadline_ns: Option<u64>,
) -> Result<(), Errno> {
    loop {
        if submitter.has_ready() {
            go_on(task, submitter);
        }
        ring.flush_completions();
        let is_there = || Completions::available(&ring.memory) >= least;
        if is_there() {
            return Ok(());
        }
        // What becomes ready again and again keeps neither signals nor time away.
        if submitter.has_ready() {
            if current().must_look() {
                return Err(Errno::ERESTARTNOHAND);
            }
            if deadline_ns.is_some_and(|deadline_ns| now_ns() >= deadline_ns) {
                return Err(Errno::ETIME);
            }
        }
        let condition = || is_there() || submitter.has_ready();
        match ring.arrived.wait_interruptible_deadline(condition, deadline_ns) {
            Ok(()) => {}
            Err(WaitError::TimedOut) => return Err(Errno::ETIME),
            Err(WaitError::Interrupted) => return Err(Errno::ERESTARTNOHAND),
        }
    }
}
