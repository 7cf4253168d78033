//! The tables: per CPU, where calls find representatives; and the global one, where misses find objects.
//!
//! A *segment* has 1024 entries: 8 KiB for each CPU, the CPUs' parts 8 KiB apart (memory of the per-CPU allocator, which
//! gives it through [`set_table_source`]), and 1024 global slots. Segments are made on demand and never freed, so an
//! entry's address stays valid for ever.
//!
//! Locking: FREE covers the list of free entries and the making of segments; each global slot has its lock.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use machine::cpu::{CpuId, CpuSet};
use machine::set_once::SetOnce;

use crate::{Once, SpinLock};

/// log2 of the distance between the CPUs' parts of a segment.
pub const LOCAL_TABLE_SHIFT: u32 = 13;

/// Bytes of a CPU's part.
pub const LOCAL_TABLE_BYTES: usize = 1 << LOCAL_TABLE_SHIFT;

/// Entries of a segment.
const SEGMENT_ENTRIES: usize = LOCAL_TABLE_BYTES / size_of::<Entry>();

/// Segments: objects are at most this many times 1024.
const SEGMENTS_MAX: usize = 64;

/// A CPU's entry: the representative's node, or null.
pub(super) type Entry = AtomicPtr<u8>;

/// Zeroed memory for a segment's local parts, which lives for ever.
pub struct LocalTable {
    cookie: NonNull<Entry>,
}

// SAFETY: it only gives memory away, which belongs to no CPU or thread.
unsafe impl Send for LocalTable {}

impl LocalTable {
    /// A table from the address of CPU 0's part.
    ///
    /// # Safety
    /// For each CPU n that the machine has there are [`LOCAL_TABLE_BYTES`] of zeroed memory, aligned to 8, at the address +
    /// (n << [`LOCAL_TABLE_SHIFT`]), which are used for nothing else, for ever.
    pub unsafe fn new(cookie: NonNull<u8>) -> Self {
        Self { cookie: cookie.cast() }
    }
}

static SOURCE: SetOnce<fn() -> Option<LocalTable>> = SetOnce::new();

/// Sets where memory for local tables comes from, at start-up. Without it there are no clustered objects (on a hosted
/// machine, the process' own memory is used).
pub fn set_table_source(source: fn() -> Option<LocalTable>) {
    SOURCE.set(source);
}

fn new_table() -> Option<LocalTable> {
    match SOURCE.get() {
        Some(source) => source(),
        #[cfg(not(target_os = "none"))]
        None => {
            let bytes = machine::cpu::MAX_CPUS << LOCAL_TABLE_SHIFT;
            let layout = core::alloc::Layout::from_size_align(bytes, 64).ok()?;
            // SAFETY: the layout has a size. The memory is zeroed, never freed, and has room for all CPUs.
            unsafe { Some(LocalTable::new(NonNull::new(alloc::alloc::alloc_zeroed(layout))?)) }
        }
        #[cfg(target_os = "none")]
        None => None,
    }
}

/// What a global slot holds: the object by its number, whatever its interface is.
pub(super) trait Managed: Send + Sync {
    /// The number that the object alone has.
    fn number(&self) -> u64;
    /// For the typed object behind it.
    fn any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
    /// What can be seen of it.
    fn report(&self) -> Report;
    /// A look at who used it lately; says whether to look again.
    fn look(self: Arc<Self>) -> bool;
}

/// One object, as `/proc/starling/clustered` shows it.
#[derive(Clone, Debug)]
pub struct Report {
    /// What kind of object.
    pub name: &'static str,
    /// Its number.
    pub number: u64,
    /// Whether its root is distributed.
    pub distributed: bool,
    /// Representatives that calls lead to.
    pub representatives: usize,
    /// CPUs whose entries are filled.
    pub cpus: CpuSet,
    /// Misses so far.
    pub misses: u64,
    /// Swaps so far.
    pub swaps: u64,
    /// Calls that were forwarded while swapping.
    pub forwarded: u64,
}

type Slot = SpinLock<Option<Arc<dyn Managed>>>;

struct Segment {
    local: LocalTable,
    slots: Vec<Slot>,
}

// SAFETY: the local part is only given out as entries, which are atomics; the slots are locks.
unsafe impl Sync for Segment {}

static SEGMENTS: [Once<Segment>; SEGMENTS_MAX] = [const { Once::new() }; SEGMENTS_MAX];

/// Free entries, with room for all that exist.
static FREE: SpinLock<Vec<u32>> = SpinLock::new(Vec::new());

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(1);

/// A number that no object ever had.
pub(super) fn new_number() -> u64 {
    // Relaxed: only uniqueness matters.
    NEXT_NUMBER.fetch_add(1, Ordering::Relaxed)
}

/// The entries of one object, one on each CPU.
#[derive(Clone, Copy)]
pub(super) struct Entries {
    /// CPU 0's.
    first: NonNull<Entry>,
    index: u32,
}

// SAFETY: entries are atomics in memory that lives for ever.
unsafe impl Send for Entries {}
// SAFETY: as above.
unsafe impl Sync for Entries {}

impl Entries {
    /// Takes the entries of a new object, all empty. None when there is no memory. May sleep if the caller may.
    pub(super) fn take() -> Option<Self> {
        // Its own statement: the lock is released before a segment is made.
        let free = FREE.lock().pop();
        let index = match free {
            Some(index) => index,
            None => {
                make_segment()?;
                FREE.lock().pop()?
            }
        };
        let segment = segment_of(index)?;
        let place = index as usize % SEGMENT_ENTRIES;
        // SAFETY: the place is within CPU 0's part.
        Some(Self { first: unsafe { segment.local.cookie.add(place) }, index })
    }

    /// Gives them back, all empty again.
    pub(super) fn give_back(self) {
        FREE.lock().push(self.index);
    }

    /// The entry of a CPU that the machine has.
    #[inline(always)]
    pub(super) fn of(&self, cpu: CpuId) -> &Entry {
        // SAFETY: each CPU of the machine has its part of the segment, at this distance, for ever (`LocalTable::new`).
        unsafe { self.first.byte_add(cpu.index() << LOCAL_TABLE_SHIFT).as_ref() }
    }

    /// Puts an object into the global slot, or takes it out.
    pub(super) fn set_global(&self, object: Option<Arc<dyn Managed>>) {
        if let Some(slot) = slot_of(self.index) {
            let old = core::mem::replace(&mut *slot.lock(), object);
            drop(old);
        }
    }

    /// What is in the global slot.
    pub(super) fn global(&self) -> Option<Arc<dyn Managed>> {
        slot_of(self.index)?.lock().clone()
    }
}

fn segment_of(index: u32) -> Option<&'static Segment> {
    SEGMENTS.get(index as usize / SEGMENT_ENTRIES)?.get()
}

fn slot_of(index: u32) -> Option<&'static Slot> {
    segment_of(index)?.slots.get(index as usize % SEGMENT_ENTRIES)
}

#[cold]
#[inline(never)]
fn make_segment() -> Option<()> {
    let mut slots = Vec::new();
    slots.try_reserve_exact(SEGMENT_ENTRIES).ok()?;
    slots.resize_with(SEGMENT_ENTRIES, || SpinLock::new(None));
    let local = new_table()?;
    let mut free = FREE.lock();
    let number = SEGMENTS.iter().position(|segment| segment.get().is_none())?;
    free.try_reserve((number + 1) * SEGMENT_ENTRIES).ok()?;
    SEGMENTS[number].call_once(|| Segment { local, slots });
    // Low numbers are taken first.
    let first = (number * SEGMENT_ENTRIES) as u32;
    free.extend((first..first + SEGMENT_ENTRIES as u32).rev());
    Some(())
}

/// Calls `visit` for each object there is.
pub(super) fn for_each(mut visit: impl FnMut(Arc<dyn Managed>)) {
    for slot in SEGMENTS.iter().filter_map(Once::get).flat_map(|segment| &segment.slots) {
        // Its own statement: the slot is free again when the object is visited.
        let object = slot.lock().clone();
        if let Some(object) = object {
            visit(object);
        }
    }
}

/// Calls `visit` with what can be seen of each object.
pub fn report(mut visit: impl FnMut(&Report)) {
    for_each(|object| visit(&object.report()));
}
