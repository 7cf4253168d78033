//! Futexes with priority inheritance: FUTEX_LOCK_PI and its family.
//!
//! # The word
//! 0: free. Else the owner's thread number, and two flags: WAITERS, somebody waits in the kernel, so the owner must unlock there; OWNER_DIED, the
//! last owner ended without unlocking. Without contention programs take and free the lock by compare-and-exchange alone, and the kernel knows
//! nothing of it.
//!
//! # States of a lock in the kernel
//! | state | begins | ends |
//! |---|---|---|
//! | unknown: nobody waits | | `FUTEX_LOCK_PI` finds an owner in the word: *waited for* |
//! | waited for: has an owner and a queue | | `FUTEX_UNLOCK_PI` passes it on to the first; the last one that waits gives up |
//! | left: its owner ended, the first of the queue has it, the word does not say so yet | [`end()`] | that one, in its own memory, writes the word |
//!
//! Passing on is one step under the locks: the word gets the new owner's number, the queue loses its first, and that thread is woken owning the
//! lock. Nobody can overtake it, and a waiter that times out at the same moment finds that it has the lock, or that it does not. When an
//! owner ends, it may not have the word mapped any more, so the next owner writes it.
//!
//! What the owners are lent follows from the queues: [`graph`] has that theory.
//!
//! # Locks
//! The graph is one structure under one spin lock. It is taken only where threads meet in the kernel: for a lock that has an owner already, to unlock
//! one that is waited for, by a thread that ends or has its policy changed while it is in the graph. The alternative, a lock for each futex and each
//! thread, must take them along a chain in an order that no order of locks allows, and so try, let go and begin again; where chains are short that
//! costs more than it gains. Order: the graph, a bucket of plain futexes, a thread's `stays`, a run queue. Words are read and changed with the graph
//! locked, where no page can be brought in: what finds its page missing lets go of all, brings it in and begins again.
//!
//! Plain futexes have nothing to do with all this but for two looks: one that wakes nobody looks whether anybody waits for a lock at all, and threads
//! that FUTEX_WAIT_REQUEUE_PI has put into their queues have no bits there that FUTEX_WAKE could match.

mod arena;
mod end;
mod graph;
mod lock;
mod requeue;
#[cfg(test)]
mod tests;
mod word;

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use sched::{Urgency, WakeBatch};
use sync::{SpinLock, SpinLockGuard};

use super::key::Key;
use super::queue::Waiter;
use crate::process::thread::Thread;
use graph::{Graph, LockKey, Party, Refusal};

pub(crate) use end::{close, end};
pub(super) use lock::{lock, try_lock, unlock};
pub(super) use requeue::{requeue, wait_requeue};

/// A thread that can't own or wait for locks any more: it has let go of those that it had.
const CLOSED: u32 = u32::MAX;

/// A thread with its place in the graph.
#[derive(Clone)]
struct Contender {
    thread: Arc<Thread>,
    /// What it sleeps with; `None` for one that has not waited.
    waiter: Option<Arc<Waiter>>,
}

impl Party for Contender {
    fn own_urgency(&self) -> Urgency {
        self.thread.kernel_thread().map_or(Urgency::LEAST, |kernel| kernel.own_urgency())
    }

    fn lend(&self, urgency: Urgency) {
        if let Some(kernel) = self.thread.kernel_thread() {
            kernel.lend(urgency);
        }
    }

    fn claim(&self, number: u32) -> bool {
        // Acquire: pairs with `close`.
        let claimed =
            self.thread.inheritance.compare_exchange(0, number, Ordering::Acquire, Ordering::Acquire);
        // Before the look at its urgency; pairs with the fence in `urgency_changed`.
        fence(Ordering::SeqCst);
        claimed.is_ok()
    }

    fn release(&self) {
        self.thread.inheritance.store(0, Ordering::Relaxed);
    }

    fn number(&self) -> u32 {
        match self.thread.inheritance.load(Ordering::Relaxed) {
            CLOSED => 0,
            number => number,
        }
    }

    fn begin_to_wait(&mut self, as_given: &Self) {
        self.waiter.clone_from(&as_given.waiter);
    }
}

impl LockKey for Key {
    fn spread(&self) -> usize {
        self.hash()
    }
}

static GRAPH: SpinLock<Graph<Key, Contender>> = SpinLock::named("priority inheritance", Graph::new());
/// Threads that wait. Written with the graph locked.
static WAITING: AtomicU32 = AtomicU32::new(0);

/// The graph, locked. Threads that are woken meanwhile run when it is free again.
struct Locked {
    // In the order in which they are let go of.
    graph: SpinLockGuard<'static, Graph<Key, Contender>>,
    _batch: WakeBatch,
    /// An owner that was looked up: the last reference to a thread must not go under a lock.
    kept: Option<Contender>,
}

impl Locked {
    fn take() -> Locked {
        let _batch = WakeBatch::begin();
        Locked { graph: GRAPH.lock(), _batch, kept: None }
    }

    fn wait(&mut self, key: Key, owner: &Contender, waiter: &Contender) -> Result<(), Refusal> {
        if let Some(waiter) = &waiter.waiter {
            waiter.begin();
        }
        self.graph.wait(key, owner, waiter)?;
        WAITING.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Wakes who has got a lock.
    fn grant(contender: &Contender, by_death: bool) {
        if let Some(waiter) = &contender.waiter {
            waiter.grant(by_death);
        }
    }

    /// Gives a lock to the first that waits for it; returns whether there was one.
    fn pass_on(&mut self, lock: graph::LockIndex, by_death: bool) -> bool {
        let Some(next) = self.graph.pass_on(lock, by_death) else { return false };
        WAITING.fetch_sub(1, Ordering::Relaxed);
        Self::grant(&next, by_death);
        true
    }

    /// Ends a wait without the lock. False if it has been granted, or there was none.
    fn withdraw(&mut self, contender: &Contender) -> bool {
        let withdrawn = self.graph.withdraw(contender);
        if withdrawn {
            WAITING.fetch_sub(1, Ordering::Relaxed);
        }
        withdrawn
    }
}

/// Whether threads wait for the lock of this key: what wakes plain futexes may not be used on it.
pub(super) fn is_waited_for(key: &Key) -> bool {
    // Relaxed: a look that comes too early finds nobody, as if it were made before the wait.
    WAITING.load(Ordering::Relaxed) != 0 && Locked::take().graph.find(key).is_some()
}

/// The policy or nice value of a thread has changed: whom it waits for competes accordingly.
pub(crate) fn urgency_changed(thread: &Arc<Thread>) {
    // The change is before the look; pairs with the fence in `set_number`.
    fence(Ordering::SeqCst);
    if !matches!(thread.inheritance.load(Ordering::Relaxed), 0 | CLOSED) {
        let contender = Contender { thread: thread.clone(), waiter: None };
        Locked::take().graph.urgency_changed(&contender);
    }
}
