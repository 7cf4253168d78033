//! The process table: from a number to the thread, process, process group or session that bears it.
//!
//! One number can name all four at once (the leader of a session does), and it is free again only when none of them bears it any
//! more. The table is split into `SHARDS` shards by number, each with its own lock held for one look-up or change, so that
//! forks and look-ups on different CPUs seldom meet; there is no other lock and no separate bitmap: a number is free when its
//! shard has no entry for it. Numbers are given out in ascending order and wrap below [`PID_MAX`] (2^22, so that a number fits
//! the owner field of a futex word), starting again at `WRAP_START` so that early daemons keep their numbers to themselves.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry as MapEntry;
use sync::SpinLock;

use super::group::{ProcessGroup, Session};
use super::process::Process;
use super::thread::Thread;
use crate::errno::Errno;

/// A process or thread number.
pub type Pid = u32;

/// One above the greatest number.
pub const PID_MAX: Pid = 1 << 22;
/// Where numbers start again after the greatest.
const WRAP_START: Pid = 300;
const SHARDS: usize = 64;
/// The process that the kernel itself plays.
pub const INIT: Pid = 1;

/// Who bears a number.
#[derive(Default, Clone)]
struct Entry {
    thread: Option<Arc<Thread>>,
    process: Option<Arc<Process>>,
    group: Option<Arc<ProcessGroup>>,
    session: Option<Arc<Session>>,
    // Given out, but not yet borne.
    reserved: bool,
}

impl Entry {
    fn is_free(&self) -> bool {
        !self.reserved
            && self.thread.is_none()
            && self.process.is_none()
            && self.group.is_none()
            && self.session.is_none()
    }
}

type Shard = SpinLock<Option<HashMap<Pid, Entry>>>;

static TABLE: [Shard; SHARDS] = [const { SpinLock::new(None) }; SHARDS];
// Relaxed: only spreads numbers; the shard's lock decides who gets one.
static NEXT: AtomicU32 = AtomicU32::new(INIT);
static THREADS: AtomicU32 = AtomicU32::new(0);
static FORKS: AtomicU32 = AtomicU32::new(0);
static LAST: AtomicU32 = AtomicU32::new(0);

fn shard(pid: Pid) -> &'static Shard {
    &TABLE[pid as usize % SHARDS]
}

fn with_entry<T>(pid: Pid, read: impl FnOnce(&Entry) -> Option<T>) -> Option<T> {
    let shard = shard(pid).lock();
    shard.as_ref().and_then(|map| map.get(&pid)).and_then(read)
}

/// Changes the entry of a number in use and frees the number when nobody bears it any more.
fn change(pid: Pid, edit: impl FnOnce(&mut Entry)) {
    let mut dropped = Entry::default();
    let mut emptied = None;
    let mut shard = shard(pid).lock();
    if let Some(map) = shard.as_mut()
        && let MapEntry::Occupied(mut entry) = map.entry(pid)
    {
        // The old bearers are dropped after the lock: their destructors may be long.
        dropped = entry.get().clone();
        edit(entry.get_mut());
        if entry.get().is_free() {
            entry.remove();
            emptied = shrink(map);
        }
    }
    drop(shard);
    drop((dropped, emptied));
}

/// Entries that a shard always keeps the room for.
const KEPT: usize = 28;

/// Moves a shard that holds little of what it held once into less memory; returns the old one, to be freed without the lock.
/// It is moved once for at least three times as many entries that went.
fn shrink<V>(map: &mut HashMap<Pid, V>) -> Option<HashMap<Pid, V>> {
    if map.capacity() <= KEPT || map.len() > map.capacity() / 8 {
        return None;
    }
    let mut smaller = HashMap::new();
    // Without memory for it the large one goes on serving.
    smaller.try_reserve(map.len() * 2).ok()?;
    smaller.extend(map.drain());
    Some(core::mem::replace(map, smaller))
}

/// A number nobody else bears; it is free again when dropped unless [`ReservedPid::keep`] was called.
#[derive(Debug)]
pub struct ReservedPid(Pid);

impl ReservedPid {
    /// The next free number. EAGAIN when there is none.
    pub fn allocate() -> Result<ReservedPid, Errno> {
        for _ in 0..PID_MAX {
            let mut pid = NEXT.fetch_add(1, Ordering::Relaxed);
            if pid >= PID_MAX {
                // Several CPUs may come here at once; each tries to put the counter back.
                let _ = NEXT.compare_exchange(pid + 1, WRAP_START, Ordering::Relaxed, Ordering::Relaxed);
                pid = WRAP_START + pid % (PID_MAX - WRAP_START);
            }
            if let Some(reserved) = Self::claim(pid)? {
                LAST.store(pid, Ordering::Relaxed);
                return Ok(reserved);
            }
        }
        Err(Errno::EAGAIN)
    }

    /// This very number, if it is free (CLONE_SET_TID).
    pub fn claim(pid: Pid) -> Result<Option<ReservedPid>, Errno> {
        let mut shard = shard(pid).lock();
        let map = shard.get_or_insert_with(HashMap::new);
        memory::fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
        map.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        match map.entry(pid) {
            MapEntry::Occupied(_) => Ok(None),
            MapEntry::Vacant(slot) => {
                slot.insert(Entry { reserved: true, ..Entry::default() });
                Ok(Some(ReservedPid(pid)))
            }
        }
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
        change(self.0, |entry| entry.reserved = false);
    }
}

/// Makes a thread findable under its number, which must be reserved.
pub fn insert_thread(thread: &Arc<Thread>) {
    change(thread.tid(), |entry| entry.thread = Some(thread.clone()));
    THREADS.fetch_add(1, Ordering::Relaxed);
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Makes a process findable.
pub fn insert_process(process: &Arc<Process>) {
    change(process.pid(), |entry| entry.process = Some(process.clone()));
}

/// Makes a process group findable.
pub fn insert_group(group: &Arc<ProcessGroup>) {
    change(group.id(), |entry| entry.group = Some(group.clone()));
}

/// Makes a session findable.
pub fn insert_session(session: &Arc<Session>) {
    change(session.id(), |entry| entry.session = Some(session.clone()));
}

/// The thread is no more.
pub fn remove_thread(tid: Pid) {
    change(tid, |entry| entry.thread = None);
    THREADS.fetch_sub(1, Ordering::Relaxed);
}

/// The process was waited for.
pub fn remove_process(pid: Pid) {
    change(pid, |entry| entry.process = None);
}

/// The last member left the group.
pub fn remove_group(id: Pid) {
    change(id, |entry| entry.group = None);
}

/// The last group left the session.
pub fn remove_session(id: Pid) {
    change(id, |entry| entry.session = None);
}

/// execve by a thread that is not the leader: it takes over the leader's number.
pub fn rename_thread(old: Pid, new: Pid, thread: &Arc<Thread>) {
    change(new, |entry| entry.thread = Some(thread.clone()));
    change(old, |entry| entry.thread = None);
}

/// The thread with this number.
pub fn thread(tid: Pid) -> Option<Arc<Thread>> {
    with_entry(tid, |entry| entry.thread.clone())
}

/// The process with this number, zombies included.
pub fn process(pid: Pid) -> Option<Arc<Process>> {
    with_entry(pid, |entry| entry.process.clone())
}

/// The process a number means where the manual allows a thread's number too.
pub fn process_of(pid: Pid) -> Option<Arc<Process>> {
    with_entry(pid, |entry| {
        entry.process.clone().or_else(|| entry.thread.as_ref().map(|thread| thread.process().clone()))
    })
}

/// The process group with this number.
pub fn group(id: Pid) -> Option<Arc<ProcessGroup>> {
    with_entry(id, |entry| entry.group.clone())
}

/// The session with this number.
pub fn session(id: Pid) -> Option<Arc<Session>> {
    with_entry(id, |entry| entry.session.clone())
}

/// All processes, ordered by number. A process that starts or ends meanwhile may or may not be among them.
pub fn processes() -> Result<Vec<Arc<Process>>, Errno> {
    let mut found: Vec<Arc<Process>> = Vec::new();
    for shard in &TABLE {
        loop {
            // Reserve outside the lock and look again whether it suffices.
            let wanted = shard.lock().as_ref().map_or(0, HashMap::len);
            memory::fallible::try_reserve(&mut found, wanted).map_err(|_| Errno::ENOMEM)?;
            let room = found.capacity() - found.len();
            let shard = shard.lock();
            let Some(map) = shard.as_ref() else { break };
            if map.len() <= room {
                found.extend(map.values().filter_map(|entry| entry.process.clone()));
                break;
            }
        }
    }
    found.sort_unstable_by_key(|process| process.pid());
    Ok(found)
}

/// Numbers that are tried one by one before the whole table is searched.
const NEAR: Pid = 64;

/// The process with the lowest number from `from` on, for listing. Neighbours are mostly close: a few look-ups then find them.
pub fn next_process(from: Pid) -> Option<Arc<Process>> {
    if let Some(near) = (from..from.saturating_add(NEAR)).find_map(process) {
        return Some(near);
    }
    let mut from = from;
    loop {
        let mut lowest: Option<Pid> = None;
        for_each_process(|process| {
            let pid = process.pid();
            if pid >= from && lowest.is_none_or(|lowest| pid < lowest) {
                lowest = Some(pid);
            }
        });
        // It may have ended meanwhile: then the next one is looked for.
        match process(lowest?) {
            Some(found) => return Some(found),
            None => from = lowest? + 1,
        }
    }
}

/// Calls for each process with its shard locked: `visit` must not sleep, send signals or look into the table.
pub fn for_each_process(mut visit: impl FnMut(&Arc<Process>)) {
    for shard in &TABLE {
        let shard = shard.lock();
        if let Some(map) = shard.as_ref() {
            for process in map.values().filter_map(|entry| entry.process.as_ref()) {
                visit(process);
            }
        }
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
    THREADS.load(Ordering::Relaxed)
}

/// How many threads were ever made.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// The number given out last, as /proc/loadavg shows it.
pub fn last_pid() -> Pid {
    LAST.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_that_was_large_once_gives_its_memory_back() {
        let mut map: HashMap<Pid, u32> = (0..5000).map(|pid| (pid, pid)).collect();
        for pid in 3..5000 {
            map.remove(&pid);
            shrink(&mut map);
        }
        assert!(map.capacity() <= KEPT, "room for {} is kept for 3", map.capacity());
        assert!((0..3).all(|pid| map.get(&pid) == Some(&pid)));
    }

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
