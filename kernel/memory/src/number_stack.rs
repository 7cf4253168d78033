//! A bounded stack of numbers that one CPU writes and others may look at.
//!
//! Locking: pushing and popping is done by the owning CPU with interrupts off, with plain loads and stores; the count
//! may be read by anyone at any time.

use core::marker::PhantomData;
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

/// See the theory of this file.
pub(crate) struct NumberStack<T, const CAPACITY: usize> {
    count: AtomicU32,
    numbers: [AtomicU32; CAPACITY],
    kind: PhantomData<fn() -> T>,
}

impl<T: From<u32> + Into<u32>, const CAPACITY: usize> NumberStack<T, CAPACITY> {
    pub(crate) const fn new() -> Self {
        Self { count: AtomicU32::new(0), numbers: [const { AtomicU32::new(0) }; CAPACITY], kind: PhantomData }
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        // Acquire: pairs with the Release in `push`, for a CPU that looks at another's numbers.
        self.count.load(Acquire) as usize
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<T> {
        let count = self.count.load(Relaxed) as usize;
        let number = self.numbers.get(count.wrapping_sub(1))?.load(Relaxed);
        self.count.store(count as u32 - 1, Relaxed);
        Some(T::from(number))
    }

    /// Adds a number; the caller has checked that there is room.
    #[inline]
    pub(crate) fn push(&self, number: T) {
        let count = self.count.load(Relaxed) as usize;
        self.numbers[count].store(number.into(), Relaxed);
        self.count.store(count as u32 + 1, Release);
    }

    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Relaxed) as usize == CAPACITY
    }
}

#[cfg(test)]
mod tests {
    use super::NumberStack;

    #[test]
    fn it_returns_what_was_pushed_last_and_stops_at_its_ends() {
        let stack = NumberStack::<u32, 3>::new();
        assert!(stack.pop().is_none());
        for number in 1..=3 {
            assert!(!stack.is_full());
            stack.push(number);
        }
        assert!(stack.is_full());
        for number in (1..=3).rev() {
            assert_eq!(stack.pop(), Some(number));
        }
        assert!(stack.pop().is_none());
        assert_eq!(stack.len(), 0);
    }
}
