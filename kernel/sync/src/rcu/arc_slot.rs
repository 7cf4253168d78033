//! A place for an `Arc` that readers look at without a lock.
//!
//! The reference that a slot had is dropped a grace period after it was taken out ([`Replaced`]). So what a reader sees inside
//! its read section is alive until the section ends, and a reader that wants to keep it raises a count that is not zero: no look-up fails
//! because the last reference is just going, and none has to be tried again.
//!
//! The value may hence be dropped by a callback of RCU, in softirq context: its `Drop` must not sleep.

use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::RcuReadGuard;
use super::bulk::drop_later;

/// A place for one `Arc` or none.
pub struct ArcSlot<T: Send + Sync + 'static> {
    /// Null, or from `Arc::into_raw`; the slot has that reference.
    object: AtomicPtr<T>,
}

impl<T: Send + Sync + 'static> ArcSlot<T> {
    /// Without a reference.
    pub const fn empty() -> Self {
        Self { object: AtomicPtr::new(ptr::null_mut()) }
    }

    /// With a reference.
    pub fn new(object: Arc<T>) -> Self {
        Self { object: AtomicPtr::new(Arc::into_raw(object).cast_mut()) }
    }

    /// Whether there is no reference in it.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.object.load(Ordering::Relaxed).is_null()
    }

    /// What it refers to, without a reference of one's own; valid as long as the guard.
    #[inline(always)]
    pub fn peek<'guard>(&self, _guard: &'guard RcuReadGuard) -> Option<&'guard T> {
        // Acquire: pairs with the AcqRel in `replace`.
        let object = self.object.load(Ordering::Acquire);
        // SAFETY: the slot's reference, which keeps the object alive, is dropped a grace period after it was taken out
        // (`Replaced`, and `drop` below), and the guard holds that up.
        unsafe { object.as_ref() }
    }

    /// A reference of one's own.
    #[inline(always)]
    pub fn get(&self, _guard: &RcuReadGuard) -> Option<Arc<T>> {
        // Acquire: pairs with the AcqRel in `replace`.
        let object = self.object.load(Ordering::Acquire);
        // SAFETY: the pointer came from `Arc::into_raw`, and the slot's reference is there until the guard ends, see `peek`.
        (!object.is_null()).then(|| unsafe {
            Arc::increment_strong_count(object);
            Arc::from_raw(object)
        })
    }

    /// Puts another reference into it, or none; returns the old one.
    #[inline]
    pub fn replace(&self, new: Option<Arc<T>>) -> Option<Replaced<T>> {
        let new = new.map_or(ptr::null_mut(), |new| Arc::into_raw(new).cast_mut());
        // AcqRel: publishes the new object's contents, and hands us the old reference.
        let old = self.object.swap(new, Ordering::AcqRel);
        // SAFETY: the slot had a reference to it, which the swap made ours.
        (!old.is_null()).then(|| Replaced(ManuallyDrop::new(unsafe { Arc::from_raw(old) })))
    }
}

impl<T: Send + Sync + 'static> Drop for ArcSlot<T> {
    fn drop(&mut self) {
        // Those who looked into it may still do so.
        drop(self.replace(None));
    }
}

/// A reference that was taken out of a slot. Its drop has it dropped a grace period later, and may wait for that where there is no memory to
/// note it: not with a lock held.
#[must_use = "to be dropped without locks"]
pub struct Replaced<T: Send + Sync + 'static>(ManuallyDrop<Arc<T>>);

impl<T: Send + Sync + 'static> Replaced<T> {
    /// A reference of one's own to it.
    pub fn object(&self) -> Arc<T> {
        Arc::clone(&self.0)
    }
}

impl<T: Send + Sync + 'static> Drop for Replaced<T> {
    fn drop(&mut self) {
        // SAFETY: taken once, as this is dropped once.
        drop_later(unsafe { ManuallyDrop::take(&mut self.0) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_all() {
        let section = machine::preempt::disable();
        super::super::bulk::flush();
        drop(section);
        super::super::queue::tests::run_all();
    }

    #[test]
    fn reader_keeps_what_was_taken_out() {
        let slot = ArcSlot::new(Arc::new(7));
        let guard = super::super::read();
        let seen = slot.peek(&guard).unwrap();
        let taken = slot.replace(Some(Arc::new(8))).unwrap();
        let weak = Arc::downgrade(&taken.object());
        drop(taken);
        assert_eq!((*seen, slot.get(&guard).as_deref()), (7, Some(&8)));
        assert_eq!(weak.strong_count(), 1);
        drop(guard);
        run_all();
        assert_eq!(weak.strong_count(), 0);
        assert!(!slot.is_empty());
        drop(slot.replace(None));
        assert!(slot.is_empty());
    }

    #[test]
    fn slot_that_goes_lets_its_readers_finish() {
        let object = Arc::new(7);
        let slot = ArcSlot::new(object.clone());
        let guard = super::super::read();
        let seen = slot.peek(&guard).unwrap();
        drop(slot);
        assert_eq!(Arc::strong_count(&object), 2);
        assert_eq!(*seen, 7);
        drop(guard);
        run_all();
        assert_eq!(Arc::strong_count(&object), 1);
    }

    #[test]
    fn references_are_taken_while_the_slot_changes() {
        let changes: u32 = if cfg!(miri) { 40 } else { 20_000 };
        let slot = ArcSlot::new(Arc::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < changes {
                        let guard = super::super::read();
                        let own = slot.get(&guard).unwrap();
                        drop(guard);
                        assert!(*own >= last, "values rise");
                        last = *own;
                    }
                });
            }
            for value in 1..=changes {
                drop(slot.replace(Some(Arc::new(value))));
            }
        });
        run_all();
    }
}
