//! The spin lock for data shared between threads and softirqs.
//!
//! Preemption is off while it is held. Not for data that hard interrupt handlers touch: those need
//! [`crate::IrqSpinLock`].

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use machine::preempt::{self, PreemptGuard};

use crate::QueueLock;
use crate::classes::{Attempt, Class, Held, Kind};

/// A spin lock around a value.
#[derive(Default)]
pub struct SpinLock<T: ?Sized> {
    raw: QueueLock,
    class: Class,
    value: UnsafeCell<T>,
}

// SAFETY: `raw` lets one CPU at a time reach the value, so sharing the lock moves the value between
// CPUs at most: T: Send suffices.
unsafe impl<T: ?Sized + Send> Sync for SpinLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: ?Sized + Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// A free lock around the value, of the class of its type.
    pub const fn new(value: T) -> Self {
        Self { raw: QueueLock::new(), class: Class::natural(), value: UnsafeCell::new(value) }
    }

    /// A free lock around the value, of the class of that name.
    pub const fn named(class: &'static str, value: T) -> Self {
        Self { raw: QueueLock::new(), class: Class::named(class), value: UnsafeCell::new(value) }
    }

    /// The value, when the lock is no longer shared.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> SpinLock<T> {
    /// Takes the lock; spins while another CPU holds it.
    #[inline]
    pub fn lock(&self) -> SpinLockGuard<'_, T> {
        self.lock_nested(0)
    }

    /// Takes the lock while `nesting` others of its class are held: the caller knows an order among them, such as from parent to
    /// child.
    #[inline]
    pub fn lock_nested(&self, nesting: u8) -> SpinLockGuard<'_, T> {
        let preemption = preempt::disable();
        let mut attempt =
            Attempt::to_wait::<T>(&self.class, Kind::Spin, (&raw const self.raw).cast(), nesting);
        if !self.raw.try_lock() {
            attempt.contended();
            self.raw.lock_queued();
        }
        SpinLockGuard {
            lock: self,
            _held: attempt.taken(&self.class),
            _preemption: preemption,
            _not_send: PhantomData,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<SpinLockGuard<'_, T>> {
        let preemption = preempt::disable();
        let attempt = Attempt::to_try::<T>(&self.class, Kind::Spin, (&raw const self.raw).cast(), 0);
        if !self.raw.try_lock() {
            return None;
        }
        Some(SpinLockGuard {
            lock: self,
            _held: attempt.taken(&self.class),
            _preemption: preemption,
            _not_send: PhantomData,
        })
    }

    /// The value, without locking: `&mut` proves that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Whether somebody holds the lock; for assertions.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

impl<T: ?Sized> core::fmt::Debug for SpinLock<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("SpinLock").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// Proof that a [`SpinLock`] is held; releases it when dropped.
pub struct SpinLockGuard<'a, T: ?Sized> {
    lock: &'a SpinLock<T>,
    _held: Held,
    // Dropped after `drop` has released the lock, so the rescheduling it may cause finds it free.
    _preemption: PreemptGuard,
    _not_send: PhantomData<*mut ()>,
}

impl<T: ?Sized> Deref for SpinLockGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for SpinLockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists only while the lock is held, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for SpinLockGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preemption_is_off_while_held() {
        let lock = SpinLock::new(1);
        let before = preempt::count();
        let mut guard = lock.lock();
        assert_eq!(preempt::count(), before + 1);
        *guard += 1;
        assert!(lock.is_locked());
        drop(guard);
        assert_eq!(preempt::count(), before);
        assert_eq!(*lock.lock(), 2);
    }

    #[test]
    fn failed_try_lock_leaves_preemption_as_it_was() {
        let lock = SpinLock::new(());
        let guard = lock.lock();
        let count = preempt::count();
        assert!(lock.try_lock().is_none());
        assert_eq!(preempt::count(), count);
        drop(guard);
    }
}
