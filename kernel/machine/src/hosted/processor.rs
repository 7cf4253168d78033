//! State of each hosted processor, and which host thread has claimed it.
//!
//! The state is a table of atomics rather than thread-local variables, because other processors look at it (RCU asks
//! whether a processor is inside a read section) and because kernel threads move between host threads.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::group::Group;
use super::preempt;
use crate::cpu::{CpuId, CpuSet, MAX_CPUS};

/// No deadline is set.
pub(super) const NEVER: u64 = u64::MAX;

/// One processor. Unless said otherwise a field is written by its own processor only.
pub(super) struct Processor {
    /// Count and flag as [`preempt`] encodes them.
    pub(super) preempt_word: AtomicU32,
    pub(super) interrupts_enabled: AtomicBool,
    pub(super) nesting: AtomicU32,
    /// One bit per kind of IPI; senders set, the processor clears.
    pub(super) pending_ipis: AtomicU32,
    pub(super) deadline_ns: AtomicU64,
    pub(super) root: AtomicU64,
    pub(super) thread_word: AtomicUsize,
    /// See [`crate::preempt::luggage`]; no locks are counted here.
    pub(super) luggage: AtomicU32,
    /// The group; changed under `CLAIMS` only.
    pub(super) group: Mutex<Option<Arc<Group>>>,
}

pub(super) static PROCESSORS: [Processor; MAX_CPUS] = [const {
    Processor {
        preempt_word: AtomicU32::new(preempt::NOT_WANTED),
        interrupts_enabled: AtomicBool::new(true),
        nesting: AtomicU32::new(0),
        pending_ipis: AtomicU32::new(0),
        deadline_ns: AtomicU64::new(NEVER),
        root: AtomicU64::new(0),
        thread_word: AtomicUsize::new(0),
        luggage: AtomicU32::new(0),
        group: Mutex::new(None),
    }
}; MAX_CPUS];

/// Bit n: processor n is claimed by a host thread.
static CLAIMS: Mutex<u64> = Mutex::new(0);
static RELEASED: Condvar = Condvar::new();

const UNCLAIMED: u32 = u32::MAX;

thread_local! {
    static INDEX: Cell<u32> = const { Cell::new(UNCLAIMED) };
    static CLAIM: Claim = const { Claim(Cell::new(UNCLAIMED)) };
}

/// Gives the processor back when its host thread ends.
struct Claim(Cell<u32>);

impl Drop for Claim {
    fn drop(&mut self) {
        if self.0.get() != UNCLAIMED {
            release(self.0.get());
        }
    }
}

/// Locks a host mutex; a test that panicked while holding it has failed already.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of the processor that this host thread is; claims one on the first call.
#[inline(never)]
pub(super) fn index() -> u32 {
    match INDEX.get() {
        UNCLAIMED => claim(Arc::new(Group::new())),
        index => index,
    }
}

/// The processor that this host thread is.
#[inline(never)]
pub(super) fn this() -> &'static Processor {
    &PROCESSORS[index() as usize]
}

/// The group of this host thread's processor.
pub(super) fn group() -> Arc<Group> {
    lock(&this().group).clone().expect("a claimed processor has a group")
}

/// Claims a free processor for this host thread, waiting until there is one.
pub(super) fn claim(group: Arc<Group>) -> u32 {
    assert_eq!(INDEX.get(), UNCLAIMED, "a host thread is one processor");
    let mut claims = lock(&CLAIMS);
    while *claims == u64::MAX {
        claims = RELEASED.wait(claims).unwrap_or_else(PoisonError::into_inner);
    }
    let index = claims.trailing_ones();
    *claims |= 1 << index;
    let processor = &PROCESSORS[index as usize];
    processor.preempt_word.store(preempt::NOT_WANTED, Ordering::SeqCst);
    processor.interrupts_enabled.store(true, Ordering::SeqCst);
    processor.nesting.store(0, Ordering::SeqCst);
    processor.pending_ipis.store(0, Ordering::SeqCst);
    processor.deadline_ns.store(NEVER, Ordering::SeqCst);
    processor.root.store(0, Ordering::SeqCst);
    processor.thread_word.store(0, Ordering::SeqCst);
    *lock(&processor.group) = Some(group.clone());
    group.join(index);
    drop(claims);
    INDEX.set(index);
    CLAIM.with(|claim| claim.0.set(index));
    index
}

fn release(index: u32) {
    let mut claims = lock(&CLAIMS);
    let group = lock(&PROCESSORS[index as usize].group).take();
    if let Some(group) = group {
        group.leave(index);
    }
    PROCESSORS[index as usize].preempt_word.store(preempt::NOT_WANTED, Ordering::SeqCst);
    *claims &= !(1 << index);
    RELEASED.notify_one();
}

/// The processors that host threads have claimed, of all groups.
pub fn cpus_in_use() -> CpuSet {
    CpuSet::from_bits(*lock(&CLAIMS))
}

/// Whether the processor is at this moment outside of any section with preemption off. A reader that enters one
/// afterwards does so after everything that happened before this call: both sides are sequentially consistent.
pub fn is_preemptible(cpu: CpuId) -> bool {
    PROCESSORS[cpu.index()].preempt_word.load(Ordering::SeqCst) & !preempt::NOT_WANTED == 0
}
