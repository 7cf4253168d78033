//! The spin lock for data that hard interrupt handlers touch too.
//!
//! Interrupts and preemption are off while it is held. On release the lock is freed first, then
//! interrupts are restored, then preemption is enabled (which may switch threads): this order lets a
//! wake-up made under the lock take effect at once.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use machine::interrupt::{self, InterruptGuard};
use machine::preempt::{self, PreemptGuard};

use crate::QueueLock;
use crate::classes::{Attempt, Class, Held, Kind};

/// A spin lock around a value, taken with interrupts off.
#[derive(Default)]
pub struct IrqSpinLock<T: ?Sized> {
    raw: QueueLock,
    class: Class,
    value: UnsafeCell<T>,
}

// SAFETY: as for `SpinLock`; interrupts being off adds exclusion against handlers of this CPU.
unsafe impl<T: ?Sized + Send> Sync for IrqSpinLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: ?Sized + Send> Send for IrqSpinLock<T> {}

impl<T> IrqSpinLock<T> {
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

impl<T: ?Sized> IrqSpinLock<T> {
    /// Takes the lock with interrupts off; spins while another CPU holds it.
    #[inline]
    pub fn lock(&self) -> IrqSpinLockGuard<'_, T> {
        self.lock_nested(0)
    }

    /// Takes the lock while `nesting` others of its class are held: the caller knows an order among them, such as from parent to
    /// child.
    #[inline]
    pub fn lock_nested(&self, nesting: u8) -> IrqSpinLockGuard<'_, T> {
        let preemption = preempt::disable();
        let interrupts = interrupt::disable();
        let mut attempt =
            Attempt::to_wait::<T>(&self.class, Kind::IrqSpin, (&raw const self.raw).cast(), nesting);
        if !self.raw.try_lock() {
            attempt.contended();
            self.raw.lock_queued();
        }
        IrqSpinLockGuard {
            lock: self,
            _held: attempt.taken(&self.class),
            _interrupts: interrupts,
            _preemption: preemption,
            _not_send: PhantomData,
        }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<IrqSpinLockGuard<'_, T>> {
        let preemption = preempt::disable();
        let interrupts = interrupt::disable();
        let attempt = Attempt::to_try::<T>(&self.class, Kind::IrqSpin, (&raw const self.raw).cast(), 0);
        if !self.raw.try_lock() {
            return None;
        }
        Some(IrqSpinLockGuard {
            lock: self,
            _held: attempt.taken(&self.class),
            _interrupts: interrupts,
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

    /// Takes the lock, for the dispatcher, which takes it in one thread and releases it in the next. Preemption and interrupts are
    /// off until after the release.
    #[inline]
    pub fn lock_unguarded(&self) {
        let mut attempt = Attempt::to_wait::<T>(&self.class, Kind::IrqSpin, (&raw const self.raw).cast(), 0);
        if !self.raw.try_lock() {
            attempt.contended();
            self.raw.lock_queued();
        }
        let _kept = core::mem::ManuallyDrop::new(attempt.taken(&self.class));
    }

    /// Releases the lock, for the dispatcher.
    #[inline]
    pub fn unlock_unguarded(&self) {
        self.raw.unlock();
        let _released = Held::again::<T>(&self.class, Kind::IrqSpin, (&raw const self.raw).cast());
    }

    /// The value's address, for the dispatcher.
    pub fn as_ptr(&self) -> *mut T {
        self.value.get()
    }
}

impl<T: ?Sized> core::fmt::Debug for IrqSpinLock<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("IrqSpinLock").field("locked", &self.is_locked()).finish_non_exhaustive()
    }
}

/// Proof that an [`IrqSpinLock`] is held; releases it when dropped.
pub struct IrqSpinLockGuard<'a, T: ?Sized> {
    lock: &'a IrqSpinLock<T>,
    _held: Held,
    // Fields drop in this order, after `drop` has released the lock: see the module's theory.
    _interrupts: InterruptGuard,
    _preemption: PreemptGuard,
    _not_send: PhantomData<*mut ()>,
}

impl<T: ?Sized> Deref for IrqSpinLockGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the guard exists only while the lock is held.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for IrqSpinLockGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard exists only while the lock is held, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for IrqSpinLockGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        self.lock.raw.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_are_off_while_held_and_restored_after() {
        let lock = IrqSpinLock::new(0);
        assert!(interrupt::are_enabled());
        let outer = lock.lock();
        assert!(!interrupt::are_enabled());
        let other = IrqSpinLock::named("test inner", 0);
        drop(other.lock());
        assert!(!interrupt::are_enabled(), "the inner guard restores what it found");
        drop(outer);
        assert!(interrupt::are_enabled());
    }
}
