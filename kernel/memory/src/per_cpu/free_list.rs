//! Free objects that each CPU has at hand: an array of pointers, its length and its limit, one behind the other in the
//! CPU's own memory (specs/percpu-allocator.md §11).
//!
//! ```text
//! cookie + (cpu << 13):  avail  limit  objects[0] … objects[avail - 1]  (room up to limit)
//! ```
//!
//! Locking: a CPU's part is touched by that CPU only, with interrupts off; others may read the length.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use machine::cpu::{self, CpuId};

use super::allocator::{self, PerCpuError, copy_of};
use super::geometry::existing_cpus;

/// What a CPU's part begins with; the pointers follow. All zeros is an empty list without room.
#[repr(C)]
struct Head {
    /// Objects at hand.
    avail: AtomicU32,
    /// Room for objects. Written once, before the list is used.
    limit: AtomicU32,
}

/// See the theory of this file. Without memory (before [`FreeList::create`]) it has no room, which is correct but slow.
pub(crate) struct FreeList {
    /// The cookie, null until it was created. Written once; never freed.
    cookie: AtomicPtr<u8>,
}

impl FreeList {
    pub(crate) const fn new() -> Self {
        Self { cookie: AtomicPtr::new(core::ptr::null_mut()) }
    }

    /// Makes room for `limit` objects on each CPU, at start-up.
    pub(crate) fn create(&self, limit: u32) -> Result<(), PerCpuError> {
        let objects = Layout::array::<*mut u8>(limit as usize).map_err(|_| PerCpuError::TooLarge)?;
        let (layout, _) = Layout::new::<Head>().extend(objects).map_err(|_| PerCpuError::TooLarge)?;
        let cookie = allocator::allocate(layout)?;
        for cpu in existing_cpus().iter() {
            // SAFETY: the memory is ours, and zeroed, which is a head.
            unsafe { copy_of(cookie, cpu).cast::<Head>().as_ref() }.limit.store(limit, Relaxed);
        }
        // Release: pairs with the Acquire in `part`.
        self.cookie.store(cookie.as_ptr(), Release);
        Ok(())
    }

    /// A CPU's head and the first of its objects.
    #[inline(always)]
    fn part(&self, cpu: CpuId) -> Option<(&Head, *const AtomicPtr<u8>)> {
        let cookie = NonNull::new(self.cookie.load(Acquire))?;
        // SAFETY: the memory lives for ever and begins with a head, behind which the objects are.
        unsafe {
            let head = copy_of(cookie, cpu).cast::<Head>();
            Some((head.as_ref(), head.add(1).cast::<AtomicPtr<u8>>().as_ptr().cast_const()))
        }
    }

    /// Takes the object that was put in last. Interrupts are off.
    #[inline(always)]
    pub(crate) fn pop(&self) -> Option<NonNull<u8>> {
        let (head, objects) = self.part(cpu::current())?;
        let last = head.avail.load(Relaxed).checked_sub(1)?;
        // SAFETY: `last` is below `avail`, which is at most the room there is.
        let object = unsafe { &*objects.add(last as usize) }.load(Relaxed);
        head.avail.store(last, Relaxed);
        NonNull::new(object)
    }

    /// Puts an object in; says whether there was room. Interrupts are off.
    #[inline(always)]
    pub(crate) fn push(&self, object: NonNull<u8>) -> bool {
        let Some((head, objects)) = self.part(cpu::current()) else { return false };
        let avail = head.avail.load(Relaxed);
        if avail >= head.limit.load(Relaxed) {
            return false;
        }
        // SAFETY: `avail` is below the limit, which is the room there is.
        unsafe { &*objects.add(avail as usize) }.store(object.as_ptr(), Relaxed);
        head.avail.store(avail + 1, Relaxed);
        true
    }

    /// Objects that this CPU has at hand.
    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        self.length_on(cpu::current())
    }

    /// Objects that a CPU has at hand.
    pub(crate) fn length_on(&self, cpu: CpuId) -> u32 {
        self.part(cpu).map_or(0, |(head, _)| head.avail.load(Relaxed))
    }
}
