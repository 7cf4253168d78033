//! A small value that is read often and written rarely, read without writing to shared memory.
//!
//! The sequence number is even while the value is stable. A writer (one at a time, under the inner
//! lock) makes it odd, writes, makes it even. A reader copies the value word by word with atomic
//! loads between two reads of the number and retries when they differ or are odd. Because the copy
//! consists of atomic loads, a torn copy is a stale value that is thrown away, never a data race.
//! A reader that had to retry [`RETRIES_MAX`] times takes the writers' lock once, so that writers don't starve it.
//! Meant for types without padding bytes (numbers, arrays of numbers, `repr(C)` structs of them).

use core::cell::UnsafeCell;
use core::mem::{MaybeUninit, align_of, size_of};
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

use crate::IrqSpinLock;

/// How often a reader retries before it keeps the writers out.
const RETRIES_MAX: u32 = 1000;

/// A sequence lock around a value; writers exclude each other and interrupts.
pub struct SeqLock<T: Copy> {
    sequence: AtomicU32,
    writers: IrqSpinLock<()>,
    value: UnsafeCell<T>,
}

// SAFETY: all access to `value` is by atomic operations on its memory (`load_words`, `store_words`),
// and the sequence number throws torn copies away.
unsafe impl<T: Copy + Send> Sync for SeqLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: Copy + Send> Send for SeqLock<T> {}

impl<T: Copy> SeqLock<T> {
    /// A lock around the value.
    pub const fn new(value: T) -> Self {
        Self {
            sequence: AtomicU32::new(0),
            writers: IrqSpinLock::named("sequence lock", ()),
            value: UnsafeCell::new(value),
        }
    }

    /// A consistent copy of the value. Spins while a writer is at it.
    #[inline]
    pub fn read(&self) -> T {
        for _ in 0..RETRIES_MAX {
            // Acquire: pairs with the Release that ended the last write.
            let before = self.sequence.load(Ordering::Acquire);
            if before & 1 == 0 {
                let copy = load_words(self.value.get());
                // The loads above happen before the second look at the number.
                fence(Ordering::Acquire);
                if self.sequence.load(Ordering::Relaxed) == before {
                    // SAFETY: no write happened in between, so the copy is the T that was stored.
                    return unsafe { copy.assume_init() };
                }
            }
            machine::cpu::relax();
        }
        self.read_locked()
    }

    /// A copy while no writer is at it.
    #[cold]
    #[inline(never)]
    fn read_locked(&self) -> T {
        let _no_writer = self.writers.lock();
        // SAFETY: writers are excluded by the guard.
        unsafe { *self.value.get() }
    }

    /// Replaces the value.
    pub fn write(&self, value: T) {
        self.update(|stored| *stored = value);
    }

    /// Changes the value in place, excluding other writers.
    pub fn update(&self, change: impl FnOnce(&mut T)) {
        let guard = self.writers.lock();
        // SAFETY: writers are excluded by the guard; a plain read may run beside atomic loads.
        let mut value = unsafe { *self.value.get() };
        change(&mut value);
        let sequence = self.sequence.load(Ordering::Relaxed);
        debug_assert!(sequence & 1 == 0, "a writer finds the sequence even");
        self.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        // The odd number is visible before any word of the new value.
        fence(Ordering::Release);
        store_words(self.value.get(), &value);
        // Release: pairs with the Acquire in `read`.
        self.sequence.store(sequence.wrapping_add(2), Ordering::Release);
        drop(guard);
    }
}

/// Copies a value with atomic loads of the largest unit its alignment allows.
#[inline(always)]
fn load_words<T: Copy>(from: *const T) -> MaybeUninit<T> {
    let mut copy = MaybeUninit::<T>::uninit();
    let unit = unit_of::<T>();
    for offset in (0..size_of::<T>()).step_by(unit) {
        // SAFETY: offset + unit lies within T and is aligned for the unit; the source is only ever
        // written by `store_words` with the same units. The destination is our own.
        unsafe {
            let source = from.byte_add(offset);
            let target = copy.as_mut_ptr().byte_add(offset);
            match unit {
                8 => target.cast::<u64>().write((*source.cast::<AtomicU64>()).load(Ordering::Relaxed)),
                4 => target.cast::<u32>().write((*source.cast::<AtomicU32>()).load(Ordering::Relaxed)),
                _ => target.cast::<u8>().write((*source.cast::<AtomicU8>()).load(Ordering::Relaxed)),
            }
        }
    }
    copy
}

/// Stores a value with atomic stores; the counterpart of [`load_words`].
#[inline(always)]
fn store_words<T: Copy>(to: *mut T, value: &T) {
    let unit = unit_of::<T>();
    for offset in (0..size_of::<T>()).step_by(unit) {
        // SAFETY: offset + unit lies within T and is aligned for the unit; the caller excludes other
        // writers; readers use atomic loads of the same units.
        unsafe {
            let source = (value as *const T).byte_add(offset);
            let target = to.byte_add(offset);
            match unit {
                8 => (*target.cast::<AtomicU64>()).store(source.cast::<u64>().read(), Ordering::Relaxed),
                4 => (*target.cast::<AtomicU32>()).store(source.cast::<u32>().read(), Ordering::Relaxed),
                _ => (*target.cast::<AtomicU8>()).store(source.cast::<u8>().read(), Ordering::Relaxed),
            }
        }
    }
}

const fn unit_of<T>() -> usize {
    // The size of a type is a multiple of its alignment, so units never reach past its end.
    match align_of::<T>() {
        1 | 2 => 1,
        4 => 4,
        _ => 8,
    }
}

impl<T: Copy + core::fmt::Debug> core::fmt::Debug for SeqLock<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_tuple("SeqLock").field(&self.read()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn readers_never_see_half_a_write() {
        let lock = Arc::new(SeqLock::new([0_u64; 8]));
        let stop = Arc::new(AtomicBool::new(false));
        let reader = {
            let (lock, stop) = (lock.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let copy = lock.read();
                    assert!(copy.iter().all(|word| *word == copy[0]), "torn copy {copy:?}");
                }
            })
        };
        // Miri takes a thousand times as long.
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        for round in 0..rounds {
            lock.write([round; 8]);
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        assert_eq!(lock.read(), [rounds - 1; 8]);
    }

    #[test]
    fn a_reader_that_gave_up_retrying_reads_under_the_lock() {
        let lock = SeqLock::new([1_u64, 2]);
        assert_eq!(lock.read_locked(), [1, 2]);
        assert!(!lock.writers.is_locked());
    }

    #[test]
    fn odd_sized_values_work() {
        let lock = SeqLock::new([1_u8, 2, 3]);
        lock.update(|value| value[1] = 7);
        assert_eq!(lock.read(), [1, 7, 3]);
    }
}
