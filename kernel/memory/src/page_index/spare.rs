//! Nodes that were allocated before the lock of a tree was taken.
//!
//! An insertion that lacks nodes says how many. The caller allocates them, without the lock, and tries again: so nothing is
//! allocated, reclaimed or waited for under the lock. They are chained through their first slots.

use super::node::{EMPTY, Fanout, Node, Shift, leads_on, node_of, word_of_node};
use crate::{OutOfMemory, fallible};
use core::ptr::{self, NonNull};
use core::sync::atomic::Ordering;
use sync::rcu::RcuBox;

/// Nodes at hand.
pub struct Spare<const SHIFT: u32>
where
    Shift<SHIFT>: Fanout,
{
    first: *mut Node<SHIFT>,
    count: u32,
}

impl<const SHIFT: u32> Spare<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    /// None.
    #[inline(always)]
    pub const fn new() -> Self {
        Self { first: ptr::null_mut(), count: 0 }
    }

    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Allocates until there are so many. May wait for memory where the caller may sleep.
    ///
    /// # Errors
    /// When there is no memory.
    #[inline(never)]
    pub fn fill(&mut self, count: u32) -> Result<(), OutOfMemory> {
        while self.count < count {
            let node = RcuBox::into_pointer(fallible::try_rcu_box(Node::<SHIFT>::new())?);
            if !self.first.is_null() {
                // SAFETY: the node was allocated just now.
                unsafe { node.as_ref() }.slot(0).store(word_of_node(self.first), Ordering::Relaxed);
            }
            self.first = node.as_ptr();
            self.count += 1;
        }
        Ok(())
    }

    /// One of them, empty.
    pub(super) fn take(&mut self) -> Option<NonNull<Node<SHIFT>>> {
        let node = NonNull::new(self.first)?;
        // SAFETY: nodes of the chain are alive, and nobody else knows them.
        let slot = unsafe { node.as_ref() }.slot(0);
        let next = slot.load(Ordering::Relaxed);
        slot.store(EMPTY, Ordering::Relaxed);
        self.first = if leads_on(next) { node_of(next) } else { ptr::null_mut() };
        self.count -= 1;
        Some(node)
    }
}

impl<const SHIFT: u32> Default for Spare<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    fn default() -> Self {
        Self::new()
    }
}

impl<const SHIFT: u32> Drop for Spare<SHIFT>
where
    Shift<SHIFT>: Fanout,
{
    #[inline]
    fn drop(&mut self) {
        while let Some(node) = self.take() {
            // SAFETY: it came from `into_pointer` and has left the chain.
            drop(unsafe { RcuBox::from_pointer(node) });
        }
    }
}
