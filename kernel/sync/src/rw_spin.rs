//! A spin lock that many readers or one writer hold. A waiting writer stops new readers, for a moment ([`BARGES_MAX`]): where
//! a virtual machine has fewer host processors than CPUs, the reader that the writer waits for may not be running, and all
//! others would wait with it. A reader that waited that long goes past the writer; after [`PASSES_MAX`] such readers none does
//! before the writer had the lock, so writers don't starve. Writers must be rare, as those are that change the regions of an
//! address space: readers that wait compete with the next writer.
//!
//! The word: bit 0 = held by a writer, bit 1 = a writer waits, 8 bits = readers that went past it, the rest = readers. Writers queue
//! on an inner lock, so at most one of them is at the word at a time. Readers may nest only where no
//! writer can come in between: do not nest.
//!
//! `tests/local_read_models.rs` compiles this file against loom's atomics.

use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicU32, Ordering};

use machine::preempt::{self, PreemptGuard};

use crate::QueueLock;
use crate::classes::{Attempt, Class, Held, Kind};
use crate::queue_lock::BARGES_MAX;

const WRITER: u32 = 1;
const WRITER_WAITS: u32 = 2;
/// A reader that went past the writer that waits.
const PASS: u32 = 1 << 2;
const PASSES: u32 = 0xff << 2;
const READER: u32 = 1 << 10;

/// How many readers go past a writer that waits.
const PASSES_MAX: u32 = 100;
const _: () = assert!(
    PASSES_MAX * PASS + machine::cpu::MAX_CPUS as u32 * PASS <= PASSES,
    "the count does not overflow"
);

/// A reader-writer spin lock around a value. Preemption is off while it is held.
#[derive(Default)]
pub struct RwSpinLock<T: ?Sized> {
    word: AtomicU32,
    writers: QueueLock,
    class: Class,
    value: UnsafeCell<T>,
}

// SAFETY: readers share `&T` (needs Sync), a writer alone has `&mut T` (needs Send).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwSpinLock<T> {}
// SAFETY: the lock owns its value.
unsafe impl<T: ?Sized + Send> Send for RwSpinLock<T> {}

#[cfg(all(loom, test))]
impl<T> RwSpinLock<T> {
    /// A free lock around the value.
    pub fn new(value: T) -> Self {
        let (word, class, value) = (AtomicU32::new(0), Class::natural(), UnsafeCell::new(value));
        Self { word, writers: QueueLock::new(), class, value }
    }
}

#[cfg(not(all(loom, test)))]
impl<T> RwSpinLock<T> {
    /// A free lock around the value, of the class of its type.
    pub const fn new(value: T) -> Self {
        Self::with_class(Class::natural(), value)
    }

    /// A free lock around the value, of the class of that name.
    pub const fn named(class: &'static str, value: T) -> Self {
        Self::with_class(Class::named(class), value)
    }

    const fn with_class(class: Class, value: T) -> Self {
        Self { word: AtomicU32::new(0), writers: QueueLock::new(), class, value: UnsafeCell::new(value) }
    }
}

impl<T: ?Sized> RwSpinLock<T> {
    #[inline(always)]
    fn attempt(&self) -> Attempt {
        Attempt::to_wait::<T>(&self.class, Kind::RwSpin, (&raw const self.word).cast(), 0)
    }

    /// Takes the lock for reading.
    #[inline]
    pub fn read(&self) -> RwSpinReadGuard<'_, T> {
        let preemption = preempt::disable();
        let mut attempt = self.attempt().for_reading();
        let mut barges = 0;
        loop {
            let word = self.word.load(Ordering::Relaxed);
            let may_pass = barges >= BARGES_MAX && word & PASSES < PASSES_MAX * PASS;
            let barred = if may_pass { WRITER } else { WRITER | WRITER_WAITS };
            if word & barred == 0 {
                let with_us = word + if word & WRITER_WAITS == 0 { READER } else { READER + PASS };
                // Acquire: pairs with the Release of the last writer.
                if self
                    .word
                    .compare_exchange_weak(word, with_us, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    break;
                }
            } else {
                if barges == 0 {
                    attempt.contended();
                }
                barges += 1;
                machine::cpu::relax();
            }
        }
        let held = attempt.taken(&self.class);
        RwSpinReadGuard { lock: self, _held: held, _preemption: preemption, _not_send: PhantomData }
    }

    /// Takes the lock for writing.
    #[inline]
    pub fn write(&self) -> RwSpinWriteGuard<'_, T> {
        let preemption = preempt::disable();
        let mut attempt = self.attempt();
        self.writers.lock();
        if self.word.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            attempt.contended();
            self.word.fetch_or(WRITER_WAITS, Ordering::Relaxed);
            loop {
                let word = self.word.load(Ordering::Relaxed);
                // Acquire: pairs with the Release of the last reader.
                if word & !(WRITER_WAITS | PASSES) == 0
                    && self
                        .word
                        .compare_exchange_weak(word, WRITER, Ordering::Acquire, Ordering::Relaxed)
                        .is_ok()
                {
                    break;
                }
                machine::cpu::relax();
            }
        }
        let held = attempt.taken(&self.class);
        RwSpinWriteGuard { lock: self, _held: held, _preemption: preemption, _not_send: PhantomData }
    }

    /// The value, if no writer has the lock or waits for it.
    ///
    /// # Safety
    /// As long as the reference lives, the caller keeps writers that come later from touching the value.
    #[inline(always)]
    pub(crate) unsafe fn peek_unless_written(&self) -> Option<&T> {
        // SeqCst: a later writer sees what the caller stored before. Acquire: pairs with the Release of the last writer.
        let free = self.word.load(Ordering::SeqCst) & (WRITER | WRITER_WAITS) == 0;
        // SAFETY: no writer is there, and the caller keeps others away.
        free.then(|| unsafe { &*self.value.get() })
    }

    /// Whether a reader would have to wait at the moment; for statistics.
    pub fn is_kept_from_readers(&self) -> bool {
        self.word.load(Ordering::Relaxed) & (WRITER | WRITER_WAITS) != 0
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
    _held: Held,
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
    _held: Held,
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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn readers_share() {
        let lock = RwSpinLock::new(1);
        let first = lock.read();
        let second = std::thread::scope(|scope| scope.spawn(|| *lock.read()).join().unwrap());
        assert_eq!(*first + second, 2);
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
        let passing = std::thread::scope(|scope| scope.spawn(|| *lock.read()).join().unwrap());
        assert_eq!(passing, 0);
        drop(first);
        writer.join().unwrap();
        assert_eq!(*lock.read(), 1);
    }

    #[test]
    fn a_writer_that_waits_is_passed_a_limited_number_of_times() {
        let lock = Arc::new(RwSpinLock::new(0));
        let first = lock.read();
        let writer = {
            let lock = lock.clone();
            std::thread::spawn(move || *lock.write() += 1)
        };
        while lock.word.load(Ordering::Relaxed) & WRITER_WAITS == 0 {
            std::thread::yield_now();
        }
        std::thread::scope(|scope| {
            scope.spawn(|| (0..PASSES_MAX).for_each(|_| assert_eq!(*lock.read(), 0)));
        });
        let late = {
            let lock = lock.clone();
            std::thread::spawn(move || *lock.read())
        };
        drop(first);
        assert_eq!(
            late.join().unwrap(),
            1,
            "the reader after the last one that may pass waits for the writer"
        );
        writer.join().unwrap();
        assert_eq!(lock.word.load(Ordering::Relaxed), 0);
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
