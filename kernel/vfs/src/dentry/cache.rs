//! How many entries are cached, and which ones go.
//!
//! New entries join a queue of the processor that entered them. When a processor's queue is over its share of the
//! limit, entering one looks at a few at the front: dead ones leave the queue, unused ones that were not referenced
//! since they were last looked at are evicted, the others go to the back (second chance). [`shrink`] does the same for
//! all processors when memory runs short.
//!
//! A queue holds weak references: it keeps no file alive, but the memory that a dead entry took. So each new entry also turns the
//! queue a little, and what died meanwhile leaves it: however many files come and go, a queue has no more dead entries than
//! about as many as live ones.

use alloc::collections::VecDeque;
use alloc::sync::{Arc, Weak};
use core::sync::atomic::{AtomicUsize, Ordering};

use sync::{Once, PerCpu, PerCpuCounter, SpinLock, rcu};

use super::entry::{Dentry, DentryFlags};
use crate::name::hash_name;

/// Entries a processor may have queued before it starts to look for unused ones.
static LIMIT_PER_CPU: AtomicUsize = AtomicUsize::new(16 * 1024);
/// Entries looked at for one that is added beyond the limit: more than one, so that the queue shrinks.
const SCAN_PER_INSERT: usize = 4;
/// Entries looked at for each one that is added, to let go of dead ones. With two, a turn of the queue takes half as many new
/// entries as it is long, so at most that many die unseen.
const TURN_PER_INSERT: usize = 2;
/// References to an unused entry: its parent's bucket, and ours while looking.
const REFERENCES_WHEN_UNUSED: usize = 2;

static ENTRIES: PerCpuCounter = PerCpuCounter::new();
static QUEUES: Once<PerCpu<SpinLock<VecDeque<Weak<Dentry>>>>> = Once::new();

fn queues() -> &'static PerCpu<SpinLock<VecDeque<Weak<Dentry>>>> {
    QUEUES.call_once(|| PerCpu::new(|| SpinLock::new(VecDeque::new())))
}

/// The number of entries in memory.
pub fn cached_entries() -> u64 {
    ENTRIES.sum().max(0) as u64
}

/// Sets how many unused entries may be cached altogether; called once the memory size is known.
pub fn set_limit(entries: usize) {
    // Relaxed: a number of its own.
    LIMIT_PER_CPU.store((entries / machine::cpu::count().max(1)).max(64), Ordering::Relaxed);
}

/// Notes a new entry in a parent's table.
pub(super) fn added(entry: &Arc<Dentry>) {
    ENTRIES.increment();
    // Any processor's queue will do; this one's is likely to be in its cache.
    let cpu = {
        let _pinned = machine::preempt::disable();
        machine::cpu::current()
    };
    let queue = queues().of(cpu);
    let mut over;
    // Freed when the lock has been dropped.
    let mut dead: [Option<Weak<Dentry>>; TURN_PER_INSERT] = [const { None }; TURN_PER_INSERT];
    {
        let mut entries = queue.lock();
        for place in &mut dead {
            match entries.pop_front() {
                Some(front) if front.strong_count() == 0 => *place = Some(front),
                // What was taken out leaves the room for it.
                Some(front) => entries.push_back(front),
                None => break,
            }
        }
        // Relaxed: a number of its own.
        over = entries.len().saturating_sub(LIMIT_PER_CPU.load(Ordering::Relaxed)).min(SCAN_PER_INSERT);
        // Without room the entry is cached unnoticed until its directory goes: harmless, and rare.
        if entries.try_reserve(1).is_ok() {
            entries.push_back(Arc::downgrade(entry));
        }
    }
    for _ in dead.into_iter().flatten() {
        ENTRIES.decrement();
    }
    while over > 0 {
        examine(queue);
        over -= 1;
    }
}

/// Looks at the front of a queue. Returns whether an entry's memory went; `None` when the queue is empty.
fn examine(queue: &SpinLock<VecDeque<Weak<Dentry>>>) -> Option<bool> {
    let front = queue.lock().pop_front()?;
    let Some(entry) = front.upgrade() else {
        ENTRIES.decrement();
        return Some(true);
    };
    let flags = entry.flags();
    if flags.contains(DentryFlags::UNHASHED) {
        // Whoever still uses it keeps it; the cache is done with it.
        ENTRIES.decrement();
        return Some(false);
    }
    let used = Arc::strong_count(&entry) > REFERENCES_WHEN_UNUSED;
    if used || flags.contains(DentryFlags::REFERENCED) || !entry.children.is_empty() {
        if !flags.contains(DentryFlags::REFERENCED) && entry.is_hot() {
            // The handle is among the references; without it the next look finds whether there are others.
            entry.cool();
        }
        entry.clear_flags(DentryFlags::REFERENCED);
        let mut entries = queue.lock();
        if entries.try_reserve(1).is_ok() {
            entries.push_back(front);
        }
        return Some(false);
    }
    if !entry.evict(REFERENCES_WHEN_UNUSED) {
        let mut entries = queue.lock();
        if entries.try_reserve(1).is_ok() {
            entries.push_back(front);
        }
        return Some(false);
    }
    ENTRIES.decrement();
    Some(true)
}

/// Lets go of up to `wanted` dead and unused entries; returns how many went. Called when memory runs short.
pub fn shrink(wanted: usize) -> usize {
    let mut evicted = 0;
    for queue in queues().iter() {
        // Twice around: the first time takes the second chance away.
        let mut remaining = queue.lock().len().saturating_mul(2);
        while remaining > 0 && evicted < wanted {
            match examine(queue) {
                Some(true) => evicted += 1,
                Some(false) => {}
                None => break,
            }
            remaining -= 1;
        }
    }
    evicted
}

/// Entries looked at in one hold of a queue's lock.
const SWEEP: usize = 32;

/// Takes entries that nobody has any longer out of a queue: their memory is kept by the queue's weak references. Returns how many
/// there were. It looks at all of them, however few of the first ones are dead: the dead may all be at the end.
fn drop_dead<T>(queue: &SpinLock<VecDeque<Weak<T>>>) -> usize {
    let mut remaining = queue.lock().len();
    let mut dropped = 0;
    while remaining > 0 {
        let mut dead = [const { None }; SWEEP];
        let mut count = 0;
        {
            let mut entries = queue.lock();
            for _ in 0..SWEEP.min(remaining) {
                match entries.pop_front() {
                    Some(front) if front.strong_count() == 0 => {
                        dead[count] = Some(front);
                        count += 1;
                    }
                    // What was taken out leaves the room for it.
                    Some(front) => entries.push_back(front),
                    None => break,
                }
            }
        }
        dropped += count;
        remaining = remaining.saturating_sub(SWEEP);
    }
    let mut entries = queue.lock();
    if entries.len() < entries.capacity() / 4 {
        let mut smaller = VecDeque::new();
        if smaller.try_reserve(entries.len() * 2).is_ok() {
            smaller.extend(entries.drain(..));
            *entries = smaller;
        }
    }
    dropped
}

/// The entry cache, as memory reclaim sees it.
pub(crate) struct EntryCache;

/// Bytes that an evicted entry is taken to free: itself, its place and its share of a bucket.
const ENTRY_BYTES: usize = 256;

impl memory::reclaim::Reclaimer for EntryCache {
    fn name(&self) -> &'static str {
        "directory entries"
    }

    fn tidy(&self) {
        for queue in queues().iter() {
            (0..drop_dead(queue)).for_each(|_| ENTRIES.decrement());
        }
    }

    fn reclaim(&self, frames: usize) -> usize {
        const PER_FRAME: usize = machine::address::PAGE_SIZE / ENTRY_BYTES;
        shrink(frames.saturating_mul(PER_FRAME)) / PER_FRAME
    }
}

/// Forgets what is cached of a name whose object is gone for good (the directory of a process that ended), and all that is
/// cached below. Whoever uses an entry of it keeps that one.
pub fn forget_child(parent: &Arc<Dentry>, name: &[u8]) {
    let child = {
        let guard = rcu::read();
        parent.cached_child(name, hash_name(name), &guard).cloned()
    };
    if let Some(child) = child {
        forget_tree(&child);
        child.unhash();
    }
}

/// Takes the cached tree under `root` apart, so that no entry refers to another any longer. Called when no path leads
/// into it any more. Descends and climbs with one reference at a time: no stack, no allocation.
pub fn forget_tree(root: &Arc<Dentry>) {
    let mut current = root.clone();
    loop {
        let child = {
            let guard = rcu::read();
            current.children.any(&guard)
        };
        match child {
            Some(child) => current = child,
            None => {
                current.children.clear();
                if Arc::ptr_eq(&current, root) {
                    current.set_flags(DentryFlags::FORGOTTEN);
                    current.cool();
                    return;
                }
                let parent = current.parent();
                current.unhash();
                match parent {
                    Some(parent) => current = parent,
                    None => return,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_finds_the_dead_behind_many_living() {
        const LIVING: usize = 10 * SWEEP;
        let living: Vec<Arc<usize>> = (0..LIVING).map(Arc::new).collect();
        let dead = (0..1000).map(Arc::new).map(|entry| Arc::downgrade(&entry));
        let queue = SpinLock::new(living.iter().map(Arc::downgrade).chain(dead).collect::<VecDeque<_>>());
        assert_eq!(drop_dead(&queue), 1000);
        let left: Vec<usize> = queue.lock().iter().map(|entry| *entry.upgrade().expect("living")).collect();
        assert_eq!(left, (0..LIVING).collect::<Vec<_>>());
    }
}
