//! Asynchronous transfers: `io_setup(2)` and what goes with it.
//!
//! A *context* keeps the outcomes of what was submitted to it until somebody asks for them. A transfer is made while it is submitted, by the thread that submits
//! it, as Linux does wherever a transfer can't be begun without waiting. So its outcome is there when `io_submit` returns: `io_getevents` waits only for what other threads
//! submit, and `io_cancel` finds nothing under way.
//!
//! A context is known by the address of a page that is mapped for it. On Linux the ring of outcomes is there; the library `libaio` looks whether it is, to take outcomes
//! without a call, and makes the call if not. The page is empty, and nothing that stands in it is believed.
//!
//! Contexts are a process's own: a child has none, and a new program has none.

mod outcomes;

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use ::memory::address_space::{MapBacking, MapFlags, MapRequest, Protection};
use ::memory::buffer::{Sink, UserRange};
use ::memory::fallible;
use machine::address::UserAddr;
use sched::{Mutex, WaitError, WaitQueue};
use sync::SpinLock;
use vfs::eventfd::EventCounter;
use vfs::{FileKind, OpenFile};

use self::outcomes::Outcomes;
use super::context::not_restarted;
use super::poll::deadline_of_timespec;
use super::transfer;
use crate::abi::{IoControlBlock, IoEvent, Timespec};
use crate::errno::{Errno, SysResult, register_of};
use crate::process::process::Process;
use crate::signal::set::SignalSet;
use crate::task::Task;
use crate::user_pointer::UserPointer;

const PAGE: u64 = machine::address::PAGE_SIZE as u64;
/// Outcomes that a context can be asked to have room for, whatever the machine allows.
const ROOM_MAX: u32 = 1 << 22;
/// Outcomes that are copied to a program at a time.
const BATCH: usize = 8;
/// Where a block's key is: 0 once it was submitted.
const KEY_AT: u64 = 8;

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const FSYNC: u16 = 2;
const FDSYNC: u16 = 3;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
/// An event counter is told.
const TELLS: u32 = 1;

/// How many outcomes all contexts together were asked to have room for, and may be (`/proc/sys/fs/aio-nr`, `aio-max-nr`).
static USED: AtomicU64 = AtomicU64::new(0);
static ALLOWED: AtomicU64 = AtomicU64::new(65_536);

/// How many outcomes all contexts together were asked to have room for.
pub(crate) fn used() -> u64 {
    USED.load(Ordering::Relaxed)
}

/// How many that may be.
pub(crate) fn allowed() -> u64 {
    ALLOWED.load(Ordering::Relaxed)
}

/// Changes how many that may be.
pub(crate) fn set_allowed(number: u64) {
    ALLOWED.store(number, Ordering::Relaxed);
}

/// A part of what is allowed; given back when dropped.
struct Share(u64);

impl Share {
    fn take(number: u64) -> Result<Self, Errno> {
        let more = |used: u64| used.checked_add(number).filter(|sum| *sum <= allowed());
        USED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).map_err(|_| Errno::EAGAIN)?;
        Ok(Self(number))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        USED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What transfers are submitted to.
pub(crate) struct Context {
    number: u64,
    outcomes: SpinLock<Outcomes>,
    /// Held by who takes outcomes.
    taking: Mutex<()>,
    arrived: WaitQueue,
    _share: Share,
}

/// The contexts of a process.
pub(crate) struct Contexts(SpinLock<Vec<Arc<Context>>>);

impl Contexts {
    /// None.
    pub(crate) const fn new() -> Self {
        Self(SpinLock::named("contexts of transfers", Vec::new()))
    }

    /// Ends all: the program is another one, or none. Who waits for outcomes is not there any more.
    pub(crate) fn end(&self) {
        let ended = core::mem::take(&mut *self.0.lock());
        drop(ended);
    }

    fn add(&self, context: Arc<Context>) -> Result<(), Errno> {
        vfs::allocation::lock_with_room(|| self.0.lock(), 1, |contexts| contexts)?.push(context);
        Ok(())
    }

    fn find(&self, number: u64) -> Result<Arc<Context>, Errno> {
        let contexts = self.0.lock();
        contexts.iter().find(|context| context.number == number).cloned().ok_or(Errno::EINVAL)
    }

    fn remove(&self, number: u64) -> Result<Arc<Context>, Errno> {
        let mut contexts = self.0.lock();
        let found = contexts.iter().position(|context| context.number == number).ok_or(Errno::EINVAL)?;
        Ok(contexts.swap_remove(found))
    }
}

impl Context {
    fn new(number: u64, asked: usize, share: Share) -> Result<Arc<Self>, Errno> {
        let context = Self {
            number,
            outcomes: SpinLock::named("outcomes of transfers", Outcomes::new(asked)?),
            taking: Mutex::named("taking of outcomes", ()),
            arrived: WaitQueue::new(),
            _share: share,
        };
        fallible::try_arc(context).map_err(|_| Errno::ENOMEM)
    }

    /// Makes sure that there will be a place for an outcome.
    fn reserve(&self) -> Result<(), Errno> {
        self.outcomes.lock().reserve()
    }

    /// A place that was reserved is used, or given back.
    fn settle(&self, event: Option<IoEvent>) {
        self.outcomes.lock().settle(event.as_ref());
        if event.is_some() {
            self.arrived.wake_all();
        }
    }

    /// Copies outcomes to the program, as many as there are.
    fn move_out(&self, most: usize, to: UserPointer<IoEvent>) -> Result<usize, Errno> {
        let _turn = self.taking.lock();
        let mut moved = 0;
        while moved < most {
            let mut batch = [IoEvent::default(); BATCH];
            let wanted = BATCH.min(most - moved);
            let count = self.outcomes.lock().copy(&mut batch[..wanted]);
            if count == 0 {
                break;
            }
            // What can't be copied is still there.
            match to.add(moved).write_slice(&batch[..count]) {
                Err(error) if moved == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => self.outcomes.lock().forget(count),
            }
            moved += count;
        }
        Ok(moved)
    }

    /// Takes outcomes, waiting until there are `least`.
    fn take(
        &self,
        least: usize,
        most: usize,
        to: UserPointer<IoEvent>,
        deadline_ns: Option<u64>,
    ) -> SysResult {
        let mut taken = 0;
        loop {
            match self.move_out(most - taken, to.add(taken)) {
                Err(error) if taken == 0 => return Err(error),
                Err(_) => return Ok(taken),
                Ok(count) => taken += count,
            }
            if taken >= least || deadline_ns == Some(0) {
                return Ok(taken);
            }
            let has_come = || {
                let outcomes = self.outcomes.lock();
                outcomes.count() > 0 || outcomes.is_destroyed
            };
            match self.arrived.wait_interruptible_deadline(has_come, deadline_ns) {
                Err(WaitError::Interrupted) if taken == 0 => return Err(vfs::Error::Interrupted.into()),
                Err(_) => return Ok(taken),
                Ok(()) => {}
            }
            let outcomes = self.outcomes.lock();
            if outcomes.is_destroyed && outcomes.count() == 0 {
                return if taken > 0 { Ok(taken) } else { Err(Errno::EINVAL) };
            }
        }
    }
}

/// Makes a context with room for so many outcomes.
#[inline(never)]
pub fn io_setup(task: &mut Task, room: u32, out: u64) -> SysResult {
    let out = UserPointer::<u64>::new(out);
    if out.read()? != 0 || room == 0 || room > ROOM_MAX {
        return Err(Errno::EINVAL);
    }
    let share = Share::take(room.into())?;
    let request = MapRequest {
        address: UserAddr::new(0),
        length: PAGE,
        protection: Protection::READ,
        maximum: Protection::all(),
        flags: MapFlags::empty(),
        backing: MapBacking::Anonymous,
        offset: 0,
    };
    let number = task.address_space.map(request).map_err(crate::memory::errno_of)?.as_u64();
    let made = Context::new(number, room as usize, share)
        .and_then(|context| task.process().contexts.add(context))
        .and_then(|()| out.write(&number));
    if let Err(error) = made {
        let context = task.process().contexts.remove(number);
        drop(context);
        let _ = task.address_space.unmap(UserAddr::new(number), PAGE);
        return Err(error);
    }
    Ok(0)
}

/// Ends a context, whatever it has.
#[inline(never)]
pub fn io_destroy(task: &mut Task, number: u64) -> SysResult {
    let context = task.process().contexts.remove(number)?;
    context.outcomes.lock().is_destroyed = true;
    context.arrived.wake_all();
    let _ = task.address_space.unmap(UserAddr::new(number), PAGE);
    Ok(0)
}

/// Makes transfers; how many were. An error is that of the first.
#[inline(never)]
pub fn io_submit(task: &mut Task, number: u64, count: i64, list: u64) -> SysResult {
    let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
    let context = task.process().contexts.find(number)?;
    let count = count.min(context.outcomes.lock().room());
    let list = UserPointer::<u64>::new(list);
    for index in 0..count {
        let submitted = list.add(index).read().and_then(|block| submit(task, &context, block));
        if let Err(error) = submitted {
            return if index > 0 { Ok(index) } else { Err(error) };
        }
    }
    Ok(count)
}

/// Makes the transfer that a block describes.
fn submit(task: &Task, context: &Context, address: u64) -> Result<(), Errno> {
    let block: IoControlBlock = UserPointer::new(address).read()?;
    if block.reserved != 0 || i64::try_from(block.bytes).is_err() {
        return Err(Errno::EINVAL);
    }
    context.reserve()?;
    match submit_reserved(task, &block, address) {
        Ok((result, told)) => {
            let result = register_of(result) as i64;
            context.settle(Some(IoEvent { data: block.data, block: address, result, second_result: 0 }));
            if let Some(counter) = told.as_ref().and_then(|file| file.object::<EventCounter>()) {
                counter.signal(1);
            }
            Ok(())
        }
        Err(error) => {
            context.settle(None);
            Err(error)
        }
    }
}

/// The outcome, and the event counter to be told. An error: what the block says makes no sense.
fn submit_reserved(
    task: &Task,
    block: &IoControlBlock,
    address: u64,
) -> Result<(SysResult, Option<Arc<OpenFile>>), Errno> {
    let file = task.usable_file(block.descriptor as i32)?;
    let told = if block.flags & TELLS != 0 {
        let counter = task.usable_file(block.told as i32)?;
        counter.object::<EventCounter>().ok_or(Errno::EINVAL)?;
        Some(counter)
    } else {
        None
    };
    UserPointer::<u32>::new(address.wrapping_add(KEY_AT)).write(&0)?;
    let result = match block.operation {
        PREAD | PREADV => read(task, &file, block)?,
        PWRITE | PWRITEV => write(task, &file, block)?,
        FSYNC | FDSYNC => synchronize(&file, block)?,
        _ => return Err(Errno::EINVAL),
    };
    // Who has submitted it is not asked to submit it again.
    Ok((result.map_err(|error| if error.is_restart() { Errno::EINTR } else { error }), told))
}

/// The memory of a transfer, which must be a place in a file.
fn ranges(block: &IoControlBlock, is_list: bool) -> Result<Vec<UserRange>, Errno> {
    let ranges = if is_list {
        let count = usize::try_from(block.bytes).map_err(|_| Errno::EINVAL)?;
        transfer::read_vectors(block.memory, count)?
    } else {
        let bytes = usize::try_from(block.bytes).map_err(|_| Errno::EINVAL)?;
        let (address, length) = transfer::user_range(block.memory, bytes)?;
        let mut one = fallible::try_vec(1).map_err(|_| Errno::ENOMEM)?;
        one.push(UserRange { address, length });
        one
    };
    let total: usize = ranges.iter().map(|range| range.length).sum();
    let end = block.position.checked_add_unsigned(total as u64);
    if block.position < 0 || end.is_none() { Err(Errno::EINVAL) } else { Ok(ranges) }
}

/// What has no position is read from and written to where it is.
fn position_in(file: &OpenFile, block: &IoControlBlock) -> Option<i64> {
    file.check_seekable().is_ok().then_some(block.position)
}

fn read(task: &Task, file: &Arc<OpenFile>, block: &IoControlBlock) -> Result<SysResult, Errno> {
    transfer::check_flags(block.transfer_flags)?;
    file.check_readable()?;
    if file.inode().kind == FileKind::Directory {
        return Err(Errno::EINVAL);
    }
    let ranges = ranges(block, block.operation == PREADV)?;
    let mut sink = Sink::user_list(&ranges);
    let result = match position_in(file, block) {
        Some(position) => file.read_at(position, &mut sink),
        None => file.read(&mut sink),
    };
    let result = result.map_err(Errno::from);
    task.thread.transfers.count_read(&result);
    Ok(result)
}

fn write(task: &Task, file: &Arc<OpenFile>, block: &IoControlBlock) -> Result<SysResult, Errno> {
    transfer::check_flags(block.transfer_flags)?;
    file.check_writable()?;
    let ranges = ranges(block, block.operation == PWRITEV)?;
    let written = transfer::write_ranges(task, file, &ranges, position_in(file, block));
    let result = transfer::make_last(file, written, block.transfer_flags);
    task.thread.transfers.count_written(&result);
    Ok(result)
}

fn synchronize(file: &OpenFile, block: &IoControlBlock) -> Result<SysResult, Errno> {
    if block.memory != 0 || block.position != 0 || block.bytes != 0 || block.transfer_flags != 0 {
        return Err(Errno::EINVAL);
    }
    match file.sync(block.operation == FDSYNC) {
        // There is nothing that could be written back.
        Err(vfs::Error::Invalid) => Err(Errno::EINVAL),
        result => Ok(result.map(|()| 0).map_err(Errno::from)),
    }
}

/// Takes a transfer back: none is under way when somebody can ask for that.
pub fn io_cancel(task: &mut Task, number: u64, block: u64, _out: u64) -> SysResult {
    if UserPointer::<u32>::new(block.wrapping_add(KEY_AT)).read()? == 0 {
        task.process().contexts.find(number)?;
    }
    Err(Errno::EINVAL)
}

fn events(process: &Process, number: u64, least: i64, most: i64, to: u64, timeout: Timeout) -> SysResult {
    let context = process.contexts.find(number)?;
    let (Ok(least), Ok(most)) = (usize::try_from(least), usize::try_from(most)) else {
        return Err(Errno::EINVAL);
    };
    if least > most {
        return Err(Errno::EINVAL);
    }
    context.take(least, most, UserPointer::new(to), timeout)
}

/// When waiting ends, if it does; 0: at once.
type Timeout = Option<u64>;

/// A time that makes no sense has passed.
fn timeout_of(pointer: u64) -> Result<Timeout, Errno> {
    let Some(pointer) = UserPointer::<Timespec>::new(pointer).given() else { return Ok(None) };
    Ok(Some(deadline_of_timespec(&pointer.read()?).unwrap_or(0)))
}

/// Takes outcomes, at least so many.
#[inline(never)]
pub fn io_getevents(task: &mut Task, number: u64, least: i64, most: i64, to: u64, timeout: u64) -> SysResult {
    let timeout = timeout_of(timeout)?;
    let result = events(task.process(), number, least, most, to, timeout);
    result.map_err(|error| if error.is_restart() { Errno::EINTR } else { error })
}

/// The same with another signal mask.
#[inline(never)]
pub fn io_pgetevents(
    task: &mut Task,
    number: u64,
    least: i64,
    most: i64,
    to: u64,
    timeout: u64,
    signals: u64,
) -> SysResult {
    let timeout = timeout_of(timeout)?;
    if let Some(pointer) = UserPointer::<[u64; 2]>::new(signals).given() {
        let [mask, bytes] = pointer.read()?;
        if let Some(mask) = UserPointer::<u64>::new(mask).given() {
            if bytes != 8 {
                return Err(Errno::EINVAL);
            }
            let mask = SignalSet::from_bits(mask.read()?);
            task.set_temporary_mask(mask);
        }
    }
    let result = events(task.process(), number, least, most, to, timeout);
    let result = result
        .map_err(|error| if error.is_restart() { not_restarted(vfs::Error::Interrupted) } else { error });
    task.end_temporary_mask(result)
}
