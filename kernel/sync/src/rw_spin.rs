//! A spin lock that many readers or one writer hold. A waiting writer stops new readers, for a moment ([`BARGES_MAX`]): where
//! a virtual machine has fewer host processors than CPUs, the reader that the writer waits for may not be running, and all
//! others would wait with it. A reader that waited that long goes past the writer; the gaps between readers are the writer's.
//! So writers must be rare, as those are that change the regions of an address space.
//!
//! The word: bit 0 = held by a writer, bit 1 = a writer waits, the rest = readers × 4. Writers queue
//! on an inner lock, so at most one of them is at the word at a time. Readers may nest only where no
//! writer can come in between: do not nest.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::sync::atomic::{AtomicU32, Ordering};

use machine::preempt::{self, PreemptGuard};

use crate::QueueLock;
use crate::queue_lock::BARGES_MAX;

const WRITER: u32 = 1;
const WRITER_WAITS: u32 = 2;
const READER: u32 = 4;

/// A reader-writer spin lock around a value. Preemption is off while it is held.
#[derive(Default)]
pub struct RwSpinLock<T: ?Sized> {
    word: AtomicU32,
    writers: QueueLock,
    value: UnsafeCell<T>,
}

// SAFETY: readers share `&T` (needs Sync), a writer alone has `&mut T` (needs Send).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwSpinLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: ?Sized + Send> Send for RwSpinLock<T> {}

impl<T> RwSpinLock<T> {
    /// A free lock around the value.
    pub const fn new(value: T) -> Self {
        Self { word: AtomicU32::new(0), writers: QueueLock::new(), value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> RwSpinLock<T> {
    /// Takes the lock for reading.
    #[inline]
    pub fn read(&self) -> RwSpinReadGuard<'_, T> {
        let preemption = preempt::disable();
        let mut barges = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let barred = if barges < BARGES_MAX { WRITER | WRITER_WAITS } else { WRITER };
            if word & barred == 0 {
                // Acquire: pairs with the Release of the last writer.
                if self
                    .word
                    .compare_exchange_weak(word, word + READER, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    break;
                }
            } else {
                barges += 1;
                machine::cpu::relax();
            }
        }
        RwSpinReadGuard { lock: self, _preemption: preemption, _not_send: PhantomData }
    }

    /// Takes the lock for writing.
    #[inline]
    pub fn write(&self) -> RwSpinWriteGuard<'_, T> {
        let preemption = preempt::disable();
        self.writers.lock();
        if self.word.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.word.fetch_or(WRITER_WAITS, Ordering::Relaxed);
            // Acquire: pairs with the Release of the last reader.
            while self
                .word
                .compare_exchange_weak(WRITER_WAITS, WRITER, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
            {
                machine::cpu::relax();
            }
        }
        RwSpinWriteGuard { lock: self, _preemption: preemption, _not_send: PhantomData }
    }

    /// The value, without locking: `&mut` proves that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized> core::fmt::Debug for RwSpinLock<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_struct("RwSpinLock").field("word", &self.word).finish_non_exhaustive()
    }
}

/// Proof that a [`RwSpinLock`] is held for reading.
pub struct RwSpinReadGuard<'a, T: ?Sized> {
    lock: &'a RwSpinLock<T>,
    _preemption: PreemptGuard,
    _not_send: PhantomData<*mut ()>,
}

impl<T: ?Sized> Deref for RwSpinReadGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: no writer exists while a reader's guard does.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwSpinReadGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next writer.
        self.lock.word.fetch_sub(READER, Ordering::Release);
    }
}

/// Proof that a [`RwSpinLock`] is held for writing.
pub struct RwSpinWriteGuard<'a, T: ?Sized> {
    lock: &'a RwSpinLock<T>,
    _preemption: PreemptGuard,
    _not_send: PhantomData<*mut ()>,
}

impl<T: ?Sized> Deref for RwSpinWriteGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the writer is alone.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwSpinWriteGuard<'_, T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the writer is alone, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwSpinWriteGuard<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: pairs with the Acquire of the next reader or writer.
        self.lock.word.fetch_and(!WRITER, Ordering::Release);
        self.lock.writers.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn readers_share() {
        let lock = RwSpinLock::new(1);
        let first = lock.read();
        let second = lock.read();
        assert_eq!(*first + *second, 2);
    }

    #[test]
    fn a_reader_goes_past_a_writer_that_waits_for_long() {
        let lock = Arc::new(RwSpinLock::new(0));
        let first = lock.read();
        let writer = {
            let lock = lock.clone();
            std::thread::spawn(move || *lock.write() += 1)
        };
        while lock.word.load(Ordering::Relaxed) & WRITER_WAITS == 0 {
            std::thread::yield_now();
        }
        assert_eq!(*lock.read(), 0);
        drop(first);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    }

    /// Of each worker. Miri takes a thousand times as long.
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 2_000 };

    #[test]
    fn writers_exclude_readers_and_writers() {
        let lock = Arc::new(RwSpinLock::new((0_u64, 0_u64)));
        let workers: Vec<_> = (0..4)
            .map(|worker| {
                let lock = lock.clone();
                std::thread::spawn(move || {
                    for _ in 0..ROUNDS {
                        if worker % 2 == 0 {
                            let mut pair = lock.write();
                            pair.0 += 1;
                            pair.1 += 1;
                        } else {
                            let pair = lock.read();
                            assert_eq!(pair.0, pair.1);
                        }
                    }
                })
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(*lock.read(), (2 * ROUNDS, 2 * ROUNDS));
    }
}
