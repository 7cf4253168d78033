//! Processors: numbers, sets of numbers, and how application processors are started.
//!
//! A [`CpuId`] is a dense logical number below [`MAX_CPUS`]; the boot processor is number 0. The mapping to
//! hardware ids (local APIC ids) is the back end's business. [`count`] is the number of processors found by the
//! firmware tables, [`online`] the set of those that have entered the kernel; the set only grows.

mod text;

pub use text::NoSet;

use crate::backend;
use core::fmt;
use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Upper bound of processors: one bit each in a [`CpuSet`], one slot each in static tables.
pub const MAX_CPUS: usize = 64;

/// Logical number of a processor, below [`MAX_CPUS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CpuId(u32);

impl CpuId {
    /// The processor that the machine starts on.
    pub const BOOT: CpuId = CpuId(0);

    /// The processor with this number, if the number is below [`MAX_CPUS`].
    pub const fn new(index: usize) -> Option<CpuId> {
        if index < MAX_CPUS { Some(CpuId(index as u32)) } else { None }
    }

    /// Like [`CpuId::new`] for a number that the kernel itself keeps below [`MAX_CPUS`].
    pub const fn from_index(index: usize) -> CpuId {
        assert!(index < MAX_CPUS, "processor number out of range");
        CpuId(index as u32)
    }

    /// The number, for indexing tables of [`MAX_CPUS`] entries.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for CpuId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A set of processors.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuSet(u64);

impl CpuSet {
    /// No processor.
    pub const EMPTY: CpuSet = CpuSet(0);
    /// Every processor that may exist.
    pub const ALL: CpuSet = CpuSet(u64::MAX);

    /// The set of exactly this processor.
    pub const fn only(cpu: CpuId) -> CpuSet {
        CpuSet(1 << cpu.0)
    }

    /// The processors with numbers below `count`.
    pub const fn first(count: usize) -> CpuSet {
        if count >= MAX_CPUS { CpuSet::ALL } else { CpuSet((1 << count) - 1) }
    }

    /// The set whose bit mask this is (bit n: processor n).
    pub const fn from_bits(bits: u64) -> CpuSet {
        CpuSet(bits)
    }

    /// The bit mask (bit n: processor n).
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Whether the processor is in the set.
    pub const fn contains(self, cpu: CpuId) -> bool {
        self.0 & (1 << cpu.0) != 0
    }

    /// Adds a processor.
    pub const fn insert(&mut self, cpu: CpuId) {
        self.0 |= 1 << cpu.0;
    }

    /// Takes a processor out.
    pub const fn remove(&mut self, cpu: CpuId) {
        self.0 &= !(1 << cpu.0);
    }

    /// How many processors the set has.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The processor with the lowest number.
    pub const fn lowest(self) -> Option<CpuId> {
        if self.0 == 0 { None } else { Some(CpuId(self.0.trailing_zeros())) }
    }

    /// Processors in either set.
    pub const fn union(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 | other.0)
    }

    /// Processors in both sets.
    pub const fn intersection(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & other.0)
    }

    /// Processors of this set that are not in the other.
    pub const fn difference(self, other: CpuSet) -> CpuSet {
        CpuSet(self.0 & !other.0)
    }

    /// The processors in ascending order.
    pub fn iter(self) -> impl Iterator<Item = CpuId> {
        let mut rest = self;
        core::iter::from_fn(move || {
            let cpu = rest.lowest()?;
            rest.remove(cpu);
            Some(cpu)
        })
    }
}

impl fmt::Debug for CpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_set().entries(self.iter().map(CpuId::index)).finish()
    }
}

/// A set of processors that several processors change at the same time.
#[derive(Default)]
pub struct AtomicCpuSet(AtomicU64);

impl AtomicCpuSet {
    /// A set with these members.
    pub const fn new(set: CpuSet) -> AtomicCpuSet {
        AtomicCpuSet(AtomicU64::new(set.0))
    }

    /// The members now.
    pub fn load(&self, ordering: Ordering) -> CpuSet {
        CpuSet(self.0.load(ordering))
    }

    /// Replaces the members.
    pub fn store(&self, set: CpuSet, ordering: Ordering) {
        self.0.store(set.0, ordering);
    }

    /// Adds a processor; says whether it was a member before.
    pub fn insert(&self, cpu: CpuId, ordering: Ordering) -> bool {
        CpuSet(self.0.fetch_or(CpuSet::only(cpu).0, ordering)).contains(cpu)
    }

    /// Takes a processor out; says whether it was a member before.
    pub fn remove(&self, cpu: CpuId, ordering: Ordering) -> bool {
        CpuSet(self.0.fetch_and(!CpuSet::only(cpu).0, ordering)).contains(cpu)
    }

    /// Whether the processor is a member.
    pub fn contains(&self, cpu: CpuId, ordering: Ordering) -> bool {
        self.load(ordering).contains(cpu)
    }
}

impl fmt::Debug for AtomicCpuSet {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load(Ordering::Relaxed).fmt(formatter)
    }
}

/// The processor this code runs on. The answer stays true only while preemption is disabled.
#[inline(always)]
pub fn current() -> CpuId {
    CpuId(backend::cpu::current_index())
}

/// How many processors the machine has, online or not: they are numbered from 0 to this.
pub fn count() -> usize {
    backend::cpu::count()
}

/// The processors that run the kernel by now.
pub fn online() -> CpuSet {
    backend::cpu::online()
}

/// The online processors of the machine that `cpu` is part of. On the bare machine there is one; hosted tests that run in parallel are
/// machines of their own, which meet at the locks of statics; of one that has ended the caller's own takes the place.
#[inline(always)]
pub fn online_beside(cpu: CpuId) -> CpuSet {
    backend::cpu::online_beside(cpu)
}

/// The word that the scheduler keeps per processor for its current thread (0 before the first).
#[inline(always)]
pub fn thread_word() -> usize {
    backend::cpu::thread_word()
}

/// Sets the word that [`thread_word`] returns on this processor. Call with preemption disabled.
#[inline(always)]
pub fn set_thread_word(word: usize) {
    backend::cpu::set_thread_word(word);
}

/// Sets the function that application processors enter, on their boot stacks with interrupts disabled.
pub fn set_ap_entry(entry: fn(CpuId) -> !) {
    backend::cpu::set_ap_entry(entry);
}

/// Starts all application processors at once and waits until each is online or is known to be missing.
/// Returns the set of processors online.
pub fn start_application_processors() -> CpuSet {
    backend::cpu::start_application_processors();
    online()
}

/// Adds to a cell that only this processor changes: one instruction, which an interrupt can't split, and which locks
/// nothing. Other processors may read the cell. Call with preemption disabled.
#[inline(always)]
pub fn add_to_own(cell: &AtomicI64, amount: i64) {
    backend::cpu::add_to_own(cell, amount);
}

/// Static cells that each processor has in its own area.
pub const STATIC_CELLS: usize = 32;

/// Adds to a static cell of the processor that this runs on: one instruction, whichever processor that is, so it needs
/// neither preemption nor interrupts disabled. Cells beyond [`STATIC_CELLS`] wrap around.
#[inline(always)]
pub fn add_to_static(cell: usize, amount: i64) {
    backend::cpu::add_to_static(cell % STATIC_CELLS, amount);
}

/// What a processor has in a static cell; 0 for processors that the machine does not have.
pub fn static_cell(cpu: CpuId, cell: usize) -> i64 {
    backend::cpu::static_cell(cpu, cell % STATIC_CELLS)
}

/// Tells the processor that this is a spinning loop.
#[inline(always)]
pub fn relax() {
    #[cfg(target_os = "none")]
    core::hint::spin_loop();
    #[cfg(not(target_os = "none"))]
    backend::cpu::relax();
}

/// Takes what lies at that place out of the caches of all processors: for measuring.
#[inline(always)]
pub fn flush_line<T>(place: &T) {
    #[cfg(target_os = "none")]
    backend::cpu::flush_line(core::ptr::from_ref(place).cast());
    #[cfg(not(target_os = "none"))]
    let _ = place;
}

/// Stops this processor for good, interrupts disabled.
pub fn halt_forever() -> ! {
    backend::cpu::halt_forever()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_holds_what_was_inserted_in_ascending_order() {
        let mut set = CpuSet::EMPTY;
        for index in [63, 0, 17] {
            set.insert(CpuId::from_index(index));
        }
        assert_eq!(set.count(), 3);
        assert!(set.iter().map(CpuId::index).eq([0, 17, 63]));
        set.remove(CpuId::from_index(17));
        assert!(!set.contains(CpuId::from_index(17)));
        assert_eq!(set.lowest(), Some(CpuId::BOOT));
    }

    #[test]
    fn first_covers_none_some_and_all() {
        assert!(CpuSet::first(0).is_empty());
        assert_eq!(CpuSet::first(5).count(), 5);
        assert_eq!(CpuSet::first(MAX_CPUS), CpuSet::ALL);
    }

    #[test]
    fn numbers_beyond_the_limit_are_refused() {
        assert!(CpuId::new(MAX_CPUS).is_none());
        assert_eq!(CpuId::new(MAX_CPUS - 1).map(CpuId::index), Some(MAX_CPUS - 1));
    }

    #[test]
    fn atomic_set_reports_former_membership() {
        let set = AtomicCpuSet::new(CpuSet::EMPTY);
        let cpu = CpuId::from_index(3);
        assert!(!set.insert(cpu, Ordering::Relaxed));
        assert!(set.insert(cpu, Ordering::Relaxed));
        assert!(set.remove(cpu, Ordering::Relaxed));
        assert!(!set.contains(cpu, Ordering::Relaxed));
    }
}
