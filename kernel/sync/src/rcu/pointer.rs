//! A pointer that readers follow under RCU while writers replace what it points to.

use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use super::callback::{Node, RcuBox};
use super::flavour::{Classic, Flavour};

/// An owning pointer, possibly null, to a value that readers see under RCU of the flavour `F`.
pub struct Pointer<T: Send + Sync + 'static, F: Flavour = Classic> {
    node: AtomicPtr<Node<T>>,
    owns: PhantomData<T>,
    flavour: PhantomData<fn(F)>,
}

impl<T: Send + Sync + 'static, F: Flavour> Pointer<T, F> {
    /// A null pointer.
    pub const fn null() -> Self {
        Self { node: AtomicPtr::new(ptr::null_mut()), owns: PhantomData, flavour: PhantomData }
    }

    /// A pointer to the value.
    pub fn new(value: RcuBox<T>) -> Self {
        Self { node: AtomicPtr::new(value.into_raw()), owns: PhantomData, flavour: PhantomData }
    }

    /// What it points to; valid for as long as the guard.
    #[inline(always)]
    pub fn read<'guard>(&self, _guard: &'guard F::Guard) -> Option<&'guard T> {
        // Acquire: pairs with the AcqRel in `replace`.
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: a node that was replaced is freed only a grace period later, which the guard holds up.
        unsafe { node.as_ref() }.map(|node| &node.value)
    }

    /// As [`read`](Self::read), for who keeps the value from being replaced in another way than by a guard.
    ///
    /// # Safety
    /// As long as the reference lives, nobody replaces the value.
    #[inline(always)]
    pub(crate) unsafe fn read_unguarded(&self) -> Option<&T> {
        // Acquire: pairs with the AcqRel in `replace`.
        let node = self.node.load(Ordering::Acquire);
        // SAFETY: a node that is not replaced stays.
        unsafe { node.as_ref() }.map(|node| &node.value)
    }

    /// Points to something else; the old value is dropped after a grace period.
    pub fn replace(&self, new: Option<RcuBox<T>>) {
        let new = new.map_or(ptr::null_mut(), RcuBox::into_raw);
        // AcqRel: publishes the new value's contents, and hands us the old one's.
        let old = self.node.swap(new, Ordering::AcqRel);
        if !old.is_null() {
            // SAFETY: the swap made us the only owner of the old node.
            unsafe { RcuBox::from_raw(old) }.defer_drop_of(F::KIND);
        }
    }
}

impl<T: Send + Sync + 'static, F: Flavour> Drop for Pointer<T, F> {
    fn drop(&mut self) {
        let node = *self.node.get_mut();
        if !node.is_null() {
            // Readers that hold a reference got it through a `Pointer` that was alive; they may still
            // be reading, so the value waits like any other.
            // SAFETY: `&mut self` makes us the only owner of the node.
            unsafe { RcuBox::from_raw(node) }.defer_drop_of(F::KIND);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reader_keeps_the_old_value_while_it_is_replaced() {
        let pointer: Pointer<i32> = Pointer::new(RcuBox::new(1));
        let guard = super::super::read();
        let old = pointer.read(&guard).unwrap();
        pointer.replace(Some(RcuBox::new(2)));
        assert_eq!(*old, 1);
        assert_eq!(*pointer.read(&guard).unwrap(), 2);
        pointer.replace(None);
        assert!(pointer.read(&guard).is_none());
    }

    #[test]
    fn readers_of_flavour_bh_hold_its_guard() {
        let pointer: Pointer<i32, super::super::Bh> = Pointer::new(RcuBox::new(7));
        let guard = super::super::read_bh();
        let old = pointer.read(&guard).unwrap();
        pointer.replace(None);
        assert_eq!(*old, 7);
    }
}
