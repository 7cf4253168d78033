//! One value per CPU, each on its own cache lines.
//!
//! [`PerCpu`] hands out shared references: its values synchronise themselves (atomics, locks); being
//! per CPU only keeps them uncontended. [`LocalCell`] hands out an exclusive reference to this CPU's
//! value with interrupts off, and refuses re-entry, so its values need no synchronisation at all.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

use machine::cpu::{self, CpuId, MAX_CPUS};
use machine::{interrupt, preempt};

use crate::CachePadded;

/// A value per CPU that any CPU may look at.
#[derive(Debug)]
pub struct PerCpu<T> {
    values: [CachePadded<T>; MAX_CPUS],
}

impl<T> PerCpu<T> {
    /// From the values themselves; for statics, see [`crate::per_cpu!`].
    pub const fn from_array(values: [CachePadded<T>; MAX_CPUS]) -> Self {
        Self { values }
    }

    /// One value for each CPU, made by `make`.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self { values: core::array::from_fn(|_| CachePadded::new(make())) }
    }

    /// The value of one CPU.
    #[inline(always)]
    pub fn of(&self, cpu: CpuId) -> &T {
        &self.values[cpu.index()]
    }

    /// Calls `use_it` with this CPU's value; the thread stays on this CPU meanwhile.
    #[inline(always)]
    pub fn with<R>(&self, use_it: impl FnOnce(&T) -> R) -> R {
        let _preemption = preempt::disable();
        use_it(self.of(cpu::current()))
    }

    /// This CPU's value, for callers that cannot migrate (preemption or interrupts are off).
    #[inline(always)]
    pub fn this(&self) -> &T {
        debug_assert!(
            preempt::count() != 0 || !interrupt::are_enabled(),
            "`this` is for code that cannot migrate"
        );
        self.of(cpu::current())
    }

    /// The values of all possible CPUs.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.values.iter().map(|value| &**value)
    }
}

/// Makes a [`PerCpu`] in a constant expression: `static X: PerCpu<T> = per_cpu!(T::new());`.
#[macro_export]
macro_rules! per_cpu {
    ($value:expr) => {
        $crate::PerCpu::from_array([const { $crate::CachePadded::new($value) }; machine::cpu::MAX_CPUS])
    };
}

struct Cell<T> {
    borrowed: AtomicBool,
    value: UnsafeCell<T>,
}

/// A value per CPU that only its own CPU touches, with interrupts off.
pub struct LocalCell<T> {
    values: [CachePadded<Cell<T>>; MAX_CPUS],
}

// SAFETY: `with` gives out one `&mut` per CPU at a time: interrupts are off, so nothing else runs on
// this CPU, `borrowed` refuses nested calls, and other CPUs use other values. The value may be made
// on one CPU and used on another, hence Send.
unsafe impl<T: Send> Sync for LocalCell<T> {}

impl<T> LocalCell<T> {
    /// One value for each CPU, made by `make`.
    pub fn new(mut make: impl FnMut() -> T) -> Self {
        Self {
            values: core::array::from_fn(|_| {
                CachePadded::new(Cell { borrowed: AtomicBool::new(false), value: UnsafeCell::new(make()) })
            }),
        }
    }

    /// Calls `use_it` with this CPU's value, with interrupts off.
    ///
    /// # Panics
    /// When `use_it` calls `with` of the same cell again.
    #[inline]
    pub fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        struct Release<'a>(&'a AtomicBool);
        impl Drop for Release<'_> {
            fn drop(&mut self) {
                self.0.store(false, Ordering::Relaxed);
            }
        }
        let _interrupts = interrupt::disable();
        let cell = &self.values[cpu::current().index()];
        assert!(!cell.borrowed.swap(true, Ordering::Relaxed), "a per-CPU cell is borrowed once at a time");
        let _release = Release(&cell.borrowed);
        // SAFETY: see the Sync implementation: this is the only reference to this CPU's value.
        use_it(unsafe { &mut *cell.value.get() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn each_cpu_has_its_own_value() {
        static VALUES: PerCpu<AtomicU32> = per_cpu!(AtomicU32::new(0));
        VALUES.with(|value| value.fetch_add(1, Ordering::Relaxed));
        let other = std::thread::spawn(|| VALUES.with(|value| value.fetch_add(1, Ordering::Relaxed)));
        assert_eq!(other.join().unwrap(), 0, "another CPU starts from its own zero");
    }

    #[test]
    #[should_panic(expected = "borrowed once")]
    fn nested_borrow_is_refused() {
        let cell = LocalCell::new(|| 0);
        cell.with(|_| cell.with(|_| ()));
    }
}
