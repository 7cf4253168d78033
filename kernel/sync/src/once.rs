//! Values made once: explicitly ([`Once`]) or on first use ([`Lazy`]).
//!
//! States: EMPTY → BUSY (one CPU runs the initialiser) → READY for ever. Readers of a READY value pay
//! one load. A CPU that finds BUSY spins; the initialiser runs with preemption off so that it is never
//! descheduled in between, and must not sleep.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::ops::Deref;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const READY: u8 = 2;

/// A slot that is filled once and read without locking ever after.
pub struct Once<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written by one CPU before READY is published and only read afterwards; it
// may be made on one CPU and read on others, hence Send + Sync.
unsafe impl<T: Send + Sync> Sync for Once<T> {}
// SAFETY: the slot owns its value.
unsafe impl<T: Send> Send for Once<T> {}

impl<T> Once<T> {
    /// An empty slot.
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The value, if it has been made.
    #[inline(always)]
    pub fn get(&self) -> Option<&T> {
        // Acquire: pairs with the Release in `call_once`.
        if self.state.load(Ordering::Acquire) == READY {
            // SAFETY: READY is stored after the value was written, and it is never written again.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }

    /// The value, made by `make` if this is the first call.
    #[inline]
    pub fn call_once(&self, make: impl FnOnce() -> T) -> &T {
        match self.get() {
            Some(value) => value,
            None => self.make(make),
        }
    }

    #[cold]
    fn make(&self, make: impl FnOnce() -> T) -> &T {
        let _preemption = machine::preempt::disable();
        let claimed = self.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        if claimed.is_ok() {
            let value = make();
            // SAFETY: EMPTY → BUSY happens once, so no other CPU writes, and none reads before READY.
            unsafe { (*self.value.get()).write(value) };
            // Release: pairs with the Acquire in `get`.
            self.state.store(READY, Ordering::Release);
        }
        while self.state.load(Ordering::Acquire) != READY {
            machine::cpu::relax();
        }
        self.get().expect("READY was seen")
    }
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Once<T> {
    fn drop(&mut self) {
        if *self.state.get_mut() == READY {
            // SAFETY: READY means initialised, and `&mut` that nobody reads it.
            unsafe { self.value.get_mut().assume_init_drop() };
        }
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for Once<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("Once").field(&self.get()).finish()
    }
}

/// A value made on first use, for statics.
pub struct Lazy<T> {
    slot: Once<T>,
    make: fn() -> T,
}

impl<T> Lazy<T> {
    /// A value that `make` will make on first use.
    pub const fn new(make: fn() -> T) -> Self {
        Self { slot: Once::new(), make }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        self.slot.call_once(self.make)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_made_once() {
        let slot = Once::new();
        assert_eq!(slot.get(), None);
        assert_eq!(*slot.call_once(|| 1), 1);
        assert_eq!(*slot.call_once(|| 2), 1);
    }

    #[test]
    fn lazy_value_is_made_on_first_use() {
        static VALUE: Lazy<u32> = Lazy::new(|| 42);
        assert_eq!(*VALUE, 42);
    }
}
