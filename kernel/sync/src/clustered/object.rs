//! An object: its entries, its root, and how calls get to a representative.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use machine::cpu::{self, CpuId, CpuSet};

use super::adapt::Policy;
use super::root::Root;
use super::table::{Entries, Managed, Report, new_number};
use crate::SpinLock;
use crate::rcu::{self, RcuBox, RcuReadGuard};

/// The object that was called has been deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted;

/// What an entry leads to. The number comes first, whatever the interface: a call by an id that is left over finds another
/// object's number, and goes no further.
#[repr(C)]
pub(super) struct Node<I: ?Sized> {
    number: u64,
    representative: Arc<I>,
}

/// A node and the CPUs whose entries lead to it.
pub(super) struct Installed<I: ?Sized + Send + Sync + 'static> {
    pub(super) node: RcuBox<Node<I>>,
    pub(super) cpus: CpuSet,
}

/// See the theory of [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Calls that miss fill their entries.
    Normal,
    /// A swap has begun: calls that miss are counted and forwarded.
    Forward,
    /// There is nothing to call any more.
    Deleted,
}

pub(super) struct Shared<I: ?Sized + Send + Sync + 'static> {
    pub(super) root: Arc<dyn Root<I>>,
    pub(super) phase: Phase,
    /// The next root, during a swap.
    pub(super) next: Option<Arc<dyn Root<I>>>,
    pub(super) installed: Vec<Installed<I>>,
    /// Looks at the object in a row at which at most one CPU had used it.
    pub(super) quiet_looks: u32,
}

impl<I: ?Sized + Send + Sync + 'static> Shared<I> {
    /// CPUs whose entries are filled.
    pub(super) fn cpus(&self) -> CpuSet {
        self.installed.iter().fold(CpuSet::EMPTY, |all, installed| all.union(installed.cpus))
    }
}

pub(super) struct Inner<I: ?Sized + Send + Sync + 'static> {
    pub(super) number: u64,
    name: &'static str,
    pub(super) entries: Entries,
    pub(super) shared: SpinLock<Shared<I>>,
    /// Forwarded calls in flight. Raised under the lock.
    pub(super) tracked: AtomicU32,
    misses: AtomicU64,
    forwarded: AtomicU64,
    pub(super) swaps: AtomicU64,
    pub(super) policy: Option<Policy<I>>,
    /// Whether it counts among the distributed adaptive objects.
    pub(super) counted: AtomicBool,
}

impl<I: ?Sized + Send + Sync + 'static> Inner<I> {
    /// The node that this CPU's entry leads to, if it is this object's.
    #[inline(always)]
    fn local<'guard>(entries: &Entries, number: u64, _section: &'guard RcuReadGuard) -> Option<&'guard I> {
        // Acquire: pairs with the Release in `resolve`.
        let node = entries.of(cpu::current()).load(Ordering::Acquire);
        if node.is_null() {
            return None;
        }
        // SAFETY: entries lead to live nodes: one that is taken out of the entries is dropped a grace period later, and
        // the read section holds that up. Whatever its interface, a node begins with its number.
        if unsafe { node.cast::<u64>().read() } != number {
            return None;
        }
        // SAFETY: as above; the number is this object's alone, whose nodes have interface `I`.
        Some(unsafe { &(*node.cast::<Node<I>>()).representative })
    }

    /// Empties the entries of all CPUs; their nodes are returned, to be dropped a grace period later.
    pub(super) fn empty_entries(&self, shared: &mut Shared<I>) -> Vec<Installed<I>> {
        for cpu in shared.cpus().iter() {
            self.entries.of(cpu).store(core::ptr::null_mut(), Ordering::Release);
        }
        core::mem::take(&mut shared.installed)
    }

    /// The miss: finds this CPU's representative. A read section is on; says whether the call is tracked.
    fn resolve(self: &Arc<Self>, cpu: CpuId) -> Result<(Arc<I>, bool), Deleted> {
        let mut shared = self.shared.lock();
        self.misses.fetch_add(1, Ordering::Relaxed);
        if shared.phase == Phase::Deleted {
            return Err(Deleted);
        }
        let representative = shared.root.handle_miss(cpu);
        if shared.phase == Phase::Forward {
            self.tracked.fetch_add(1, Ordering::Relaxed);
            self.forwarded.fetch_add(1, Ordering::Relaxed);
            return Ok((representative, true));
        }
        let is_second = !shared.cpus().is_empty() && !shared.cpus().contains(cpu);
        self.install(&mut shared, cpu, &representative);
        let wants_more = is_second && !shared.root.is_distributed();
        drop(shared);
        if wants_more {
            self.distribute();
        }
        Ok((representative, false))
    }

    /// Fills a CPU's entry. Without memory for a node it stays empty: the next call misses again.
    fn install(&self, shared: &mut Shared<I>, cpu: CpuId, representative: &Arc<I>) {
        let known =
            shared.installed.iter().position(|known| Arc::ptr_eq(&known.node.representative, representative));
        let index = match known {
            Some(index) => index,
            None => {
                if shared.installed.try_reserve(1).is_err() {
                    return;
                }
                let node = Node { number: self.number, representative: representative.clone() };
                let Some(node) = RcuBox::try_new(node) else { return };
                shared.installed.push(Installed { node, cpus: CpuSet::EMPTY });
                shared.installed.len() - 1
            }
        };
        let installed = &mut shared.installed[index];
        installed.cpus.insert(cpu);
        let node: *const Node<I> = &raw const *installed.node;
        // Release: pairs with the Acquire in `local`.
        self.entries.of(cpu).store(node.cast_mut().cast(), Ordering::Release);
    }

    /// A call whose CPU's entry is empty.
    #[cold]
    #[inline(never)]
    fn call_missed<R>(self: &Arc<Self>, operation: impl FnOnce(&I) -> R) -> Result<R, Deleted> {
        /// The end of a tracked call.
        struct Tracked<'a>(&'a AtomicU32);
        impl Drop for Tracked<'_> {
            fn drop(&mut self) {
                // Release: pairs with the Acquire in `finish_swap`.
                self.0.fetch_sub(1, Ordering::Release);
            }
        }
        let _section = rcu::read();
        let (representative, is_tracked) = self.resolve(cpu::current())?;
        let _tracked = is_tracked.then(|| Tracked(&self.tracked));
        Ok(operation(&representative))
    }

    fn delete(&self) {
        let (installed, root, next) = {
            let mut shared = self.shared.lock();
            shared.phase = Phase::Deleted;
            let installed = self.empty_entries(&mut shared);
            (installed, shared.root.clone(), shared.next.take())
        };
        self.count_out();
        drop((root, next));
        installed.into_iter().for_each(|installed| installed.node.defer_drop());
        self.entries.set_global(None);
        self.entries.give_back();
    }
}

impl<I: ?Sized + Send + Sync + 'static> Managed for Inner<I> {
    fn number(&self) -> u64 {
        self.number
    }

    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }

    fn report(&self) -> Report {
        let shared = self.shared.lock();
        Report {
            name: self.name,
            number: self.number,
            distributed: shared.root.is_distributed(),
            representatives: shared.installed.len(),
            cpus: shared.cpus(),
            misses: self.misses.load(Ordering::Relaxed),
            swaps: self.swaps.load(Ordering::Relaxed),
            forwarded: self.forwarded.load(Ordering::Relaxed),
        }
    }

    fn look(self: Arc<Self>) -> bool {
        self.look_at_use()
    }
}

/// The owning handle of a clustered object with interface `I`; the object is deleted when it is dropped.
pub struct Clustered<I: ?Sized + Send + Sync + 'static> {
    inner: Arc<Inner<I>>,
}

impl<I: ?Sized + Send + Sync + 'static> Clustered<I> {
    /// An object with this root. None when there is no memory. May sleep if the caller may.
    pub fn try_new(name: &'static str, root: Arc<dyn Root<I>>) -> Option<Self> {
        Self::build(name, root, None)
    }

    pub(super) fn build(
        name: &'static str,
        root: Arc<dyn Root<I>>,
        policy: Option<Policy<I>>,
    ) -> Option<Self> {
        let entries = Entries::take()?;
        let inner = Arc::new(Inner {
            number: new_number(),
            name,
            entries,
            shared: SpinLock::new(Shared {
                root,
                phase: Phase::Normal,
                next: None,
                installed: Vec::new(),
                quiet_looks: 0,
            }),
            tracked: AtomicU32::new(0),
            misses: AtomicU64::new(0),
            forwarded: AtomicU64::new(0),
            swaps: AtomicU64::new(0),
            policy,
            counted: AtomicBool::new(false),
        });
        entries.set_global(Some(inner.clone()));
        Some(Self { inner })
    }

    /// Calls the representative of this CPU, with preemption off.
    #[inline(always)]
    pub fn call<R>(&self, operation: impl FnOnce(&I) -> R) -> R {
        {
            let section = rcu::read();
            if let Some(representative) = Inner::local(&self.inner.entries, self.inner.number, &section) {
                return operation(representative);
            }
        }
        match self.inner.call_missed(operation) {
            Ok(result) => result,
            Err(Deleted) => unreachable!("an object lives as long as its owning handle"),
        }
    }

    /// Calls `visit` with every representative made so far, while no swap completes.
    pub fn for_each_representative(&self, mut visit: impl FnMut(&I)) {
        let shared = self.inner.shared.lock();
        shared.root.visit(&mut visit);
    }

    /// A name by which others can call it as long as it exists.
    pub fn id(&self) -> ObjectId<I> {
        ObjectId { entries: self.inner.entries, number: self.inner.number, interface: PhantomData }
    }

    /// What can be seen of it.
    pub fn report(&self) -> Report {
        self.inner.report()
    }

    pub(super) fn inner(&self) -> &Arc<Inner<I>> {
        &self.inner
    }
}

impl<I: ?Sized + Send + Sync + 'static> Drop for Clustered<I> {
    fn drop(&mut self) {
        self.inner.delete();
    }
}

/// The name of a clustered object, which may be gone.
pub struct ObjectId<I: ?Sized + Send + Sync + 'static> {
    entries: Entries,
    number: u64,
    interface: PhantomData<fn(&I)>,
}

impl<I: ?Sized + Send + Sync + 'static> Clone for ObjectId<I> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I: ?Sized + Send + Sync + 'static> Copy for ObjectId<I> {}

impl<I: ?Sized + Send + Sync + 'static> ObjectId<I> {
    /// Calls the representative of this CPU, with preemption off.
    ///
    /// # Errors
    /// When the object has been deleted.
    #[inline(always)]
    pub fn call<R>(&self, operation: impl FnOnce(&I) -> R) -> Result<R, Deleted> {
        {
            let section = rcu::read();
            if let Some(representative) = Inner::local(&self.entries, self.number, &section) {
                return Ok(operation(representative));
            }
        }
        self.find()?.call_missed(operation)
    }

    /// The object, through the global table.
    #[cold]
    fn find(&self) -> Result<Arc<Inner<I>>, Deleted> {
        let object = self.entries.global().filter(|object| object.number() == self.number).ok_or(Deleted)?;
        object.any().downcast().map_err(|_| Deleted)
    }
}
