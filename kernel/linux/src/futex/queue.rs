//! Who waits on which futex: a hash table of queues.
//!
//! A waiter is in at most one queue, that of the bucket its `bucket` field names; both change under the bucket's lock
//! (of both buckets, in order of their index, for a requeue). Who takes a waiter out of its queue to wake it sets `woken` first and
//! then wakes the thread; the waiter never touches the queue again. A waiter that gives up (signal, timeout) takes itself out;
//! if it finds itself gone it was woken and reports success. Other CPUs are interrupted only after the bucket is unlocked
//! ([`WakeBatch`]): who is woken often wants it at once.

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sched::{ThreadRef, WakeBatch};
use sync::{SpinLock, SpinLockGuard};

use super::key::Key;
use crate::errno::Errno;

/// Buckets of the table: several for each of the 64 CPUs there can be.
const BUCKETS: usize = 256;
/// The bits of a thread that waits to be moved to a lock with priority inheritance: none, so that nothing that wakes matches them.
pub(super) const NO_BITS: u32 = 0;

/// A thread that waits.
pub struct Waiter {
    thread: ThreadRef,
    woken: AtomicBool,
    bucket: AtomicUsize,
    /// It was woken owning a lock whose last owner died. Written before `woken`.
    owner_died: AtomicBool,
    /// The lock that it wants to be moved to, while its entry has [`NO_BITS`].
    target: SpinLock<Option<Key>>,
}

impl Waiter {
    /// A waiter for the running thread.
    pub fn new() -> Result<Arc<Waiter>, Errno> {
        let waiter = Waiter {
            thread: sched::current().to_ref(),
            woken: AtomicBool::new(false),
            bucket: AtomicUsize::new(0),
            owner_died: AtomicBool::new(false),
            target: SpinLock::named("lock to be moved to", None),
        };
        memory::fallible::try_arc(waiter).map_err(|_| Errno::ENOMEM)
    }

    /// Whether it was woken since it was queued.
    pub fn is_woken(&self) -> bool {
        // Acquire: pairs with the Release in wake.
        self.woken.load(Ordering::Acquire)
    }

    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.wake();
    }

    /// The thread that waits.
    pub(super) fn thread(&self) -> &ThreadRef {
        &self.thread
    }

    /// It is about to wait for a lock.
    pub(super) fn begin(&self) {
        self.woken.store(false, Ordering::Relaxed);
    }

    /// Wakes it: it has the lock.
    pub(super) fn grant(&self, owner_died: bool) {
        self.owner_died.store(owner_died, Ordering::Relaxed);
        self.wake();
    }

    /// Whether the lock that it has was a dead thread's; once it is woken.
    pub(super) fn owner_died(&self) -> bool {
        self.owner_died.load(Ordering::Relaxed)
    }

    /// Says to which lock it wants to be moved.
    pub(super) fn set_target(&self, target: Key) {
        *self.target.lock() = Some(target);
    }
}

struct Entry {
    key: Key,
    bitset: u32,
    waiter: Arc<Waiter>,
}

/// Queue of one bucket.
pub(super) struct Bucket {
    queue: VecDeque<Entry>,
}

static TABLE: [SpinLock<Bucket>; BUCKETS] =
    [const { SpinLock::new(Bucket { queue: VecDeque::new() }) }; BUCKETS];

fn index(key: &Key) -> usize {
    key.hash() % BUCKETS
}

/// Locks the bucket of a key.
#[inline(always)]
pub(super) fn lock(key: &Key) -> SpinLockGuard<'static, Bucket> {
    TABLE[index(key)].lock()
}

impl Bucket {
    /// Queues a waiter; called with the bucket locked since before the futex word was compared.
    pub(super) fn push(&mut self, key: Key, bitset: u32, waiter: &Arc<Waiter>) -> Result<(), Errno> {
        memory::fallible::fail_point().map_err(|_| Errno::ENOMEM)?;
        self.queue.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
        waiter.woken.store(false, Ordering::Relaxed);
        waiter.bucket.store(index(&key), Ordering::Relaxed);
        self.queue.push_back(Entry { key, bitset, waiter: waiter.clone() });
        Ok(())
    }

    /// Wakes up to `count` waiters that share a bit with `bitset`; returns how many.
    ///
    /// # Errors
    /// EINVAL: one of them waits to be moved to a lock.
    pub(super) fn wake(&mut self, key: &Key, bitset: u32, count: usize) -> Result<usize, Errno> {
        let mut woken = 0;
        let mut at = 0;
        while woken < count && at < self.queue.len() {
            let entry = &self.queue[at];
            if entry.key != *key || entry.bitset & bitset == 0 {
                if entry.bitset == NO_BITS && entry.key == *key {
                    return Err(Errno::EINVAL);
                }
                at += 1;
                continue;
            }
            if let Some(entry) = self.queue.remove(at) {
                entry.waiter.wake();
                woken += 1;
            }
        }
        self.shrink();
        Ok(woken)
    }

    /// Where the first that waits for the key is.
    pub(super) fn first(&self, key: &Key) -> Option<usize> {
        self.queue.iter().position(|entry| entry.key == *key)
    }

    /// Who waits there to be moved to that lock.
    ///
    /// # Errors
    /// EINVAL: to another one, or to none.
    pub(super) fn bound_for(&self, at: usize, lock: &Key) -> Result<&Arc<Waiter>, Errno> {
        let Entry { bitset, waiter, .. } = &self.queue[at];
        let is = *bitset == NO_BITS && *waiter.target.lock() == Some(*lock);
        if is { Ok(waiter) } else { Err(Errno::EINVAL) }
    }

    /// Takes out who waits there.
    pub(super) fn take(&mut self, at: usize) {
        self.queue.remove(at);
        self.shrink();
    }

    /// Gives back the memory of a queue that was long once.
    #[inline(always)]
    fn shrink(&mut self) {
        const KEPT: usize = 64;
        if self.queue.is_empty() && self.queue.capacity() > KEPT {
            self.queue = VecDeque::new();
        }
    }

    /// Moves up to `count` waiters to another key, possibly in another bucket; returns how many.
    fn requeue(
        &mut self,
        mut other: Option<&mut Bucket>,
        from: &Key,
        to: Key,
        count: usize,
    ) -> Result<usize, Errno> {
        let mut moved = 0;
        let mut at = 0;
        while moved < count && at < self.queue.len() {
            if self.queue[at].key != *from {
                at += 1;
                continue;
            }
            if self.queue[at].bitset == NO_BITS {
                return Err(Errno::EINVAL);
            }
            match &mut other {
                None => {
                    self.queue[at].key = to;
                    at += 1;
                }
                Some(other) => {
                    other.queue.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                    if let Some(entry) = self.queue.remove(at) {
                        entry.waiter.bucket.store(index(&to), Ordering::Relaxed);
                        other.queue.push_back(Entry { key: to, ..entry });
                    }
                }
            }
            moved += 1;
        }
        Ok(moved)
    }
}

/// Wakes up to `wake` waiters of one key and moves up to `requeue` of the rest to another. `permitted` is asked with both buckets locked.
pub(super) fn wake_and_requeue(
    from: Key,
    to: Key,
    wake: usize,
    requeue: usize,
    permitted: impl FnOnce() -> Result<(), Errno>,
) -> Result<(usize, usize), Errno> {
    let _batch = WakeBatch::begin();
    with_both(&from, &to, |first, second| {
        permitted()?;
        let woken = first.wake(&from, u32::MAX, wake)?;
        let moved = if from == to { 0 } else { first.requeue(second, &from, to, requeue)? };
        Ok((woken, moved))
    })
}

/// Calls with the buckets of both keys locked; the second is `None` when it is the same as the first.
pub(super) fn with_both<T>(
    from: &Key,
    to: &Key,
    body: impl FnOnce(&mut Bucket, Option<&mut Bucket>) -> T,
) -> T {
    let (one, two) = (index(from), index(to));
    if one == two {
        return body(&mut TABLE[one].lock(), None);
    }
    // Lower index first, so that two requeues in opposite directions do not wait for each other.
    let (mut low, mut high) = (TABLE[one.min(two)].lock(), TABLE[one.max(two)].lock_nested(1));
    if one < two { body(&mut low, Some(&mut high)) } else { body(&mut high, Some(&mut low)) }
}

/// Takes a waiter that gives up out of its queue; false when it had been woken before.
pub(super) fn withdraw(waiter: &Arc<Waiter>) -> bool {
    loop {
        if waiter.is_woken() {
            return false;
        }
        let at = waiter.bucket.load(Ordering::Relaxed);
        let mut bucket = TABLE[at].lock();
        // A requeue may have moved it before the lock was ours.
        if waiter.bucket.load(Ordering::Relaxed) != at {
            continue;
        }
        let place = bucket.queue.iter().position(|entry| Arc::ptr_eq(&entry.waiter, waiter));
        return match place {
            Some(place) => {
                bucket.queue.remove(place);
                true
            }
            None => false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(key: Key, bitset: u32) -> Arc<Waiter> {
        let waiter = Waiter::new().expect("memory");
        lock(&key).push(key, bitset, &waiter).expect("memory");
        waiter
    }

    #[test]
    fn wakes_in_order_and_only_matching_bits() {
        let key = Key::test(0x1000, 0x40);
        let (one, two, three) = (queued(key, 1), queued(key, 2), queued(key, 1));
        assert_eq!(lock(&key).wake(&key, 1, 1), Ok(1));
        assert!(one.is_woken() && !two.is_woken() && !three.is_woken());
        assert_eq!(lock(&key).wake(&key, 1, 10), Ok(1));
        assert!(three.is_woken());
        assert!(withdraw(&two));
        assert_eq!(lock(&key).wake(&key, u32::MAX, 10), Ok(0));
    }

    #[test]
    fn requeued_waiters_are_woken_under_their_new_key_and_can_withdraw_from_it() {
        let (from, to) = (Key::test(0x2000, 0x40), Key::test(0x3000, 0x80));
        let waiters: alloc::vec::Vec<_> = (0..4).map(|_| queued(from, u32::MAX)).collect();
        assert_eq!(wake_and_requeue(from, to, 1, 2, || Ok(())), Ok((1, 2)));
        assert!(waiters[0].is_woken());
        assert!(withdraw(&waiters[1]));
        assert_eq!(lock(&to).wake(&to, u32::MAX, 10), Ok(1));
        assert!(waiters[2].is_woken());
        assert!(!withdraw(&waiters[2]), "who was woken cannot withdraw");
        assert!(withdraw(&waiters[3]));
    }

    #[test]
    fn refused_requeue_changes_nothing() {
        let (from, to) = (Key::test(0x4000, 0), Key::test(0x5000, 0));
        let waiter = queued(from, u32::MAX);
        assert_eq!(wake_and_requeue(from, to, 1, 1, || Err(Errno::EAGAIN)), Err(Errno::EAGAIN));
        assert!(!waiter.is_woken());
        assert!(withdraw(&waiter));
    }
}
