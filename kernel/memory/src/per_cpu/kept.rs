//! An `Arc` whose holder may be counted elsewhere: per CPU, for an object that is hot just now.
//!
//! A [`Kept`] is a reference to an object in an `Arc`. Mostly it is one of the `Arc`'s own. While many CPUs use the object, it has a
//! [`Hot`] handle: one reference of the `Arc`'s, behind a [`Shared`] whose count is spread. Who takes a reference then takes the
//! handle, and no CPU writes a line that others use. The object is the same either way, and so is looking at it: one load.
//!
//! The handle lies in the object itself, so it keeps the object alive until it is taken out ([`Hot::cool`]): whoever takes the object
//! out of where others find it cools it too. What took the handle before keeps it, and the object, as long as it likes.

use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::ptr;

use alloc::sync::Arc;

use sync::clustered;
use sync::rcu::{self, RcuBox, RcuReadGuard};

use super::shared::{Shared, SharedOwner};

/// See the theory of this file. `H` is what the handle keeps: the object, or what it is part of.
pub struct Kept<T: ?Sized, H = T> {
    /// Dropped only if there is no handle.
    object: ManuallyDrop<Arc<T>>,
    handle: Option<Shared<Arc<H>>>,
    owns: PhantomData<Arc<T>>,
}

impl<T: ?Sized, H> Kept<T, H> {
    /// A reference of its own to an object that this one's object refers to for as long as it lives; the handle, if there is one, keeps
    /// both.
    pub fn project<U: ?Sized>(
        this: &Self,
        find: impl for<'a> FnOnce(&'a T) -> Option<&'a Arc<U>>,
    ) -> Option<Kept<U, H>> {
        let found = find(this)?;
        let handle = this.handle.clone();
        let object = match &handle {
            None => ManuallyDrop::new(found.clone()),
            // SAFETY: the copy is never dropped, because there is a handle. What `find` returned may be borrowed for as long as
            // `T` can be; the handle keeps an `Arc` to what keeps `T`, so nobody gets at it to change or to drop it.
            Some(_) => ManuallyDrop::new(unsafe { ptr::read(found) }),
        };
        Some(Kept { object, handle, owns: PhantomData })
    }

    /// Whether it is counted per CPU.
    pub fn is_spread(this: &Self) -> bool {
        this.handle.is_some()
    }
}

impl<T: ?Sized, H> From<Arc<T>> for Kept<T, H> {
    #[inline(always)]
    fn from(object: Arc<T>) -> Self {
        Self { object: ManuallyDrop::new(object), handle: None, owns: PhantomData }
    }
}

impl<T: ?Sized, H> Deref for Kept<T, H> {
    type Target = Arc<T>;

    #[inline(always)]
    fn deref(&self) -> &Arc<T> {
        &self.object
    }
}

impl<T: ?Sized, H> Clone for Kept<T, H> {
    #[inline(always)]
    fn clone(&self) -> Self {
        match &self.handle {
            None => Self::from(Arc::clone(&self.object)),
            Some(handle) => Self {
                // SAFETY: the copy is never dropped, because there is a handle, which keeps the object.
                object: unsafe { ptr::read(&raw const self.object) },
                handle: Some(handle.clone()),
                owns: PhantomData,
            },
        }
    }
}

impl<T: ?Sized, H> Drop for Kept<T, H> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.handle.is_none() {
            // SAFETY: without a handle the reference is this one's own, and it is not used any more.
            unsafe { ManuallyDrop::drop(&mut self.object) }
        }
    }
}

impl<T: core::fmt::Debug + ?Sized, H> core::fmt::Debug for Kept<T, H> {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        (***self).fmt(formatter)
    }
}

/// The place in an object where its handle is while it is hot.
pub struct Hot<T: Send + Sync + 'static> {
    handle: rcu::Pointer<SharedOwner<Arc<T>>>,
}

impl<T: Send + Sync + 'static> Hot<T> {
    /// Not hot.
    pub const fn new() -> Self {
        Self { handle: rcu::Pointer::null() }
    }

    /// A reference to the object that this is part of.
    #[inline(always)]
    pub fn keep(&self, object: &Arc<T>, guard: &RcuReadGuard) -> Kept<T> {
        match self.handle.read(guard) {
            None => Kept::from(object.clone()),
            Some(handle) => keep_by(object, handle),
        }
    }

    /// Whether there is a handle.
    #[inline]
    pub fn is_hot(&self) -> bool {
        self.handle.read(&rcu::read()).is_some()
    }

    /// Counts references to the object that this is part of per CPU from now on, if there is memory for it, and not with
    /// `clustered=off`. The caller sees to it that somebody cools it.
    pub fn heat(&self, object: &Arc<T>) {
        if !clustered::enabled() {
            return;
        }
        let handle = SharedOwner::try_new(object.clone()).ok();
        if let Some(handle) = handle.and_then(RcuBox::try_new) {
            self.handle.replace(Some(handle));
        }
    }

    /// Takes the handle out. The reference that it has goes a grace period or two later, if nobody else has it.
    pub fn cool(&self) {
        if self.is_hot() {
            self.handle.replace(None);
        }
    }
}

impl<T: Send + Sync + 'static> Default for Hot<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A reference to the object that a handle keeps.
#[inline]
fn keep_by<T: Send + Sync + 'static>(object: &Arc<T>, handle: &SharedOwner<Arc<T>>) -> Kept<T> {
    assert!(Arc::ptr_eq(object, handle), "the handle of another object");
    // SAFETY: the copy is never dropped, because there is a handle, which keeps this very object.
    let object = ManuallyDrop::new(unsafe { ptr::read(object) });
    Kept { object, handle: Some(Shared::clone(handle)), owns: PhantomData }
}

#[cfg(test)]
mod tests {
    use super::super::tests::alone;
    use super::*;

    struct Part {
        hot: Hot<Part>,
        inner: Arc<u32>,
    }

    fn part() -> Arc<Part> {
        Arc::new(Part { hot: Hot::new(), inner: Arc::new(7) })
    }

    fn wait() {
        // The handle waits for one grace period where it was, and for another one until its count is gathered.
        for _ in 0..4 {
            rcu::synchronize();
            let _pinned = machine::preempt::disable();
            rcu::invoke(u32::MAX);
        }
    }

    #[test]
    fn cold_object_is_counted_by_its_arc() {
        let _alone = alone();
        let part = part();
        let first = part.hot.keep(&part, &rcu::read());
        let second = first.clone();
        assert_eq!((Arc::strong_count(&part), Kept::is_spread(&second)), (3, false));
        let inner = Kept::project(&second, |part| Some(&part.inner)).unwrap();
        assert_eq!((**inner, Arc::strong_count(&part.inner)), (7, 2));
        drop((first, second, inner));
        assert_eq!((Arc::strong_count(&part), Arc::strong_count(&part.inner)), (1, 1));
    }

    #[test]
    fn hot_object_is_not_counted_and_ends_after_it_was_cooled() {
        let _alone = alone();
        let part = part();
        part.hot.heat(&part);
        assert!(part.hot.is_hot());
        let kept = part.hot.keep(&part, &rcu::read());
        let other = kept.clone();
        let inner = Kept::project(&other, |part| Some(&part.inner)).unwrap();
        assert_eq!((Arc::strong_count(&part), Arc::strong_count(&part.inner)), (2, 1));
        let weak = Arc::downgrade(&part);
        part.hot.cool();
        assert!(!part.hot.is_hot());
        drop((part, kept, other));
        wait();
        // The last reference is one to a part of it.
        assert!(weak.upgrade().is_some());
        assert_eq!(**inner, 7);
        drop(inner);
        assert!(weak.upgrade().is_none());
    }
}
