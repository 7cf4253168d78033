//! Sleeping in a layer below the scheduler.
//!
//! Locks that are held while pages are copied, tables walked or files read must let their waiters sleep, but threads
//! are made further up. The scheduler registers how to wait ([`set_hooks`]); before it does, and in hosted tests,
//! waiters spin and give way.
//!
//! A waiter names what it waits for by a number (the address of the lock) and gives a condition. The hook promises:
//! once `wake(key)` has been called after the condition turned false, every waiter with that key returns.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};
use sync::Once;
use sync::classes::{Attempt, Class, Held, Kind};

use machine::preempt::HeldLock;

/// How to wait and to wake.
#[derive(Clone, Copy)]
pub struct Hooks {
    /// Sleeps, not interruptibly, as long as the condition holds. May return early.
    pub wait: fn(key: usize, while_true: &dyn Fn() -> bool),
    /// Wakes everybody who waits for the key.
    pub wake: fn(key: usize),
}

static HOOKS: Once<Hooks> = Once::new();

/// Registers the scheduler's way of waiting. Once, at start-up.
pub fn set_hooks(hooks: Hooks) {
    HOOKS.call_once(|| hooks);
}

/// Waits while the condition holds.
#[inline(never)]
pub(crate) fn wait_while(key: usize, condition: &dyn Fn() -> bool) {
    while condition() {
        match HOOKS.get() {
            Some(hooks) => (hooks.wait)(key, condition),
            None => give_way(),
        }
    }
}

/// Wakes those who wait for the key.
#[inline(never)]
pub(crate) fn wake(key: usize) {
    if let Some(hooks) = HOOKS.get() {
        (hooks.wake)(key);
    }
}

#[cfg(target_os = "none")]
fn give_way() {
    machine::cpu::relax();
}

#[cfg(not(target_os = "none"))]
fn give_way() {
    machine::cpu::relax();
    std::thread::yield_now();
}

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// A mutual exclusion lock whose waiters sleep.
///
/// States: FREE → HELD (by compare-and-swap) → FREE; a waiter marks it CONTENDED, and whoever leaves that state wakes.
pub(crate) struct SleepLock<T> {
    state: AtomicU32,
    class: Class,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives `&mut T` to one holder at a time.
unsafe impl<T: Send> Sync for SleepLock<T> {}

impl<T> SleepLock<T> {
    pub(crate) const fn new(value: T) -> SleepLock<T> {
        SleepLock { state: AtomicU32::new(FREE), class: Class::natural(), value: UnsafeCell::new(value) }
    }

    /// A lock of the class of that name.
    pub(crate) const fn named(class: &'static str, value: T) -> SleepLock<T> {
        SleepLock { state: AtomicU32::new(FREE), class: Class::named(class), value: UnsafeCell::new(value) }
    }

    /// Takes the lock; may sleep.
    #[inline]
    pub(crate) fn lock(&self) -> SleepGuard<'_, T> {
        self.lock_nested(0)
    }

    /// Takes the lock while `nesting` others of its class are held: the caller knows an order among them.
    #[inline]
    pub(crate) fn lock_nested(&self, nesting: u8) -> SleepGuard<'_, T> {
        let mut attempt =
            Attempt::to_wait::<T>(&self.class, Kind::Mutex, (&raw const self.state).cast(), nesting);
        // Acquire: pairs with the Release in the guard's drop.
        if self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            attempt.contended();
            self.lock_contended();
        }
        SleepGuard { lock: self, _classed: attempt.taken(&self.class), _held: HeldLock::note() }
    }

    /// The value, of a lock that nobody else knows.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<SleepGuard<'_, T>> {
        let attempt = Attempt::to_try::<T>(&self.class, Kind::Mutex, (&raw const self.state).cast(), 0);
        // Acquire: as in `lock`.
        self.state.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(SleepGuard { lock: self, _classed: attempt.taken(&self.class), _held: HeldLock::note() })
    }

    #[inline(never)]
    fn lock_contended(&self) {
        // Acquire: as in `lock`. Taken as CONTENDED, since others may be waiting as well.
        while self.state.swap(CONTENDED, Ordering::Acquire) != FREE {
            wait_while(self.key(), &|| self.state.load(Ordering::Relaxed) == CONTENDED);
        }
    }

    fn key(&self) -> usize {
        (&raw const self.state).addr()
    }
}

/// Proof that a [`SleepLock`] is held.
pub(crate) struct SleepGuard<'a, T> {
    lock: &'a SleepLock<T>,
    _classed: Held,
    _held: HeldLock,
}

// SAFETY: the lock is not tied to the thread that took it; sharing a guard shares the value only.
unsafe impl<T: Sync> Sync for SleepGuard<'_, T> {}

impl<T> Deref for SleepGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: the holder is alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SleepGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the holder is alone, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SleepGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next holder.
        if self.lock.state.swap(FREE, Ordering::Release) == CONTENDED {
            wake(self.lock.key());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_exclude_each_other() {
        let lock = SleepLock::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        let mut pair = lock.lock();
                        pair.0 += 1;
                        std::thread::yield_now();
                        pair.1 += 1;
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
        });
        assert_eq!(lock.lock().0, 4000);
    }
}
