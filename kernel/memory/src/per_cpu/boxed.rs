//! An owned value for each CPU.

use core::alloc::Layout;
use core::marker::PhantomData;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use machine::cpu::{self, CpuId, CpuSet};
use machine::preempt;

use super::allocator::{self, PerCpuError, copy_of};
use super::geometry::existing_cpus;

/// One `T` for each CPU that exists, each in its own CPU's memory; freed when dropped.
///
/// Like [`sync::PerCpu`] it hands out shared references: the values synchronise themselves, being per CPU only keeps them
/// uncontended.
pub struct PerCpuBox<T> {
    cookie: NonNull<u8>,
    owns: PhantomData<T>,
}

// SAFETY: it owns its values, and hands out shared references to any CPU.
unsafe impl<T: Send> Send for PerCpuBox<T> {}
// SAFETY: as above; sharing the box shares the values.
unsafe impl<T: Send + Sync> Sync for PerCpuBox<T> {}

/// A type of which all zeros is a value.
///
/// # Safety
/// All zeros is a valid value.
pub unsafe trait Zeroable {}

macro_rules! zeroable {
    ($($number:ty),*) => {$(
        // SAFETY: a number whose bits may all be zero, or a pointer that may be null.
        unsafe impl Zeroable for $number {}
    )*};
}
zeroable!(AtomicBool, AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize);

// SAFETY: null is a pointer.
unsafe impl<T> Zeroable for AtomicPtr<T> {}
// SAFETY: each element may be zero.
unsafe impl<T: Zeroable, const N: usize> Zeroable for [T; N] {}

impl<T> PerCpuBox<T> {
    /// A value for each CPU, made by `make`.
    ///
    /// # Errors
    /// See [`PerCpuError`].
    #[track_caller]
    pub fn try_new(mut make: impl FnMut(CpuId) -> T) -> Result<Self, PerCpuError> {
        let cookie = allocator::allocate(Layout::new::<T>())?;
        for cpu in existing_cpus().iter() {
            // SAFETY: memory of a `T`'s layout that is ours, for each CPU that exists. If `make` unwinds, the memory and
            // the values made so far are leaked.
            unsafe { copy_of(cookie, cpu).cast::<T>().write(make(cpu)) };
        }
        Ok(Self { cookie, owns: PhantomData })
    }

    /// A value of zeros for each CPU.
    ///
    /// # Errors
    /// See [`PerCpuError`].
    #[track_caller]
    pub fn try_zeroed() -> Result<Self, PerCpuError>
    where
        T: Zeroable,
    {
        let cookie = allocator::allocate(Layout::new::<T>())?;
        Ok(Self { cookie, owns: PhantomData })
    }

    /// The value of a CPU.
    ///
    /// # Panics
    /// When the machine has no such CPU.
    #[inline]
    pub fn get_on(&self, cpu: CpuId) -> &T {
        assert!(self.cpus().contains(cpu), "the machine has no processor {cpu}");
        // SAFETY: the CPU exists, so its copy holds a value, which lives as long as the box.
        unsafe { copy_of(self.cookie, cpu).cast().as_ref() }
    }

    /// The value of the CPU that this runs on, or was running on a moment ago: for values that may be used from anywhere.
    #[inline(always)]
    pub fn this(&self) -> &T {
        // SAFETY: the CPU that runs this exists; as in `get_on`.
        unsafe { copy_of(self.cookie, cpu::current()).cast().as_ref() }
    }

    /// Calls `use_it` with this CPU's value; the thread stays on this CPU meanwhile.
    #[inline(always)]
    pub fn with_local<R>(&self, use_it: impl FnOnce(&T) -> R) -> R {
        let _preemption = preempt::disable();
        use_it(self.this())
    }

    /// The values, in the order of the CPUs.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.cpus().iter().map(|cpu| self.get_on(cpu))
    }

    /// The CPUs that have a value.
    pub fn cpus(&self) -> CpuSet {
        existing_cpus()
    }

    /// The cookie as a pointer: CPU 0's value.
    pub(super) fn as_ptr(&self) -> *mut T {
        self.cookie.as_ptr().cast()
    }

    /// This CPU's value of the box that a pointer came from.
    ///
    /// # Safety
    /// The pointer came from [`PerCpuBox::as_ptr`], and the box lives as long as the result is used.
    #[inline(always)]
    pub(super) unsafe fn own_copy<'life>(cookie: NonNull<T>) -> &'life T {
        // SAFETY: as in `this`; the caller vouches for the box.
        unsafe { copy_of(cookie.cast(), cpu::current()).cast().as_ref() }
    }

    /// The address of CPU 0's value: for tests and reports.
    pub fn cookie(&self) -> usize {
        self.cookie.addr().get()
    }
}

impl<T> Drop for PerCpuBox<T> {
    fn drop(&mut self) {
        if core::mem::needs_drop::<T>() {
            for cpu in existing_cpus().iter() {
                // SAFETY: each CPU's copy holds a value; nobody uses it any more, and it is dropped once.
                unsafe { copy_of(self.cookie, cpu).cast::<T>().drop_in_place() };
            }
        }
        // SAFETY: allocated in the constructor, and nobody uses it any more.
        unsafe { allocator::free(self.cookie) };
    }
}

impl<T: core::fmt::Debug> core::fmt::Debug for PerCpuBox<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.debug_list().entries(self.iter()).finish()
    }
}
