//! A sleeping lock that many readers or one writer hold. A waiting writer stops new readers, and what a writer leaves goes to
//! the readers that wait first: neither side starves the other.
//!
//! The word: WRITER, or readers × READER; PENDING = a writer waits; READERS_WAIT = readers may wait. Uncontended, reading and writing
//! cost one atomic operation each way, and touch no queue of waiters.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU64, Ordering};

use machine::preempt::HeldLock;

use sync::classes::{Attempt, Class, Held, Kind};

use crate::WaitQueue;

const WRITER: u64 = 1;
/// Writers that wait, counted from here in 31 bits: threads do not get so many.
const PENDING: u64 = 1 << 1;
const PENDING_MASK: u64 = 0xffff_fffe;
/// Set by readers before they sleep, cleared by the writer that wakes them.
const READERS_WAIT: u64 = 1 << 32;
/// Readers that hold the lock, counted from here in 31 bits.
const READER: u64 = 1 << 33;

/// A sleeping reader-writer lock around a value.
pub struct RwLock<T: ?Sized> {
    word: AtomicU64,
    class: Class,
    readers: WaitQueue,
    writers: WaitQueue,
    value: UnsafeCell<T>,
}

// SAFETY: readers share `&T` (needs Sync), a writer alone has `&mut T` (needs Send).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}

impl<T> RwLock<T> {
    /// A free lock around the value, of the class of its type.
    pub const fn new(value: T) -> Self {
        Self::with_class(Class::natural(), value)
    }

    /// A free lock around the value, of the class of that name.
    pub const fn named(class: &'static str, value: T) -> Self {
        Self::with_class(Class::named(class), value)
    }

    const fn with_class(class: Class, value: T) -> Self {
        Self {
            word: AtomicU64::new(0),
            class,
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value, when the lock is no longer shared.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    #[inline(always)]
    fn attempt(&self, nesting: u8) -> Attempt {
        crate::start::ensure_started();
        Attempt::to_wait::<T>(&self.class, Kind::RwLock, (&raw const self.word).cast(), nesting)
    }

    #[inline(always)]
    fn attempt_to_try(&self) -> Attempt {
        Attempt::to_try::<T>(&self.class, Kind::RwLock, (&raw const self.word).cast(), 0)
    }

    #[inline(always)]
    fn read_guard(&self, attempt: Attempt) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { lock: self, _classed: attempt.taken(&self.class), _held: HeldLock::note() }
    }

    #[inline(always)]
    fn write_guard(&self, attempt: Attempt) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { lock: self, _classed: attempt.taken(&self.class), _held: HeldLock::note() }
    }

    /// Takes the lock for reading; sleeps while a writer has it or waits for it.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let mut attempt = self.attempt(0).for_reading();
        if !self.take_read(WRITER | PENDING_MASK) {
            attempt.contended();
            self.read_slowly();
        }
        self.read_guard(attempt)
    }

    /// Takes the lock for reading if no writer has it or waits for it.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let attempt = self.attempt_to_try().for_reading();
        self.take_read(WRITER | PENDING_MASK).then(|| self.read_guard(attempt))
    }

    /// Takes the lock for writing; sleeps while anybody has it.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.write_nested(0)
    }

    /// Takes the lock for writing while `nesting` others of its class are held: the caller knows an order among them, such as from
    /// parent to child.
    #[inline]
    pub fn write_nested(&self, nesting: u8) -> RwLockWriteGuard<'_, T> {
        let mut attempt = self.attempt(nesting);
        if !self.take_write(0) {
            attempt.contended();
            self.write_slowly();
        }
        self.write_guard(attempt)
    }

    /// Takes the lock for writing if nobody has it.
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let attempt = self.attempt_to_try();
        self.take_write(0).then(|| self.write_guard(attempt))
    }

    #[inline(always)]
    fn take_read(&self, obstacles: u64) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & obstacles == 0 {
            // Acquire: pairs with the Release of the last writer.
            match self.word.compare_exchange_weak(word, word + READER, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[inline(always)]
    fn take_write(&self, waits: u64) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & !(PENDING_MASK | READERS_WAIT) == 0 {
            // Acquire: pairs with the Release of the last holder.
            match self.word.compare_exchange_weak(
                word,
                (word | WRITER) - waits,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
        false
    }

    #[cold]
    #[inline(never)]
    fn read_slowly(&self) {
        // A reader that has been woken since it began to wait had its turn announced by a writer's release: it goes
        // before the writers that wait.
        let mut tries = 0;
        self.readers.wait_until(|| {
            tries += 1;
            let obstacles = if tries > 2 { WRITER } else { WRITER | PENDING_MASK };
            if self.take_read(obstacles) {
                return true;
            }
            // Whoever releases after this wakes; whoever did so before is noticed by another look.
            self.word.fetch_or(READERS_WAIT, Ordering::AcqRel);
            self.take_read(obstacles)
        });
    }

    #[cold]
    #[inline(never)]
    fn write_slowly(&self) {
        self.word.fetch_add(PENDING, Ordering::Relaxed);
        self.writers.wait_until_exclusive(|| self.take_write(PENDING));
    }

    #[inline(always)]
    fn release_read(&self) {
        // Release: pairs with the Acquire of the next writer.
        let before = self.word.fetch_sub(READER, Ordering::Release);
        if before < 2 * READER && before & PENDING_MASK != 0 {
            self.writers.wake_one();
        }
    }

    #[inline(always)]
    fn release_write(&self) {
        // Release: pairs with the Acquire of the next holder.
        let before = self.word.fetch_and(!(WRITER | READERS_WAIT), Ordering::AcqRel);
        if before & READERS_WAIT != 0 {
            self.readers.wake_all();
        }
        if before & PENDING_MASK != 0 {
            self.writers.wake_one();
        }
    }

    /// The value, without locking: `&mut` proves that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> core::fmt::Debug for RwLock<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("RwLock").field("word", &self.word).finish_non_exhaustive()
    }
}

/// Proof that a [`RwLock`] is held for reading.
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _classed: Held,
    _held: HeldLock,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: no writer exists while a reader's guard does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.release_read();
    }
}

/// Proof that a [`RwLock`] is held for writing.
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _classed: Held,
    _held: HeldLock,
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the writer is alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the writer is alone, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.release_write();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields of the word: whether a writer holds the lock, writers that wait, whether readers wait, readers that hold it.
    fn fields(lock: &RwLock<()>) -> (bool, u64, bool, u64) {
        let word = lock.word.load(Ordering::Relaxed);
        (word & WRITER != 0, (word & PENDING_MASK) / PENDING, word & READERS_WAIT != 0, word / READER)
    }

    /// As if so many others held the lock or waited for it.
    fn crowded(pending: u64, readers: u64) -> RwLock<()> {
        let lock = RwLock::new(());
        lock.word.store(pending * PENDING + readers * READER, Ordering::Relaxed);
        lock
    }

    #[test]
    fn tens_of_thousands_of_waiting_writers_are_not_taken_for_readers() {
        const OTHERS: u64 = (1 << 14) - 1;
        let lock = crowded(OTHERS, 0);
        lock.word.fetch_add(PENDING, Ordering::Relaxed);
        assert_eq!(fields(&lock), (false, OTHERS + 1, false, 0));
        assert!(lock.try_read().is_none(), "a writer waits");
        assert!(lock.take_write(PENDING));
        assert_eq!(fields(&lock), (true, OTHERS, false, 0));
        lock.release_write();
        assert_eq!(fields(&lock), (false, OTHERS, false, 0));
    }

    #[test]
    fn tens_of_thousands_of_readers_hold_the_lock_at_once() {
        const OTHERS: u64 = (1 << 16) - 1;
        let lock = crowded(0, OTHERS);
        let guard = lock.read();
        assert_eq!(fields(&lock), (false, 0, false, OTHERS + 1));
        assert!(lock.try_write().is_none(), "readers hold it");
        drop(guard);
        assert_eq!(fields(&lock), (false, 0, false, OTHERS));
    }

    #[test]
    fn full_fields_of_the_word_do_not_touch_each_other() {
        const FULL: u64 = (1 << 31) - 1;
        let lock = crowded(FULL, FULL);
        assert_eq!(fields(&lock), (false, FULL, false, FULL));
        lock.release_read();
        lock.word.fetch_or(WRITER | READERS_WAIT, Ordering::Relaxed);
        assert_eq!(fields(&lock), (true, FULL, true, FULL - 1));
    }
}
