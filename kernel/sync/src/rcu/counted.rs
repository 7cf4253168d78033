//! A counted reference whose memory outlives the last reference by a grace period.
//!
//! [`RcuArc`] is like `Arc`, and a reader under RCU may take a reference from a [`RcuArcSlot`] that is being changed: it loads the
//! pointer, and raises the count unless that is zero already (then the object is on its way out, and the slot shows something else by now). The value is
//! dropped, and its memory given back, a grace period after the last reference. What must happen as soon as the last user
//! goes (closing a pipe, say) is not for `Drop` of the value: [`RcuArc::release`] says who was the last.
//!
//! States of an object: count > 0, alive → count 0, waiting for a grace period → dropped. It never comes back from 0.

use core::ops::Deref;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, fence};

use super::RcuReadGuard;
use super::callback::{Node, RcuBox};

/// The object with its count.
struct Counted<T> {
    count: AtomicUsize,
    value: T,
}

/// A counted reference; the value is dropped a grace period after the last one.
pub struct RcuArc<T: Send + Sync + 'static> {
    node: NonNull<Node<Counted<T>>>,
}

// SAFETY: like an Arc: any holder may be the one that drops the value, all may look at it.
unsafe impl<T: Send + Sync> Send for RcuArc<T> {}
// SAFETY: see above.
unsafe impl<T: Send + Sync> Sync for RcuArc<T> {}

impl<T: Send + Sync + 'static> RcuArc<T> {
    /// The first reference to a new object, unless there is no memory for it; then the value is dropped. It may wait like [`RcuBox::new`].
    pub fn try_new(value: T) -> Option<Self> {
        let node = RcuBox::try_new(Counted { count: AtomicUsize::new(1), value })?.into_raw();
        // SAFETY: `into_raw` never returns null.
        Some(Self { node: unsafe { NonNull::new_unchecked(node) } })
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: the reference keeps the node alive.
        unsafe { &self.node.as_ref().value }
    }

    /// How many references there are; for assertions and hints.
    pub fn references(&self) -> usize {
        self.counted().count.load(Ordering::Relaxed)
    }

    /// Whether both are references to the same object.
    pub fn is_same(&self, other: &Self) -> bool {
        self.node == other.node
    }

    /// Drops the reference; if it was the last one, calls `last` with the value first, which others may still look at under
    /// RCU and nobody can get a reference to any more.
    pub fn release(self, last: impl FnOnce(&T)) {
        // Release, and the fence: all uses of the value are before its end.
        if self.counted().count.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            last(&self.counted().value);
            // SAFETY: the count is zero and never rises again, so this is the only owner of the node.
            unsafe { RcuBox::from_raw(self.node.as_ptr()) }.defer_drop();
        }
        core::mem::forget(self);
    }

    /// A reference to the object, unless its last one is gone.
    fn try_from_node(node: NonNull<Node<Counted<T>>>) -> Option<Self> {
        // SAFETY: the caller's read section keeps the memory.
        let count = unsafe { &node.as_ref().value.count };
        let raised = count
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| (count != 0).then_some(count + 1));
        raised.is_ok().then_some(Self { node })
    }
}

impl<T: Send + Sync> Clone for RcuArc<T> {
    fn clone(&self) -> Self {
        // Relaxed, as in `Arc`: who has a reference may give one on.
        let before = self.counted().count.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "references are leaked");
        Self { node: self.node }
    }
}

impl<T: Send + Sync> Deref for RcuArc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: Send + Sync + 'static> Drop for RcuArc<T> {
    fn drop(&mut self) {
        Self { node: self.node }.release(|_| ());
    }
}

/// A place for one reference, possibly none, that readers look at without a lock.
pub struct RcuArcSlot<T: Send + Sync + 'static> {
    node: AtomicPtr<Node<Counted<T>>>,
}

impl<T: Send + Sync + 'static> RcuArcSlot<T> {
    /// Without a reference.
    pub const fn empty() -> Self {
        Self { node: AtomicPtr::new(ptr::null_mut()) }
    }

    /// What it refers to, without raising its count; valid as long as the guard.
    #[inline(always)]
    pub fn peek<'guard>(&self, _guard: &'guard RcuReadGuard) -> Option<&'guard T> {
        // Acquire: pairs with the AcqRel in `replace`.
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: the slot's reference is dropped after it was taken out, and the memory goes a grace period after the last
        // reference, which the guard holds up.
        unsafe { node.as_ref() }.map(|node| &node.value.value)
    }

    /// A reference of one's own. None if there is none, also if that was just now taken out.
    pub fn get(&self, _guard: &RcuReadGuard) -> Option<RcuArc<T>> {
        loop {
            // Acquire: pairs with the AcqRel in `replace`.
            let node = NonNull::new(self.node.load(Ordering::Acquire))?;
            if let Some(reference) = RcuArc::try_from_node(node) {
                return Some(reference);
            }
            // Its last reference went while we looked, so the slot has changed: once more.
            machine::cpu::relax();
        }
    }

    /// Puts another reference into it; returns the old one.
    pub fn replace(&self, new: Option<RcuArc<T>>) -> Option<RcuArc<T>> {
        let new = new.map_or(ptr::null_mut(), |reference| {
            let node = reference.node.as_ptr();
            core::mem::forget(reference);
            node
        });
        // AcqRel: publishes the new object's contents, and hands us the old reference.
        NonNull::new(self.node.swap(new, Ordering::AcqRel)).map(|node| RcuArc { node })
    }
}

impl<T: Send + Sync + 'static> Drop for RcuArcSlot<T> {
    fn drop(&mut self) {
        drop(self.replace(None));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rcu::counts_drop::CountsDrop;
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn value_is_dropped_a_grace_period_after_the_last_reference() {
        let drops = Arc::new(AtomicU32::new(0));
        let slot = RcuArcSlot::empty();
        assert!(slot.replace(RcuArc::try_new(CountsDrop(drops.clone()))).is_none());
        let guard = super::super::read();
        let seen = slot.peek(&guard).unwrap();
        let own = slot.get(&guard).unwrap();
        assert_eq!(own.references(), 2);
        drop(slot.replace(None));
        assert!(slot.get(&guard).is_none());
        drop(own);
        assert_eq!(seen.0.load(Ordering::Relaxed), 0, "the guard keeps it");
        drop(guard);
        super::super::queue::tests::run_all();
        assert_eq!(drops.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn readers_take_references_while_the_slot_changes() {
        const CHANGES: u32 = 20_000;
        let slot = RcuArcSlot::empty();
        slot.replace(RcuArc::try_new(0_u32));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < CHANGES {
                        let reference = {
                            let guard = super::super::read();
                            slot.get(&guard).unwrap()
                        };
                        assert!(*reference >= last, "values rise");
                        last = *reference;
                    }
                });
            }
            for value in 1..=CHANGES {
                drop(slot.replace(RcuArc::try_new(value)));
            }
        });
        super::super::queue::tests::run_all();
    }
}
