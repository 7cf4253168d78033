//! select(2) and pselect6(2), by way of poll.

use machine::time::now_ns;
use smallvec::SmallVec;
use vfs::poll::PollEvents;
use zerocopy::IntoBytes;

use super::poll::{deadline_of_timespec, requests, store_rest};
use crate::abi::{PselectMask, Timespec, Timeval};
use crate::errno::{Errno, SysResult};
use crate::process::limits::OPEN_FILES_MAX;
use crate::signal::set::SignalSet;
use crate::task::Task;
use crate::user_pointer::{UserPointer, read_bytes};

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
        let length = count.div_ceil(64);
        for (pointer, words) in sets.pointers.iter().zip(&mut sets.words) {
            if pointer.is_null() {
                continue;
            }
            words.try_reserve_exact(length).map_err(|_| Errno::ENOMEM)?;
            words.resize(length, 0);
            read_bytes(pointer.address(), words.as_mut_bytes())?;
            let valid = count % 64;
            if valid > 0
                && let Some(last) = words.last_mut()
            {
                *last &= (1 << valid) - 1;
            }
        }
        Ok(sets)
    }

    /// The bits of 64 descriptors in each of the sets.
    fn bits(&self, at: usize) -> [u64; 3] {
        self.words.each_ref().map(|words| words.get(at).copied().unwrap_or(0))
    }

    /// The descriptors in any of the sets, and what each is asked for.
    fn interests(&self) -> impl Iterator<Item = (usize, PollEvents)> {
        (0..self.count.div_ceil(64)).flat_map(|at| {
            let bits = self.bits(at);
            ones(bits[0] | bits[1] | bits[2]).map(move |bit| (at * 64 + bit, interest(&bits, bit)))
        })
    }

    /// Replaces the sets by the answers, which `answer` gives for the descriptors in ascending order, from the first 64
    /// descriptors on of which one is ready. Returns the number of bits in the answers; without any the sets are as they were.
    fn replace(
        &mut self,
        mut answer: impl FnMut(usize, PollEvents) -> Result<PollEvents, Errno>,
    ) -> Result<usize, Errno> {
        let mut found = 0;
        for at in 0..self.count.div_ceil(64) {
            let bits = self.bits(at);
            let mut answers = [0; 3];
            let mut here = 0;
            for bit in ones(bits[0] | bits[1] | bits[2]) {
                let ready = answer(at * 64 + bit, interest(&bits, bit))?;
                for (set, (_, reported)) in INTERESTS.iter().enumerate() {
                    if bits[set] & (1 << bit) != 0 && ready.intersects(*reported) {
                        answers[set] |= 1 << bit;
                        here += 1;
                    }
                }
            }
            if here > 0 && found == 0 {
                self.words.iter_mut().for_each(|words| words.iter_mut().take(at).for_each(|word| *word = 0));
            }
            found += here;
            if found > 0 {
                for (words, answer) in self.words.iter_mut().zip(answers) {
                    words.get_mut(at).into_iter().for_each(|word| *word = answer);
                }
            }
        }
        Ok(found)
    }

    fn clear(&mut self) {
        self.words.iter_mut().for_each(|words| words.fill(0));
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

/// The numbers of the bits that are set.
fn ones(mut word: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let bit = word.trailing_zeros() as usize;
        (word != 0).then(|| {
            word &= word - 1;
            bit
        })
    })
}

/// What the file of one of 64 descriptors is asked for.
#[inline]
fn interest(bits: &[u64; 3], bit: usize) -> PollEvents {
    let mut events = PollEvents::empty();
    for (word, (asked, _)) in bits.iter().zip(&INTERESTS) {
        if word & (1 << bit) != 0 {
            events |= *asked;
        }
    }
    events
}

/// Looks once without leaving anything behind, and waits only if nothing is ready (see [`super::poll`]).
#[inline(never)]
fn wait(task: &mut Task, count: i32, pointers: [u64; 3], deadline_ns: Option<u64>) -> SysResult {
    let mut sets = Sets::read(task, count, pointers)?;
    let mut found = sets.replace(|descriptor, events| task.look(descriptor as i32, events))?;
    if found == 0 {
        if deadline_ns != Some(0) {
            found = wait_for_sets(task, &mut sets, deadline_ns)?;
        }
        if found == 0 {
            sets.clear();
        }
    }
    sets.write()?;
    Ok(found)
}

#[inline(never)]
fn wait_for_sets(task: &mut Task, sets: &mut Sets, deadline_ns: Option<u64>) -> SysResult {
    let waiter = task.poll_waiter()?;
    let mut list = requests(sets.interests().count())?;
    for (descriptor, events) in sets.interests() {
        let request = task.poll_request(descriptor as i32, events);
        if request.file.is_none() {
            return Err(Errno::EBADF);
        }
        list.push(request);
    }
    vfs::poll::poll(&waiter, &mut list, deadline_ns).map_err(super::context::not_restarted)?;
    let mut answers = list.iter();
    sets.replace(|_, _| Ok(answers.next().map_or(PollEvents::empty(), |request| request.ready)))
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
