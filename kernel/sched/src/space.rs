//! The address space of a thread, and when a CPU changes its own.
//!
//! A CPU changes the address space only when it switches to a thread that has one and it is another one; kernel
//! threads run in whatever is there (the upper half is the same everywhere). So going idle and coming back costs nothing.
//! A thread gives its address space up by switching to the kernel's own first, so that its CPU does not use
//! tables that are about to be freed; other CPUs that still borrow them are the address space's business when it is dropped.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicPtr, Ordering};

use machine::{interrupt, mmu};
use sync::SpinLock;

pub use placeholder::AddressSpace;

mod placeholder {
    /// An address space.
    #[derive(Debug)]
    pub struct AddressSpace;

    impl AddressSpace {
        pub(crate) fn activate(&self) {}
    }
}

/// A thread's address space.
pub(crate) struct SpaceSlot {
    /// What the dispatcher reads: the pointer of what `owned` holds. Written by the thread itself, or before it starts.
    active: AtomicPtr<AddressSpace>,
    owned: SpinLock<Option<Arc<AddressSpace>>>,
}

fn pointer(space: &Option<Arc<AddressSpace>>) -> *mut AddressSpace {
    space.as_ref().map_or(core::ptr::null_mut(), |space| Arc::as_ptr(space).cast_mut())
}

impl SpaceSlot {
    pub(crate) fn new(space: Option<Arc<AddressSpace>>) -> Self {
        Self { active: AtomicPtr::new(pointer(&space)), owned: SpinLock::new(space) }
    }

    pub(crate) fn get(&self) -> Option<Arc<AddressSpace>> {
        self.owned.lock().clone()
    }

    /// Switches this CPU to the thread's address space, if it has one. Called by the dispatcher with interrupts off.
    #[inline(always)]
    pub(crate) fn activate(&self) {
        let space = self.active.load(Ordering::Relaxed);
        // SAFETY: the thread that is about to run owns the space and gives it up only while it runs itself.
        if let Some(space) = unsafe { space.as_ref() } {
            space.activate();
        }
    }

    /// Takes the address space of a thread that will never run again.
    pub(crate) fn take(&self) -> Option<Arc<AddressSpace>> {
        self.active.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.owned.lock().take()
    }

    /// Replaces the running thread's address space and switches this CPU; returns the old one.
    pub(crate) fn replace_current(&self, space: Option<Arc<AddressSpace>>) -> Option<Arc<AddressSpace>> {
        let _interrupts = interrupt::disable();
        self.active.store(pointer(&space), Ordering::Relaxed);
        let old = core::mem::replace(&mut *self.owned.lock(), space);
        match self.active.load(Ordering::Relaxed).is_null() {
            true => mmu::activate(mmu::kernel_root()),
            false => self.activate(),
        }
        old
    }
}
