//! select(2) and pselect6(2), by way of poll.

use machine::time::now_ns;
use smallvec::SmallVec;
use vfs::poll::PollEvents;

use super::poll::{deadline_of_timespec, requests, store_rest};
use crate::abi::{PselectMask, Timespec, Timeval};
use crate::errno::{Errno, SysResult};
use crate::process::limits::OPEN_FILES_MAX;
use crate::signal::set::SignalSet;
use crate::task::Task;
use crate::user_pointer::UserPointer;

/// Words of a set that need no allocation: enough for 256 descriptors. The sets lie on the kernel stack, of which a thread that waits
/// shall need one page only.
const INLINE_WORDS: usize = 4;
type Words = SmallVec<[u64; INLINE_WORDS]>;

/// What each of the three sets waits for, and what is reported in it.
const INTERESTS: [(PollEvents, PollEvents); 3] = [
    (
        PollEvents::INPUT.union(PollEvents::READ_BAND),
        PollEvents::INPUT.union(PollEvents::READ_BAND).union(PollEvents::HANG_UP).union(PollEvents::ERROR),
    ),
    (
        PollEvents::OUTPUT.union(PollEvents::WRITE_BAND),
        PollEvents::OUTPUT.union(PollEvents::WRITE_BAND).union(PollEvents::ERROR),
    ),
    (PollEvents::PRIORITY, PollEvents::PRIORITY),
];

struct Sets {
    pointers: [UserPointer<u64>; 3],
    words: [Words; 3],
    count: usize,
}

impl Sets {
    fn read(task: &Task, count: i32, pointers: [u64; 3]) -> Result<Sets, Errno> {
        let count = usize::try_from(count).map_err(|_| Errno::EINVAL)?;
        // Descriptors beyond the table are ignored, though POSIX says EBADF: see the manual page's section on bugs.
        let count = count.min(task.files.size()).min(OPEN_FILES_MAX as usize);
        let mut sets = Sets { pointers: pointers.map(UserPointer::new), words: Default::default(), count };
        for (pointer, words) in sets.pointers.iter().zip(&mut sets.words) {
            let length = count.div_ceil(64);
            words.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
            for at in 0..length {
                let word = if pointer.is_null() { 0 } else { pointer.add(at).read()? };
                let valid = (count - at * 64).min(64);
                words.push(if valid == 64 { word } else { word & ((1 << valid) - 1) });
            }
        }
        Ok(sets)
    }

    fn contains(&self, set: usize, descriptor: usize) -> bool {
        self.words[set][descriptor / 64] & (1 << (descriptor % 64)) != 0
    }

    fn interest(&self, descriptor: usize) -> PollEvents {
        let wanted = (0..3).filter(|&set| self.contains(set, descriptor));
        wanted.fold(PollEvents::empty(), |sum, set| sum | INTERESTS[set].0)
    }

    /// The descriptors in any of the sets.
    fn descriptors(&self) -> impl Iterator<Item = usize> {
        (0..self.count).filter(|&descriptor| !self.interest(descriptor).is_empty())
    }

    fn write(&self) -> Result<(), Errno> {
        for (pointer, words) in self.pointers.iter().zip(&self.words) {
            if !pointer.is_null() {
                pointer.write_slice(words)?;
            }
        }
        Ok(())
    }
}

#[inline(never)]
fn wait(task: &mut Task, count: i32, pointers: [u64; 3], deadline_ns: Option<u64>) -> SysResult {
    let mut sets = Sets::read(task, count, pointers)?;
    let waiter = task.poll_waiter()?;
    let mut list = requests(sets.descriptors().count())?;
    for descriptor in sets.descriptors() {
        let request = task.poll_request(descriptor as i32, sets.interest(descriptor));
        if request.file.is_none() {
            return Err(Errno::EBADF);
        }
        list.push(request);
    }
    vfs::poll::poll(&waiter, &mut list, deadline_ns).map_err(super::context::not_restarted)?;
    let mut found = 0;
    let mut answers = list.iter();
    for descriptor in 0..sets.count {
        if sets.interest(descriptor).is_empty() {
            continue;
        }
        let ready = answers.next().map_or(PollEvents::empty(), |request| request.ready);
        for (set, (_, reported)) in INTERESTS.iter().enumerate() {
            if !sets.contains(set, descriptor) {
                continue;
            }
            if ready.intersects(*reported) {
                found += 1;
            } else {
                sets.words[set][descriptor / 64] &= !(1 << (descriptor % 64));
            }
        }
    }
    sets.write()?;
    Ok(found)
}

/// Waits for files; the time left is stored.
pub fn select(task: &mut Task, count: i32, read: u64, write: u64, except: u64, timeout: u64) -> SysResult {
    let timeout = UserPointer::<Timeval>::new(timeout);
    let deadline_ns = match timeout.given() {
        None => None,
        Some(pointer) => {
            let time = pointer.read()?;
            // Microseconds beyond a second carry over, as on Linux.
            let seconds = u64::try_from(time.seconds).map_err(|_| Errno::EINVAL)?;
            let microseconds = u64::try_from(time.microseconds).map_err(|_| Errno::EINVAL)?;
            let ns = seconds.saturating_mul(1_000_000_000).saturating_add(microseconds.saturating_mul(1000));
            Some(if ns == 0 { 0 } else { now_ns().saturating_add(ns) })
        }
    };
    let result = wait(task, count, [read, write, except], deadline_ns);
    if let (Some(pointer), Some(deadline_ns)) = (timeout.given(), deadline_ns) {
        let _ = pointer.write(&Timeval::from_ns(deadline_ns.saturating_sub(now_ns())));
    }
    result
}

/// Waits for files with another signal mask; the time left is stored.
pub fn pselect6(
    task: &mut Task,
    count: i32,
    read: u64,
    write: u64,
    except: u64,
    timeout: u64,
    mask: u64,
) -> SysResult {
    let timeout = UserPointer::<Timespec>::new(timeout);
    let deadline_ns = match timeout.given() {
        None => None,
        Some(pointer) => Some(deadline_of_timespec(&pointer.read()?)?),
    };
    if let Some(pointer) = UserPointer::<PselectMask>::new(mask).given() {
        let argument = pointer.read()?;
        if let Some(set) = UserPointer::<u64>::new(argument.mask).given() {
            if argument.size != 8 {
                return Err(Errno::EINVAL);
            }
            let set = SignalSet::from_bits(set.read()?);
            task.set_temporary_mask(set);
        }
    }
    let result = wait(task, count, [read, write, except], deadline_ns);
    store_rest(timeout, deadline_ns);
    task.end_temporary_mask(result)
}
