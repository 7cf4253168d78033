//! The lock word behind all spin locks, four bytes: a queue for those who wait long, past which others may take it for a
//! moment.
//!
//! Free → held is one compare-exchange. Waiters form an MCS queue: each spins on a node of its own
//! CPU and is told by its predecessor, so a contended lock bounces one cache line per hand-over. The nodes live in a static per-CPU array, one per nesting level (a CPU can wait
//! at most once per level: thread, softirq, interrupt, and once more inside a machine check), so the
//! lock itself needs no room for them and a held lock owns no node.
//!
//! The word is three separate atomics, so that a release is a plain store:
//! `held` = 0 or 1; `tail` = 1 + index of the queue's last node, 0 when nobody waits; `overtakes` = how often the head of the
//! queue was overtaken, written by the holder only.
//!
//! Transitions:
//! - `lock`, nobody holds or waits: `held` 0 → 1 (fast path, one atomic operation).
//! - `lock`, otherwise: swap in our node as the tail; link behind the old tail and spin on our node
//!   until we are the head; spin until `held` 0 → 1 succeeds; then clear the tail (we were last) or
//!   tell our successor that it is the head.
//! - `unlock`: `held` = 0.
//!
//! A CPU that finds the lock held tries for a moment ([`BARGES_MAX`]) to take it past the queue, before it queues. A
//! virtual machine may have fewer host processors than CPUs: the head of the queue is then often not running when the lock
//! becomes free, and strict order would let everybody wait until the host runs it. So a newcomer may overtake the head, but
//! not for ever: who takes the lock past a queue counts that in `overtakes`, and once the count has reached
//! [`OVERTAKES_MAX`] nobody may do so until the head has had the lock. CPUs that looked before the limit was reached, or before there was a
//! queue, can still come in between, once each.
//!
//! So a CPU that waits in the queue has the lock after at most [`OVERTAKES_MAX`] + 2 × (CPUs − 1) acquisitions by others for itself and
//! for each CPU before it; nobody starves. What strictness costs where the head is not running, the others wait out once in
//! that many acquisitions.
//!
//! Preemption must be off from before `lock` until after `unlock`.
//!
//! `tests/models.rs` compiles this file against loom's atomics and tries all interleavings.

use core::sync::atomic::compiler_fence;
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU8, AtomicU16, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use machine::cpu;

use crate::CachePadded;

/// Nesting levels at which one CPU can wait for a lock: thread, softirq, hard interrupt, NMI or
/// machine check.
const LEVELS: usize = 4;

/// How often a CPU tries to take a held lock before it queues.
pub(crate) const BARGES_MAX: u32 = if cfg!(all(loom, test)) { 1 } else { 1000 };

/// How often the head of the queue is overtaken before the lock is kept for it: a lock that is taken every microsecond then makes
/// all wait for a head that the host does not run once in 200 µs at most.
pub const OVERTAKES_MAX: u8 = if cfg!(all(loom, test)) { 1 } else { 190 };
const _: () = assert!(OVERTAKES_MAX as usize + cpu::MAX_CPUS <= u8::MAX as usize, "the count does not wrap");

struct Node {
    /// 1 + index of the successor's node, 0 while there is none. Written by the successor.
    next: AtomicU16,
    /// 1 when we are the head of the queue. Written by the predecessor.
    head: AtomicU8,
}

#[cfg(not(all(loom, test)))]
impl Node {
    const fn new() -> Self {
        Self { next: AtomicU16::new(0), head: AtomicU8::new(0) }
    }
}

struct CpuNodes {
    /// Nodes in use by this CPU. Written by this CPU only; an interrupt that nests restores it.
    depth: AtomicU8,
    nodes: [Node; LEVELS],
}

#[cfg(not(all(loom, test)))]
static NODES: [CachePadded<CpuNodes>; cpu::MAX_CPUS] = [const {
    CachePadded::new(CpuNodes { depth: AtomicU8::new(0), nodes: [const { Node::new() }; LEVELS] })
}; cpu::MAX_CPUS];

#[cfg(all(loom, test))]
loom::lazy_static! {
    static ref NODES: [CachePadded<CpuNodes>; cpu::MAX_CPUS] = core::array::from_fn(|_| {
        let node = |_| Node { next: AtomicU16::new(0), head: AtomicU8::new(0) };
        CachePadded::new(CpuNodes { depth: AtomicU8::new(0), nodes: core::array::from_fn(node) })
    });
}

fn node_of_tail(tail: u16) -> &'static Node {
    let index = tail as usize - 1;
    &NODES[index / LEVELS].nodes[index % LEVELS]
}

/// A spin lock without data; see the module's theory.
#[derive(Debug, Default)]
pub struct QueueLock {
    held: AtomicU8,
    /// Written by the holder.
    overtakes: AtomicU8,
    tail: AtomicU16,
}

impl QueueLock {
    /// A free lock.
    #[cfg(not(all(loom, test)))]
    pub const fn new() -> Self {
        Self { held: AtomicU8::new(0), overtakes: AtomicU8::new(0), tail: AtomicU16::new(0) }
    }

    /// A free lock.
    #[cfg(all(loom, test))]
    pub fn new() -> Self {
        Self { held: AtomicU8::new(0), overtakes: AtomicU8::new(0), tail: AtomicU16::new(0) }
    }

    /// Takes the lock. Preemption must be off.
    #[inline(always)]
    pub fn lock(&self) {
        if !self.try_lock() {
            self.lock_queued();
        }
    }

    /// Takes the lock if it is free and nobody waits. Preemption must be off.
    #[inline(always)]
    pub fn try_lock(&self) -> bool {
        self.tail.load(Ordering::Relaxed) == 0 && self.take()
    }

    #[inline(always)]
    fn take(&self) -> bool {
        // Acquire: pairs with the Release in `unlock`.
        self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the lock that this CPU holds.
    #[inline(always)]
    pub fn unlock(&self) {
        debug_assert!(self.is_locked(), "unlock of a free spin lock");
        // Release: pairs with the Acquire of the next holder.
        self.held.store(0, Ordering::Release);
    }

    /// Whether somebody holds the lock; for assertions and statistics.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.held.load(Ordering::Relaxed) != 0
    }

    /// Takes the lock past the queue, if it is free and the head was not overtaken too often.
    fn barge(&self) -> bool {
        if self.overtakes.load(Ordering::Relaxed) >= OVERTAKES_MAX || self.is_locked() || !self.take() {
            return false;
        }
        if self.tail.load(Ordering::Relaxed) != 0 {
            self.overtakes.store(self.overtakes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
        true
    }

    /// Takes the lock after an attempt that failed. Preemption must be off.
    #[cold]
    #[inline(never)]
    pub(crate) fn lock_queued(&self) {
        for _ in 0..BARGES_MAX {
            if self.barge() {
                return;
            }
            machine::cpu::relax();
        }
        let cpu = cpu::current().index();
        let nodes = &NODES[cpu];
        let level = nodes.depth.load(Ordering::Relaxed) as usize;
        assert!(level < LEVELS, "a CPU waits for spin locks at more levels than there are contexts");
        nodes.depth.store(level as u8 + 1, Ordering::Relaxed);
        // An interrupt from here on uses the next level, and is gone before we continue.
        compiler_fence(Ordering::SeqCst);
        let node = &nodes.nodes[level];
        node.next.store(0, Ordering::Relaxed);
        node.head.store(0, Ordering::Relaxed);
        let ours = (cpu * LEVELS + level) as u16 + 1;

        // AcqRel: publishes our node's initial state and sees the predecessor's.
        let before = self.tail.swap(ours, Ordering::AcqRel);
        if before != 0 {
            // Release: pairs with the Acquire in `promote_successor`.
            node_of_tail(before).next.store(ours, Ordering::Release);
            while node.head.load(Ordering::Acquire) == 0 {
                machine::cpu::relax();
            }
        }
        while self.is_locked() || !self.take() {
            machine::cpu::relax();
        }
        let overtakes = self.overtakes.load(Ordering::Relaxed);
        assert!(
            usize::from(overtakes) < OVERTAKES_MAX as usize + cpu::MAX_CPUS,
            "the head was overtaken for ever"
        );
        self.overtakes.store(0, Ordering::Relaxed);
        if self.tail.compare_exchange(ours, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            promote_successor(node);
        }
        compiler_fence(Ordering::SeqCst);
        nodes.depth.store(level as u8, Ordering::Relaxed);
    }
}

/// Tells the next waiter that it is the head; it has swapped the tail but may not have linked
/// itself behind us yet.
fn promote_successor(node: &Node) {
    let mut next = node.next.load(Ordering::Acquire);
    while next == 0 {
        machine::cpu::relax();
        next = node.next.load(Ordering::Acquire);
    }
    node_of_tail(next).head.store(1, Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::Arc;

    /// Miri takes a thousand times as long.
    const ROUNDS: u64 = if cfg!(miri) { 20 } else { 5_000 };

    struct Shared {
        lock: QueueLock,
        value: UnsafeCell<u64>,
    }
    // SAFETY: the test touches `value` only while holding `lock`.
    unsafe impl Sync for Shared {}

    #[test]
    fn excludes_and_loses_no_increment_under_contention() {
        let shared = Arc::new(Shared { lock: QueueLock::new(), value: UnsafeCell::new(0) });
        let workers: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                std::thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        let _guard = machine::preempt::disable();
                        shared.lock.lock();
                        // SAFETY: the lock is held.
                        unsafe { *shared.value.get() += 1 };
                        shared.lock.unlock();
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        // SAFETY: all workers are done.
        assert_eq!(unsafe { *shared.value.get() }, 4 * ROUNDS);
        assert_eq!(shared.lock.tail.load(Ordering::Relaxed), 0, "the queue is empty again");
    }

    #[test]
    fn try_lock_fails_while_held() {
        let lock = QueueLock::new();
        let _guard = machine::preempt::disable();
        assert!(lock.try_lock());
        assert!(!lock.try_lock());
        lock.unlock();
        assert!(lock.try_lock());
        lock.unlock();
    }
}
