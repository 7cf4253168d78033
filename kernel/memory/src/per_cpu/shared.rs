//! A counted handle like `Arc`, for objects that all CPUs use all the time: its count can be spread over the CPUs.
//!
//! It begins as an `Arc` would. Who keeps the object where others find it (a mount's name space) says [`Shared::spread`]:
//! from then on cloning and dropping handles write no shared memory. Before taking it out it says [`Shared::gather`]; then
//! the last handle drops the object. [`SharedOwner`] is who does both, from any context. If all handles of a spread object are dropped, it is leaked: safe, but a bug.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr::NonNull;

use alloc::boxed::Box;

use sync::rcu::RcuBox;

use super::reference::{PerCpuRef, Put};
use crate::file_cache::PageBudget;
use crate::{OutOfMemory, fallible};

struct Inner<T: ?Sized> {
    references: PerCpuRef,
    value: T,
}

/// See the theory of this file.
pub struct Shared<T: ?Sized> {
    inner: NonNull<Inner<T>>,
    owns: PhantomData<Inner<T>>,
}

// SAFETY: handles share the value, and the last one drops it on whatever CPU that is; as for `Arc`.
unsafe impl<T: Send + Sync + ?Sized> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync + ?Sized> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// The first handle of a value.
    ///
    /// # Errors
    /// When there is no memory; the value is dropped.
    #[track_caller]
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        let inner = fallible::try_box(Inner { references: PerCpuRef::new(), value })?;
        Ok(Self { inner: NonNull::from(Box::leak(inner)), owns: PhantomData })
    }
}

impl<T: PageBudget + 'static> Shared<T> {
    /// The same handle, for file caches.
    pub fn into_budget(self) -> Shared<dyn PageBudget> {
        let this = ManuallyDrop::new(self);
        Shared { inner: this.inner, owns: PhantomData }
    }
}

impl<T: ?Sized> Shared<T> {
    #[inline(always)]
    fn references(this: &Self) -> &PerCpuRef {
        // SAFETY: the handle is a reference, so the object is alive.
        unsafe { &this.inner.as_ref().references }
    }

    /// Counts handles per CPU from now on. The caller keeps one, and will [`gather`](Self::gather).
    pub fn spread(this: &Self) {
        Self::references(this).spread();
    }

    /// Counts handles in one place again. May sleep.
    pub fn gather(this: &Self) -> bool {
        Self::references(this).gather()
    }

    /// Gathers all of these; waits once. May sleep.
    pub fn gather_all(these: &[Self]) {
        PerCpuRef::gather_all(these.iter().map(Self::references));
    }

    /// How many handles there are; exact only between [`gather`](Self::gather) and [`spread`](Self::spread).
    pub fn count(this: &Self) -> usize {
        usize::try_from(Self::references(this).value()).unwrap_or(0)
    }

    /// Whether handles are counted per CPU.
    pub fn is_spread(this: &Self) -> bool {
        !Self::references(this).is_gathered()
    }

    /// Whether both are handles of the same object.
    #[inline(always)]
    pub fn ptr_eq(this: &Self, other: &Self) -> bool {
        core::ptr::addr_eq(this.inner.as_ptr(), other.inner.as_ptr())
    }

    /// The address of the object.
    #[inline(always)]
    pub fn as_ptr(this: &Self) -> *const T {
        &raw const **this
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        // SAFETY: the handle is a reference, so the object is alive.
        unsafe { &self.inner.as_ref().value }
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        Self::references(self).get();
        Self { inner: self.inner, owns: PhantomData }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    #[inline(always)]
    fn drop(&mut self) {
        if Self::references(self).put() == Put::Last {
            end(self.inner);
        }
    }
}

/// Drops the object, whose last reference was given back.
#[cold]
#[inline(never)]
fn end<T: ?Sized>(inner: NonNull<Inner<T>>) {
    // SAFETY: leaked from a box in `try_new`; nobody has a reference any more, and `Last` is said once.
    drop(unsafe { Box::from_raw(inner.as_ptr()) });
}

impl<T: core::fmt::Debug + ?Sized> core::fmt::Debug for Shared<T> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (**self).fmt(formatter)
    }
}

/// A handle that keeps its object's count spread. When it is dropped, the other handles are counted in one place a grace
/// period later, without waiting for that: the last one of them, or the end of the grace period, drops the object.
pub struct SharedOwner<T: Send + Sync + 'static> {
    /// There until it is dropped.
    farewell: Option<RcuBox<Farewell<T>>>,
}

struct Farewell<T>(Shared<T>);

impl<T> Drop for Farewell<T> {
    fn drop(&mut self) {
        Shared::references(&self.0).end_own_gathering();
    }
}

impl<T: Send + Sync + 'static> SharedOwner<T> {
    /// The first handle of a value.
    ///
    /// # Errors
    /// When there is no memory; the value is dropped.
    #[track_caller]
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        let handle = Shared::try_new(value)?;
        fallible::fail_point()?;
        let farewell = RcuBox::try_new(Farewell(handle)).ok_or(OutOfMemory)?;
        Shared::spread(&farewell.0);
        Ok(Self { farewell: Some(farewell) })
    }
}

impl<T: Send + Sync + 'static> Deref for SharedOwner<T> {
    type Target = Shared<T>;

    #[inline]
    fn deref(&self) -> &Shared<T> {
        &self.farewell.as_ref().expect("there until it is dropped").0
    }
}

impl<T: Send + Sync + 'static> Drop for SharedOwner<T> {
    fn drop(&mut self) {
        if let Some(farewell) = self.farewell.take() {
            Shared::references(&farewell.0).begin_gathering();
            farewell.defer_drop();
        }
    }
}
