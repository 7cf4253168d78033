//! A reader-writer spin lock whose readers write nothing that other CPUs read, for what is read on the CPUs that use it all the time
//! and changed rarely: the regions of an address space, which every page fault reads.
//!
//! # Protocol
//! Each CPU has one *slot*, in a cache line of its own, that says which lock it is reading locally. A reader, with preemption off, puts the
//! lock's address into its CPU's slot and then looks at the lock's word; if there is a writer, or one waits, it takes the slot back and
//! goes the ordinary way ([`RwSpinLock::read`]). A writer takes the lock the ordinary way and then waits until no slot names the
//! lock. Both the reader's store and the writer's are followed by a full barrier before they look at the other's, so at least one of
//! them sees the other.
//!
//! A lock remembers which CPUs ever read it locally, so that a writer looks at their slots only: those of the CPUs that
//! run the program. A CPU enters that set before its slot, and so the argument above holds for the set, too.
//!
//! # Rules
//! A slot holds one lock; who reads a second one on the same CPU meanwhile (an exception handler, say) goes the ordinary way. The order of locks and the
//! rule not to nest are those of [`RwSpinLock`].
//!
//! # Costs
//! A local reader: one exchange on the CPU's own line. A writer: the ordinary lock, and a load for each CPU that ever read.
//!
//! `tests/local_read_models.rs` compiles this file against loom's atomics.

use core::marker::PhantomData;
use core::ops::Deref;
use core::ptr;
#[cfg(not(all(loom, test)))]
use core::sync::atomic::{AtomicPtr, Ordering, fence};

#[cfg(all(loom, test))]
use loom::sync::atomic::{AtomicPtr, Ordering, fence};

use machine::cpu::{AtomicCpuSet, CpuSet};
use machine::preempt::{self, PreemptGuard};

use crate::{PerCpu, RwSpinLock, RwSpinReadGuard, RwSpinWriteGuard, per_cpu};

/// What each CPU is reading locally.
static SLOTS: PerCpu<AtomicPtr<()>> = per_cpu!(AtomicPtr::new(ptr::null_mut()));

/// The lock.
#[derive(Debug)]
pub struct LocalReadLock<T> {
    lock: RwSpinLock<T>,
    /// CPUs that ever read locally.
    readers: AtomicCpuSet,
}

/// Proof that a [`LocalReadLock`] is held for reading.
pub enum LocalReadGuard<'a, T> {
    /// By this CPU's slot.
    Local(Local<'a, T>),
    /// By the lock's word.
    Ordinary(RwSpinReadGuard<'a, T>),
}

/// A slot that is in use.
pub struct Local<'a, T> {
    value: &'a T,
    slot: &'static AtomicPtr<()>,
    _preemption: PreemptGuard,
    _not_send: PhantomData<*mut ()>,
}

impl<T> LocalReadLock<T> {
    /// A free lock around the value.
    #[cfg(not(all(loom, test)))]
    pub const fn new(value: T) -> Self {
        Self { lock: RwSpinLock::new(value), readers: AtomicCpuSet::new(CpuSet::EMPTY) }
    }

    /// A free lock around the value.
    #[cfg(all(loom, test))]
    pub fn new(value: T) -> Self {
        Self { lock: RwSpinLock::new(value), readers: AtomicCpuSet::new(CpuSet::EMPTY) }
    }

    fn name(&self) -> *mut () {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Takes the lock for reading, on this CPU if it can be.
    #[inline]
    pub fn read_locally(&self) -> LocalReadGuard<'_, T> {
        let preemption = preempt::disable();
        let cpu = machine::cpu::current();
        if !self.readers.contains(cpu, Ordering::Relaxed) {
            self.readers.insert(cpu, Ordering::SeqCst);
        }
        let slot: &'static AtomicPtr<()> = SLOTS.of(cpu);
        // SeqCst: pairs with the fence in `write`: the slot is filled before the lock's word is looked at.
        let filled = slot.compare_exchange(ptr::null_mut(), self.name(), Ordering::SeqCst, Ordering::Relaxed);
        // The models know sequential consistency of fences only.
        #[cfg(all(loom, test))]
        fence(Ordering::SeqCst);
        if filled.is_ok() {
            // SAFETY: the slot names this lock, and a writer that comes after this look waits until it does not.
            if let Some(value) = unsafe { self.lock.peek_unless_written() } {
                return LocalReadGuard::Local(Local {
                    value,
                    slot,
                    _preemption: preemption,
                    _not_send: PhantomData,
                });
            }
            slot.store(ptr::null_mut(), Ordering::Release);
        }
        drop(preemption);
        LocalReadGuard::Ordinary(self.lock.read())
    }

    /// Takes the lock for reading, as [`RwSpinLock::read`].
    #[inline]
    pub fn read(&self) -> RwSpinReadGuard<'_, T> {
        self.lock.read()
    }

    /// Takes the lock for writing.
    #[inline]
    pub fn write(&self) -> RwSpinWriteGuard<'_, T> {
        let guard = self.lock.write();
        fence(Ordering::SeqCst);
        // Those that begin to read now see the writer.
        for cpu in self.readers.load(Ordering::SeqCst).iter() {
            // Acquire: pairs with the Release with which a reader takes its slot back.
            while SLOTS.of(cpu).load(Ordering::Acquire) == self.name() {
                machine::cpu::relax();
            }
        }
        guard
    }

    /// The value, without locking: `&mut` proves that nobody else has the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.lock.get_mut()
    }
}

impl<T> Deref for LocalReadGuard<'_, T> {
    type Target = T;
    #[inline(always)]
    fn deref(&self) -> &T {
        match self {
            Self::Local(local) => local.value,
            Self::Ordinary(guard) => guard,
        }
    }
}

impl<T> Drop for Local<'_, T> {
    #[inline(always)]
    fn drop(&mut self) {
        // Release: what was read is read before the writer changes it.
        self.slot.store(ptr::null_mut(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn second_reader_of_a_cpu_goes_the_ordinary_way() {
        let (first, second) = (LocalReadLock::new(1), LocalReadLock::new(2));
        let outer = first.read_locally();
        let inner = second.read_locally();
        assert!(matches!(inner, LocalReadGuard::Ordinary(_)));
        assert_eq!((*outer, *inner), (1, 2));
        drop(inner);
        drop(outer);
        assert!(matches!(second.read_locally(), LocalReadGuard::Local(_)));
    }

    #[test]
    fn readers_never_see_a_half_made_change() {
        let lock = LocalReadLock::new((0_u64, 0_u64));
        let rounds = if cfg!(miri) { 50 } else { 20_000 };
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..rounds {
                        let pair = lock.read_locally();
                        assert_eq!(pair.0, pair.1);
                    }
                });
            }
            for _ in 0..rounds / 10 {
                let mut pair = lock.write();
                pair.0 += 1;
                pair.1 += 1;
            }
        });
        assert_eq!(lock.read().0, rounds / 10);
    }

    #[test]
    fn writer_after_a_reader_has_the_lock_alone() {
        let lock = LocalReadLock::new(1);
        drop(lock.read_locally());
        *lock.write() += 1;
        assert_eq!(*lock.read_locally(), 2);
        assert_eq!(*lock.read(), 2);
    }
}
