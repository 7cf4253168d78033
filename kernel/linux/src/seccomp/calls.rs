//! seccomp(2), and what prctl(2) has of it.

use alloc::sync::Arc;

use vfs::Capabilities;

use super::filter::{Action, Filter};
use super::listener::{self, SIZES};
use super::notifier::Notifier;
use super::program::{LENGTH_MAX, Program};
use super::{Mode, Restriction};
use crate::abi::{FilterInstruction, FilterProgram};
use crate::errno::{Errno, SysResult};
use crate::process::thread::Thread;
use crate::task::Task;
use crate::user_pointer::UserPointer;

const SET_MODE_STRICT: u32 = 0;
const SET_MODE_FILTER: u32 = 1;
const GET_ACTION_AVAIL: u32 = 2;
const GET_NOTIF_SIZES: u32 = 3;

bitflags::bitflags! {
    /// Flags of a filter.
    #[derive(Clone, Copy, PartialEq, Eq)]
    struct Flags: u32 {
        /// All threads get it.
        const ALL_THREADS = 1 << 0;
        /// What it does is to be told to the log: nothing is but what it asks for.
        const LOG = 1 << 1;
        /// Without protection against speculation: there is none that depends on this.
        const SPECULATION = 1 << 2;
        /// A descriptor by which another process is asked.
        const NEW_LISTENER = 1 << 3;
        /// Which thread can't get it is not told.
        const NO_THREAD = 1 << 4;
        /// Who waits for an answer to what was received can only be killed.
        const WAIT_KILLABLE = 1 << 5;
    }
}

/// Restricts the caller, or says what there is.
#[inline(never)]
pub fn seccomp(task: &mut Task, operation: u32, flags: u32, arguments: u64) -> SysResult {
    match operation {
        SET_MODE_STRICT if flags == 0 && arguments == 0 => set_strict(task),
        SET_MODE_FILTER => set_filter(task, Flags::from_bits(flags).ok_or(Errno::EINVAL)?, arguments),
        GET_ACTION_AVAIL if flags == 0 => {
            let number = UserPointer::<u32>::new(arguments).read()?;
            Action::of(number).map(|_| 0).ok_or(Errno::EOPNOTSUPP)
        }
        GET_NOTIF_SIZES if flags == 0 => UserPointer::<[u16; 3]>::new(arguments).write(&SIZES).map(|()| 0),
        _ => Err(Errno::EINVAL),
    }
}

/// `PR_SET_SECCOMP`.
///
/// # Errors
/// Those of [`seccomp`].
pub fn prctl_set(task: &mut Task, mode: u64, program: u64) -> SysResult {
    const STRICT: u64 = Mode::Strict as u64;
    const FILTERS: u64 = Mode::Filters as u64;
    match mode {
        STRICT => set_strict(task),
        FILTERS => set_filter(task, Flags::empty(), program),
        _ => Err(Errno::EINVAL),
    }
}

fn set_strict(task: &Task) -> SysResult {
    let _threads = task.process().threads.lock();
    match task.thread.restriction().mode() {
        Mode::Filters => Err(Errno::EINVAL),
        _ => {
            task.thread.restrict(Restriction::Strict);
            Ok(0)
        }
    }
}

fn read_program(address: u64) -> Result<(u64, usize), Errno> {
    let FilterProgram { count, instructions, .. } = UserPointer::<FilterProgram>::new(address).read()?;
    let count = usize::from(count);
    if count == 0 || count > LENGTH_MAX { Err(Errno::EINVAL) } else { Ok((instructions, count)) }
}

fn set_filter(task: &Task, flags: Flags, address: u64) -> SysResult {
    let listens = flags.contains(Flags::NEW_LISTENER);
    let names_thread = flags.contains(Flags::ALL_THREADS) && !flags.contains(Flags::NO_THREAD);
    if (listens && names_thread) || (flags.contains(Flags::WAIT_KILLABLE) && !listens) {
        // The number of a thread could not be told from that of a descriptor.
        return Err(Errno::EINVAL);
    }
    let (instructions, count) = read_program(address)?;
    if !task.thread.has_no_new_privileges() && !task.credentials.has_here(Capabilities::SYS_ADMIN) {
        return Err(Errno::EACCES);
    }
    if instructions == 0 {
        return Err(Errno::EINVAL);
    }
    let program = Program::new(UserPointer::<FilterInstruction>::new(instructions).read_vector(count)?)?;
    let program = memory::fallible::try_arc(program).map_err(|_| Errno::ENOMEM)?;
    if !listens {
        return set_program(task, flags, &program, None);
    }
    let reserved = task.files.reserve(task.descriptor_limit())?;
    let notifier = Notifier::new(flags.contains(Flags::WAIT_KILLABLE))?;
    let file = listener::open(notifier.clone())?;
    set_program(task, flags, &program, Some(notifier))?;
    Ok(reserved.install(file, vfs::DescriptorFlags::CLOSE_ON_EXEC) as usize)
}

fn set_program(
    task: &Task,
    flags: Flags,
    program: &Arc<Program>,
    notifier: Option<Arc<Notifier>>,
) -> SysResult {
    loop {
        let former = match task.thread.restriction() {
            Restriction::None => None,
            Restriction::Strict => return Err(Errno::EINVAL),
            Restriction::Filters(former) => Some(former),
        };
        if notifier.is_some() && former.as_ref().is_some_and(|former| former.has_listener()) {
            return Err(Errno::EBUSY);
        }
        let filter =
            Filter::new(program.clone(), former.clone(), flags.contains(Flags::LOG), notifier.clone())?;
        if let Some(result) = install(task, flags, former.as_ref(), filter) {
            return result;
        }
    }
}

/// Makes a filter the last one of the caller, or of all threads. `None`: another thread has given the caller one after `former`.
fn install(
    task: &Task,
    flags: Flags,
    former: Option<&Arc<Filter>>,
    filter: Arc<Filter>,
) -> Option<SysResult> {
    // Locked, so that neither another thread nor one that is just made misses a filter. What is replaced here stays: the filter refers to it.
    let threads = task.process().threads.lock();
    let is_former = match (task.thread.restriction(), former) {
        (Restriction::None, None) => true,
        (Restriction::Filters(now), Some(former)) => Arc::ptr_eq(&now, former),
        _ => false,
    };
    if !is_former {
        return None;
    }
    let others = || threads.iter().filter(|thread| !Arc::ptr_eq(thread, &task.thread));
    if flags.contains(Flags::ALL_THREADS) {
        if let Some(thread) = others().find(|thread| !can_follow(thread, &filter)) {
            let is_told = !flags.contains(Flags::NO_THREAD);
            return Some(if is_told {
                Ok(task.seen_number(thread.tid()) as usize)
            } else {
                Err(Errno::ESRCH)
            });
        }
        for thread in others() {
            // First, so that a child that is just made with the filter has this as well.
            if task.thread.has_no_new_privileges() {
                thread.gain_no_privileges();
            }
            thread.restrict(Restriction::Filters(filter.clone()));
        }
    }
    task.thread.restrict(Restriction::Filters(filter));
    Some(Ok(0))
}

/// Whether a thread loses none of its restrictions by another one's filter.
fn can_follow(thread: &Thread, filter: &Arc<Filter>) -> bool {
    match thread.restriction() {
        Restriction::None => true,
        Restriction::Strict => false,
        Restriction::Filters(own) => own.is_before(filter),
    }
}
