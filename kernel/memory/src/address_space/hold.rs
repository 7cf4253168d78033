//! Whom a program's memory is for: its mappings end with the last process that has it, whoever still looks at them.

use super::space::AddressSpace;
use super::unmap::TABLE_TOP;
use alloc::sync::Arc;
use core::mem::ManuallyDrop;
use core::ops::Deref;
use core::sync::atomic::Ordering;

/// A process's hold on its memory. The mappings are gone when the last one has been dropped, which may sleep: who then unmounts what was mapped
/// finds it free, although reclaim looks at the space at the moment.
pub struct Hold(ManuallyDrop<Arc<AddressSpace>>);

impl Hold {
    /// One more process has the space.
    pub fn new(space: Arc<AddressSpace>) -> Hold {
        // Relaxed: who adds a hold has one, or is the only one who knows the space.
        space.holds.fetch_add(1, Ordering::Relaxed);
        Hold(ManuallyDrop::new(space))
    }
}

impl Deref for Hold {
    type Target = Arc<AddressSpace>;

    fn deref(&self) -> &Arc<AddressSpace> {
        &self.0
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // SAFETY: it is dropped once, and not used afterwards.
        let space = unsafe { ManuallyDrop::take(&mut self.0) };
        // AcqRel: what others did to the space before they dropped theirs has happened.
        if space.holds.fetch_sub(1, Ordering::AcqRel) > 1 {
            return;
        }
        if let Err(looked_at) = Arc::try_unwrap(space) {
            looked_at.end_mappings();
        }
    }
}

impl AddressSpace {
    /// Ends all mappings while others look at the space.
    fn end_mappings(&self) {
        let mut layout = self.change.lock();
        let dropped = self.remove_range(&mut layout, 0..TABLE_TOP);
        drop(layout);
        // Nothing is cut, and only that needs memory.
        debug_assert!(dropped.is_ok());
        drop(dropped);
    }
}
