//! The address space of a thread, and when a CPU changes its own.
//!
//! A CPU loads an address space when it switches to a thread that has one. Kernel threads run in whatever is there (the
//! upper half is the same everywhere) after telling the address space that nobody uses its lower half on this CPU; so going
//! idle and coming back loads nothing. A thread that gives its address space up does not unload it: the address space does
//! that, everywhere, when it is dropped.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicPtr, Ordering};

use machine::interrupt;
use memory::address_space::AddressSpace;
use sync::SpinLock;

/// A thread's address space.
pub(crate) struct SpaceSlot {
    /// What the dispatcher reads: the pointer of what `owned` holds. Written by the thread itself, or while it does not run.
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

    /// Changes this CPU from the previous thread's address space to this one. Interrupts are off.
    #[inline(always)]
    pub(crate) fn activate_after(&self, previous: &SpaceSlot) {
        let space = self.active.load(Ordering::Relaxed);
        // SAFETY: the thread that is about to run owns the space and gives it up only while it runs itself.
        if let Some(space) = unsafe { space.as_ref() } {
            space.activate();
        } else if !previous.active.load(Ordering::Relaxed).is_null() {
            AddressSpace::enter_lazy();
        }
    }

    /// Replaces the running thread's address space and changes this CPU's; returns the old one.
    pub(crate) fn replace_current(&self, space: Option<Arc<AddressSpace>>) -> Option<Arc<AddressSpace>> {
        let _interrupts = interrupt::disable();
        let former = SpaceSlot {
            active: AtomicPtr::new(self.active.load(Ordering::Relaxed)),
            owned: SpinLock::new(None),
        };
        self.active.store(pointer(&space), Ordering::Relaxed);
        let old = core::mem::replace(&mut *self.owned.lock(), space);
        self.activate_after(&former);
        old
    }

    /// Takes the address space of a thread that will never run again.
    pub(crate) fn take(&self) -> Option<Arc<AddressSpace>> {
        self.active.store(core::ptr::null_mut(), Ordering::Relaxed);
        self.owned.lock().take()
    }
}
