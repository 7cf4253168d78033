//! A value set once at start-up and read without synchronisation cost ever after.
//!
//! States: empty → set. Setting twice is a kernel bug. `set` publishes with Release, `get` reads
//! with Acquire, which costs nothing on x86-64.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const BUSY: u8 = 1;
const SET: u8 = 2;

/// A slot for something that an upper layer registers once at start-up.
pub struct SetOnce<T: Copy> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the value is written once, before `state` becomes SET (Release), and only read after SET
// was seen (Acquire); it is Copy and shared by reference, hence the Send + Sync bounds.
unsafe impl<T: Copy + Send + Sync> Sync for SetOnce<T> {}

impl<T: Copy> SetOnce<T> {
    /// An empty slot.
    pub const fn new() -> Self {
        Self { state: AtomicU8::new(EMPTY), value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Registers the value.
    ///
    /// # Panics
    /// When something is registered already: two owners of one hook is a bug of the start-up order.
    pub fn set(&self, value: T) {
        let claimed = self.state.compare_exchange(EMPTY, BUSY, Ordering::Acquire, Ordering::Relaxed);
        assert!(claimed.is_ok(), "a value is registered once");
        // SAFETY: the EMPTY → BUSY transition happens once, so nobody else writes, and readers wait
        // for SET.
        unsafe { (*self.value.get()).write(value) };
        // Release: pairs with the Acquire in `get_ref`.
        self.state.store(SET, Ordering::Release);
    }

    /// The registered value, if any.
    #[inline]
    pub fn get(&self) -> Option<T> {
        self.get_ref().copied()
    }

    /// The registered value by reference, if any.
    #[inline]
    pub fn get_ref(&self) -> Option<&T> {
        if self.state.load(Ordering::Acquire) == SET {
            // SAFETY: SET is stored after the value was written, and it is never written again.
            Some(unsafe { (*self.value.get()).assume_init_ref() })
        } else {
            None
        }
    }
}

impl<T: Copy> Default for SetOnce<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_was_set() {
        let slot = SetOnce::new();
        assert_eq!(slot.get(), None);
        slot.set(7_u32);
        assert_eq!(slot.get(), Some(7));
    }

    #[test]
    #[should_panic(expected = "registered once")]
    fn second_registration_is_refused() {
        let slot = SetOnce::new();
        slot.set(1_u8);
        slot.set(2);
    }
}
