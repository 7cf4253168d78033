//! The process table: from a number to the thread, process, process group or session that bears it.
//!
//! One number can name all four at once (the leader of a session does), and it is free again only when none of them bears it any
//! more. The table is a tree (`numbers`) that look-ups read under RCU: no lock, and nothing is written but the
//! count of what the caller keeps. Functions named `look_at_…` do without that, too: they call with the object inside the read section,
//! where nothing may sleep. `ranges` says which number comes next.
//!
//! A walk over all processes goes from number to number in ascending order and holds nothing from one to the next: whoever lives all the time
//! is met once, and who comes or goes meanwhile is met once or not at all.
//!
//! # What a look-up promises
//! It finds a bearer that the number had at some time between call and return. It may have ended since: who keeps it asks its state
//! under its locks. After `remove_*` returned, no look-up that begins then finds it.

use alloc::sync::Arc;
use alloc::vec::Vec;

use memory::per_cpu::Counter;
use sync::rcu::{self, ArcSlot};
use sync::{Lazy, PerCpuCounter};

use super::group::{ProcessGroup, Session};
use super::numbers::{self, Bearers, LEAF, Piece};
use super::pid_space::{self, PidSpace};
use super::process::Process;
use super::ranges;
use super::thread::Thread;
use crate::errno::Errno;

pub(crate) use super::ranges::{PID_MAX_LEAST, last as last_pid, maximum, set_last, set_maximum};

/// A process or thread number.
pub type Pid = u32;

/// One above the greatest number there can be; it fits the owner field of a futex word.
pub const PID_MAX: Pid = 1 << 22;
/// The process that the kernel itself plays.
pub const INIT: Pid = 1;

static THREADS: Lazy<Counter> = Lazy::new(|| Counter::new(Counter::BATCH));
static FORKS: PerCpuCounter = PerCpuCounter::new();

/// What the look at the bearers of a number says. In a read section: the look must not sleep.
#[inline(always)]
fn look<R>(pid: Pid, look: impl FnOnce(&Bearers, &rcu::RcuReadGuard) -> Option<R>) -> Option<R> {
    let guard = rcu::read();
    numbers::leaf(pid, &guard).and_then(|leaf| look(leaf.bearers(pid), &guard))
}

/// Changes one kind of bearer of a number in use.
fn replace<T: Send + Sync + 'static>(
    pid: Pid,
    slot: impl FnOnce(&Bearers) -> &ArcSlot<T>,
    new: Option<&Arc<T>>,
) {
    let new = new.cloned();
    // The old bearer is dropped without locks.
    drop(numbers::change(pid, |bearers, _, _| slot(bearers).replace(new)));
}

/// Takes a bearer of one kind off its number, unless somebody else bears the number as this by now.
fn remove<T: Send + Sync + 'static>(pid: Pid, slot: impl FnOnce(&Bearers) -> &ArcSlot<T>, old: &T) {
    drop(numbers::change(pid, |bearers, _, _| {
        let slot = slot(bearers);
        let is_borne = slot.peek(&rcu::read()).is_some_and(|bearer| core::ptr::eq(bearer, old));
        is_borne.then(|| slot.replace(None))
    }));
}

/// A number nobody else bears; it is free again when dropped unless [`ReservedPid::keep`] was called.
#[derive(Debug)]
pub struct ReservedPid(Pid);

impl ReservedPid {
    /// The next free number. EAGAIN when there is none.
    pub fn allocate() -> Result<ReservedPid, Errno> {
        memory::fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
        ranges::reserve().map(ReservedPid)
    }

    /// This very number, if it is free (CLONE_SET_TID).
    pub fn claim(pid: Pid) -> Result<Option<ReservedPid>, Errno> {
        let bit = 1 << (pid % LEAF);
        let is_ours = numbers::with_leaf(pid, |_, state| {
            let is_free = state.used & bit == 0;
            if is_free {
                state.used |= bit;
                state.reserved |= bit;
            }
            is_free
        })?;
        Ok(is_ours.then(|| ReservedPid(pid)))
    }

    /// Gives it own numbers in a name space and those around it, innermost first the wanted ones.
    ///
    /// # Errors
    /// EEXIST, EINVAL, EAGAIN; ENOMEM, also for a name space that ends.
    pub(crate) fn nest(&self, space: &Arc<PidSpace>, wanted: &[Pid]) -> Result<(), Errno> {
        pid_space::give(self.0, space, wanted)?;
        numbers::change(self.0, |_, state, bit| state.nested |= bit);
        Ok(())
    }

    /// The number.
    pub fn number(&self) -> Pid {
        self.0
    }

    /// Ends the reservation: from now on the bearers keep the number.
    pub fn keep(self) {
        drop(self);
    }
}

impl Drop for ReservedPid {
    fn drop(&mut self) {
        numbers::change(self.0, |_, state, bit| state.reserved &= !bit);
    }
}

/// Makes a thread findable under its number, which must be reserved.
pub fn insert_thread(thread: &Arc<Thread>) {
    replace(thread.tid(), |bearers| &bearers.thread, Some(thread));
    THREADS.increment();
    FORKS.increment();
}

/// Makes a process findable.
pub fn insert_process(process: &Arc<Process>) {
    pid_space::joined(process.space());
    replace(process.pid(), |bearers| &bearers.process, Some(process));
}

/// Makes a process group findable.
pub fn insert_group(group: &Arc<ProcessGroup>) {
    replace(group.id(), |bearers| &bearers.group, Some(group));
}

/// Makes a session findable.
pub fn insert_session(session: &Arc<Session>) {
    replace(session.id(), |bearers| &bearers.session, Some(session));
}

/// The thread is no more. Without locks held, as the others that remove. If it was the leader, a thread that executes a program may
/// have its number by now: who executes waits until it is alone in its process, not until the others' numbers are free.
pub fn remove_thread(tid: Pid, thread: &Thread) {
    remove(tid, |bearers| &bearers.thread, thread);
    THREADS.decrement();
}

/// The process was waited for.
pub fn remove_process(pid: Pid) {
    replace(pid, |bearers| &bearers.process, None);
}

/// The last member left the group; the process with its number may have made a new one meanwhile.
pub fn remove_group(group: &ProcessGroup) {
    remove(group.id(), |bearers| &bearers.group, group);
}

/// The last group left the session.
pub fn remove_session(session: &Session) {
    remove(session.id(), |bearers| &bearers.session, session);
}

/// execve by a thread that is not the leader: it takes over the leader's number.
pub fn rename_thread(old: Pid, new: Pid, thread: &Arc<Thread>) {
    replace(new, |bearers| &bearers.thread, Some(thread));
    replace(old, |bearers| &bearers.thread, None);
}

/// The thread with this number.
#[inline(always)]
pub fn thread(tid: Pid) -> Option<Arc<Thread>> {
    look(tid, |bearers, guard| bearers.thread.get(guard))
}

/// The process with this number, zombies included.
pub fn process(pid: Pid) -> Option<Arc<Process>> {
    look(pid, |bearers, guard| bearers.process.get(guard))
}

/// Whether there is a process with this number.
pub fn has_process(pid: Pid) -> bool {
    look(pid, |bearers, _| (!bearers.process.is_empty()).then_some(())).is_some()
}

/// Whether there is a thread with this number.
pub fn has_thread(tid: Pid) -> bool {
    look(tid, |bearers, _| (!bearers.thread.is_empty()).then_some(())).is_some()
}

/// The process a number means where the manual allows a thread's number too.
pub fn process_of(pid: Pid) -> Option<Arc<Process>> {
    look(pid, |bearers, guard| {
        let of_thread = || bearers.thread.peek(guard).map(|thread| thread.process().clone());
        bearers.process.get(guard).or_else(of_thread)
    })
}

/// What a look at [`process_of`] this number says. The look must not sleep.
pub fn look_at_process_of<R>(pid: Pid, at: impl FnOnce(&Process) -> R) -> Option<R> {
    look(pid, |bearers, guard| {
        let of_thread = || bearers.thread.peek(guard).map(|thread| &**thread.process());
        bearers.process.peek(guard).or_else(of_thread).map(at)
    })
}

/// The process group with this number.
pub fn group(id: Pid) -> Option<Arc<ProcessGroup>> {
    look(id, |bearers, guard| bearers.group.get(guard))
}

/// The session with this number.
pub fn session(id: Pid) -> Option<Arc<Session>> {
    look(id, |bearers, guard| bearers.session.get(guard))
}

/// All processes, ordered by number. A process that starts or ends meanwhile may or may not be among them.
pub fn processes() -> Result<Vec<Arc<Process>>, Errno> {
    let mut found: Vec<Arc<Process>> = Vec::new();
    let mut from = 0;
    while let Some(process) = next_process(from) {
        from = process.pid() + 1;
        memory::fallible::try_push(&mut found, process).map_err(|_| Errno::ENOMEM)?;
    }
    Ok(found)
}

/// The process with the lowest number from `from` on, for listing.
pub fn next_process(from: Pid) -> Option<Arc<Process>> {
    let mut from = from;
    loop {
        let (pid, ()) = look_at_next_process(from, |_| ())?;
        // It may have ended meanwhile: then the next one is looked for.
        if let Some(process) = process(pid) {
            return Some(process);
        }
        from = pid + 1;
    }
}

/// The lowest number from `from` on that a process has, and what a look at the process says. The look must not sleep.
pub fn look_at_next_process<R>(from: Pid, mut at: impl FnMut(&Process) -> R) -> Option<(Pid, R)> {
    let mut from = from;
    loop {
        match numbers::look_in_branch(from, &mut at) {
            Piece::Found(pid, seen) => return Some((pid, seen)),
            Piece::NoneBefore(next) => from = next,
            Piece::End => return None,
        }
    }
}

/// Calls for each process, ordered by number, each in a read section of its own: `visit` must not sleep. Allocates nothing.
pub fn for_each_process(mut visit: impl FnMut(&Process)) {
    let mut from = 0;
    while let Some((pid, ())) = look_at_next_process(from, &mut visit) {
        from = pid + 1;
    }
}

/// Calls for the root and current directory of each thread (pivot_root moves those at the old root).
pub fn for_each_file_system_context(
    mut visit: impl FnMut(&vfs::FileSystemContext) -> Result<(), vfs::Error>,
) -> Result<(), Errno> {
    for process in processes()? {
        for thread in process.threads()? {
            if let Some(context) = thread.file_system() {
                visit(&context)?;
            }
        }
    }
    Ok(())
}

/// How many threads there are.
pub fn thread_count() -> u32 {
    THREADS.exact().max(0) as u32
}

/// More threads than there are, perhaps by a few dozen for each processor; looks at no other processor's count.
pub fn thread_count_at_most() -> u32 {
    (THREADS.approximate() + THREADS.error_max()).max(0) as u32
}

/// Page faults of processes that have ended.
static FAULTS: PerCpuCounter = PerCpuCounter::new();

/// Counts the page faults of a process that ends.
pub(crate) fn count_faults(faults: u64) {
    FAULTS.add(faults as i64);
}

/// How many page faults there were.
pub(crate) fn faults() -> u64 {
    let mut living = 0;
    for_each_process(|process| {
        if process.state() == super::process::State::Running {
            living += process.faults();
        }
    });
    FAULTS.sum() as u64 + living
}

/// How many threads were ever made.
pub fn forks() -> u32 {
    FORKS.sum() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_are_unique_and_come_back() {
        let reserved: Vec<ReservedPid> = (0..500).map(|_| ReservedPid::allocate().expect("room")).collect();
        let mut numbers: Vec<Pid> = reserved.iter().map(ReservedPid::number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 500);
        assert!(ReservedPid::claim(numbers[0]).expect("memory").is_none());
        drop(reserved);
        assert!(ReservedPid::claim(numbers[0]).expect("memory").is_some());
    }

    #[test]
    fn numbers_nobody_bears_are_not_found() {
        let reserved = ReservedPid::allocate().expect("room");
        assert!(process(reserved.number()).is_none());
        assert!(thread(reserved.number()).is_none());
        assert!(group(PID_MAX + 1).is_none());
    }
}
