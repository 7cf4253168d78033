//! The numbers in devices' names (`nvme0`, `vport1p2`): the lowest that no device has, so that one that comes back is called as before.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Which numbers are taken, of 64.
#[derive(Default)]
pub struct Numbers(AtomicU64);

impl Numbers {
    /// None is.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The lowest free one. None if all are taken.
    pub fn take(&'static self) -> Option<Number> {
        let first = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
        let before = self.0.fetch_update(Ordering::AcqRel, Ordering::Relaxed, first).ok()?;
        Some(Number { value: before.trailing_ones(), is_taken: AtomicBool::new(true), numbers: self })
    }
}

/// The number of a device.
pub struct Number {
    value: u32,
    is_taken: AtomicBool,
    numbers: &'static Numbers,
}

impl Number {
    /// Which one.
    pub fn value(&self) -> u32 {
        self.value
    }

    /// Another device may have it from now on: this one was removed, though somebody may still have a file of it open.
    pub fn release(&self) {
        if self.is_taken.swap(false, Ordering::AcqRel) {
            self.numbers.0.fetch_and(!(1 << self.value), Ordering::AcqRel);
        }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn lowest_free_number_is_taken_and_given_back_once() {
        static NUMBERS: Numbers = Numbers::new();
        let mut all: Vec<_> = (0..64).map(|_| NUMBERS.take().unwrap()).collect();
        assert!(all.iter().enumerate().all(|(index, number)| number.value() as usize == index));
        assert!(NUMBERS.take().is_none());
        let third = all.remove(3);
        third.release();
        let again = NUMBERS.take().unwrap();
        // It is another one's now.
        drop(third);
        assert_eq!((again.value(), NUMBERS.take().is_none()), (3, true));
    }
}
