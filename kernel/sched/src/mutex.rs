//! A lock whose waiters sleep.
//!
//! The word: LOCKED; WAITERS = somebody sleeps or is about to; HANDOFF = the next release passes the lock on. Taking a
//! free lock and releasing one that nobody waits for cost one atomic operation each.
//!
//! A released lock is free for whoever comes first, which keeps a busy lock busy. So that this starves nobody, a waiter
//! that was woken and found the lock taken again sets HANDOFF: the release then leaves the lock LOCKED and GRANTED, and the
//! first waiter that runs takes it over. Nobody else can: `lock` needs LOCKED clear, and only waiters look at GRANTED.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use machine::preempt::HeldLock;

use sync::classes::{Attempt, Class, Held, Kind};

use crate::WaitQueue;
use crate::thread::current;
use crate::wait::Interrupted;

const LOCKED: u32 = 1;
const HANDOFF: u32 = 2;
const GRANTED: u32 = 4;
/// Waiters are counted from here up.
const WAITER: u32 = 8;

/// A sleeping lock around a value.
pub struct Mutex<T: ?Sized> {
    word: AtomicU32,
    class: Class,
    waiters: WaitQueue,
    value: UnsafeCell<T>,
}

// SAFETY: the word lets one thread at a time reach the value: T: Send suffices.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free lock around the value, of the class of its type.
    pub const fn new(value: T) -> Self {
        Self::with_class(Class::natural(), value)
    }

    /// A free lock around the value, of the class of that name.
    pub const fn named(class: &'static str, value: T) -> Self {
        Self::with_class(Class::named(class), value)
    }

    const fn with_class(class: Class, value: T) -> Self {
        Self { word: AtomicU32::new(0), class, waiters: WaitQueue::new(), value: UnsafeCell::new(value) }
    }

    /// The value, when the lock is no longer shared.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard(&self, attempt: Attempt) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, _classed: attempt.taken(&self.class), _held: HeldLock::note() }
    }

    #[inline(always)]
    fn attempt(&self, nesting: u8) -> Attempt {
        crate::start::ensure_started();
        Attempt::to_wait::<T>(&self.class, Kind::Mutex, (&raw const self.word).cast(), nesting)
    }

    /// Takes the lock; sleeps while another thread holds it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.lock_nested(0)
    }

    /// Takes the lock while `nesting` others of its class are held: the caller knows an order among them, such as from parent to
    /// child.
    #[inline]
    pub fn lock_nested(&self, nesting: u8) -> MutexGuard<'_, T> {
        let mut attempt = self.attempt(nesting);
        if !self.take_free() {
            attempt.contended();
            self.lock_slowly();
        }
        self.guard(attempt)
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let attempt = Attempt::to_try::<T>(&self.class, Kind::Mutex, (&raw const self.word).cast(), 0);
        self.take_free().then(|| self.guard(attempt))
    }

    /// Takes the lock; sleeps while another thread holds it.
    ///
    /// # Errors
    /// [`Interrupted`] when the thread's attention flag is set before that.
    pub fn lock_interruptible(&self) -> Result<MutexGuard<'_, T>, Interrupted> {
        let mut attempt = self.attempt(0);
        if !self.take_free() {
            attempt.contended();
            self.word.fetch_add(WAITER, Ordering::Relaxed);
            let mut woken = false;
            let outcome = self.waiters.wait_interruptible_exclusive(|| self.take_as_waiter(&mut woken));
            self.end_wait();
            outcome?;
        }
        Ok(self.guard(attempt))
    }

    #[inline(always)]
    fn take_free(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // Acquire: pairs with the Release in `unlock`.
        word & LOCKED == 0
            && self.word.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self) {
        let _attention_is_of_no_concern = current();
        self.word.fetch_add(WAITER, Ordering::Relaxed);
        let mut woken = false;
        self.waiters.wait_until_exclusive(|| self.take_as_waiter(&mut woken));
        self.end_wait();
    }

    /// A waiter's attempt; from the second failure on it asks for a hand-off.
    fn take_as_waiter(&self, woken: &mut bool) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let new = if word & GRANTED != 0 {
                word & !GRANTED
            } else if word & LOCKED == 0 {
                word | LOCKED
            } else if *woken && word & HANDOFF == 0 {
                word | HANDOFF
            } else {
                *woken = true;
                return false;
            };
            // AcqRel: pairs with the Release in `unlock`.
            match self.word.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & GRANTED != 0 || word & LOCKED == 0 => return true,
                Ok(_) => return false,
                Err(now) => word = now,
            }
        }
    }

    fn end_wait(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let last = word - WAITER < WAITER;
            // A waiter that leaves without the lock must not leave a grant for nobody.
            let orphaned = last && word & GRANTED != 0;
            let mut new = word - WAITER;
            if last {
                new &= !HANDOFF;
            }
            if orphaned {
                new &= !(GRANTED | LOCKED);
            }
            match self.word.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    #[inline(always)]
    fn unlock(&self) {
        // Release: pairs with the Acquire of the next holder.
        if self.word.compare_exchange(LOCKED, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            self.unlock_slowly();
        }
    }

    #[cold]
    #[inline(never)]
    fn unlock_slowly(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            debug_assert!(word & LOCKED != 0, "unlock of a free mutex");
            let hand_off = word & HANDOFF != 0 && word >= WAITER;
            let new = if hand_off { (word | GRANTED) & !HANDOFF } else { word & !LOCKED };
            match self.word.compare_exchange_weak(word, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        if word >= WAITER {
            self.waiters.wake_one();
        }
    }

    /// The value, without locking: `&mut` proves that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether somebody holds the lock; for assertions.
    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) & LOCKED != 0
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> core::fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("Mutex").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// Proof that a [`Mutex`] is held; releases it when dropped.
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    _classed: Held,
    _held: HeldLock,
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists only while the lock is held, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}
