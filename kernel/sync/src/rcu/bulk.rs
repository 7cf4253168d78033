//! Many deferred drops that share one callback.
//!
//! What has no room for a header (a `Box`, an `Arc`) is noted in a block of [`ENTRIES`] entries of its CPU; the block is the callback, and
//! is handed over when it is full or when the CPU's callbacks are next moved on, 2 ms later at most. So a thousand frees cost a
//! handful of callbacks and no grace period of their own.
//!
//! A block is allocated when the last one is full. When that fails, [`try_drop_later`] gives the value back and
//! [`drop_later`] waits for a grace period itself; where it may not, the value is leaked, as callbacks drop such values, too.
//!
//! An open block has room whenever interrupts are on: who fills it takes it away before an interrupt finds it so.
//!
//! The open block and the counts are touched by their own CPU only, with interrupts off; other CPUs read the counts.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};
use core::alloc::Layout;
use core::cell::UnsafeCell;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicU64, Ordering};

use machine::cpu::CpuId;
use machine::{interrupt, preempt};

use super::callback::{Header, RcuBox};
use super::flavour::Kind;
use super::{grace_period, pressure, queue};
use crate::{PerCpu, per_cpu};

/// Entries of a block: it fills 1 KiB, as larger ones are not taken from the memory that is kept for those who can't wait.
const ENTRIES: usize = 62;

/// Something that owns one allocation and can be dropped later.
pub trait Deferred: Send + Sized + 'static {
    /// Bytes that the drop gives back, where they are so many that floods are told by them.
    const WEIGHT: usize = 0;

    /// Gives up ownership.
    fn into_raw(self) -> *mut ();

    /// Drops it; returns about how many bytes that gave back.
    ///
    /// # Safety
    /// The pointer came from [`Deferred::into_raw`] of this type, and is dropped once.
    unsafe fn drop_raw(raw: *mut ()) -> usize;
}

impl<T: Send + 'static> Deferred for Box<T> {
    fn into_raw(self) -> *mut () {
        Box::into_raw(self).cast()
    }

    // SAFETY: what the trait demands is handed on to the blocks below.
    unsafe fn drop_raw(raw: *mut ()) -> usize {
        // SAFETY: the caller's promise.
        drop(unsafe { Box::from_raw(raw.cast::<T>()) });
        size_of::<T>()
    }
}

impl<T: Send + Sync + 'static> Deferred for Arc<T> {
    fn into_raw(self) -> *mut () {
        Arc::into_raw(self).cast_mut().cast()
    }

    // SAFETY: what the trait demands is handed on to the blocks below.
    unsafe fn drop_raw(raw: *mut ()) -> usize {
        // SAFETY: the caller's promise.
        drop(unsafe { Arc::from_raw(raw.cast::<T>()) });
        size_of::<T>()
    }
}

/// Keeps the memory of an object that may be gone.
impl<T: Send + Sync + 'static> Deferred for Weak<T> {
    fn into_raw(self) -> *mut () {
        Weak::into_raw(self).cast_mut().cast()
    }

    // SAFETY: what the trait demands is handed on to the blocks below.
    unsafe fn drop_raw(raw: *mut ()) -> usize {
        // SAFETY: the caller's promise.
        drop(unsafe { Weak::from_raw(raw.cast::<T>()) });
        size_of::<T>()
    }
}

impl<T: Send + 'static> Deferred for RcuBox<T> {
    fn into_raw(self) -> *mut () {
        RcuBox::into_raw(self).cast()
    }

    // SAFETY: what the trait demands is handed on to the blocks below.
    unsafe fn drop_raw(raw: *mut ()) -> usize {
        // SAFETY: the caller's promise.
        drop(unsafe { RcuBox::<T>::from_raw(raw.cast()) });
        size_of::<T>()
    }
}

#[derive(Clone, Copy)]
struct Entry {
    raw: *mut (),
    drop: unsafe fn(*mut ()) -> usize,
}

#[repr(C)]
struct Block {
    header: Header,
    count: usize,
    /// What the entries say about their bytes.
    weight: usize,
    entries: [core::mem::MaybeUninit<Entry>; ENTRIES],
}

/// What a CPU has open.
struct Local {
    open: UnsafeCell<*mut Block>,
    /// Objects ever put into blocks, and ever dropped. Written by the CPU with interrupts off.
    put: AtomicU64,
    dropped: AtomicU64,
    /// Blocks handed over, and values given back for want of memory. Written by the CPU.
    blocks: AtomicU64,
    refused: AtomicU64,
}

// SAFETY: `open` is touched by its own CPU with interrupts off only; what is noted in blocks is Send.
unsafe impl Sync for Local {}

static LOCAL: PerCpu<Local> = per_cpu!(Local {
    open: UnsafeCell::new(ptr::null_mut()),
    put: AtomicU64::new(0),
    dropped: AtomicU64::new(0),
    blocks: AtomicU64::new(0),
    refused: AtomicU64::new(0),
});

/// Drops the value after a grace period; it shares a callback with others. From any context that may allocate.
///
/// # Errors
/// The value, when there is no memory to note it.
pub fn try_drop_later<D: Deferred>(value: D) -> Result<(), D> {
    pressure::pace();
    let _preemption = preempt::disable();
    let local = LOCAL.this();
    let (filled, first) = loop {
        if !ensure_open(local) {
            queue::bump(&local.refused, 1);
            return Err(value);
        }
        let _interrupts = interrupt::disable();
        // SAFETY: interrupts are off and this is the CPU's own.
        let Some(block) = (unsafe { (*local.open.get()).as_mut() }) else {
            // An interrupt since then filled it, and found no memory for the next one.
            continue;
        };
        block.entries[block.count].write(Entry { raw: value.into_raw(), drop: D::drop_raw });
        block.count += 1;
        block.weight += D::WEIGHT;
        let first = queue::bump(&local.put, 1) == local.dropped.load(Ordering::Relaxed) + 1;
        let is_full = block.count == ENTRIES;
        break (if is_full { take_open(local) } else { None }, first);
    };
    let is_full = filled.is_some();
    if let Some(filled) = filled {
        hand_over(local, filled);
        // Room for the next one, also for an interrupt's.
        ensure_open(local);
    }
    if is_full || first {
        queue::ask_for_service();
    }
    Ok(())
}

/// Drops the value after a grace period; it shares a callback with others. Without memory it waits for the grace period; where nobody may sleep, the value
/// is leaked then, which is a loss but no danger.
pub fn drop_later<D: Deferred>(value: D) {
    let Err(value) = try_drop_later(value) else { return };
    if preempt::count() == 0 && !interrupt::in_interrupt() && interrupt::are_enabled() {
        grace_period::synchronize_expedited();
        drop(value);
    } else {
        log::error!("no memory to note what is to be dropped after a grace period: it is leaked");
        core::mem::forget(value);
    }
}

/// Sees to it that this CPU has a block with room. Preemption is off.
fn ensure_open(local: &Local) -> bool {
    let has_room = || {
        let _interrupts = interrupt::disable();
        // SAFETY: the CPU's own, interrupts are off.
        !unsafe { *local.open.get() }.is_null()
    };
    if has_room() {
        return true;
    }
    // SAFETY: a block has a size.
    let block = unsafe { alloc::alloc::alloc(Layout::new::<Block>()) }.cast::<Block>();
    if block.is_null() {
        return false;
    }
    // SAFETY: fresh memory of a block's layout. The entries are written before they are counted.
    unsafe {
        (&raw mut (*block).header).write(Header::new(drop_block));
        (&raw mut (*block).count).write(0);
        (&raw mut (*block).weight).write(0);
    }
    let unused = {
        let _interrupts = interrupt::disable();
        // SAFETY: the CPU's own, interrupts are off.
        let open = unsafe { &mut *local.open.get() };
        // An interrupt may have been faster.
        if open.is_null() {
            *open = block;
            ptr::null_mut()
        } else {
            block
        }
    };
    if !unused.is_null() {
        // SAFETY: the block allocated above, which nobody knows.
        unsafe { alloc::alloc::dealloc(unused.cast(), Layout::new::<Block>()) };
    }
    has_room()
}

/// Hands the open block over, if anything is in it. The caller cannot migrate.
pub(super) fn flush() {
    let local = LOCAL.this();
    let block = {
        let _interrupts = interrupt::disable();
        take_open(local)
    };
    if let Some(block) = block {
        hand_over(local, block);
    }
}

/// A block that waits for its grace period, and what its entries say about their bytes.
type Filled = (NonNull<Block>, usize);

/// Takes the open block away, if anything is in it. Of this CPU, with interrupts off.
fn take_open(local: &Local) -> Option<Filled> {
    // SAFETY: the CPU's own, interrupts are off.
    let open = unsafe { &mut *local.open.get() };
    let block = NonNull::new(*open)?;
    // SAFETY: the open block is live.
    let Block { count, weight, .. } = unsafe { block.as_ref() };
    if *count == 0 {
        return None;
    }
    *open = ptr::null_mut();
    Some((block, *weight))
}

fn hand_over(local: &Local, (block, weight): Filled) {
    queue::bump(&local.blocks, 1);
    queue::enqueue_to_wait(Kind::Classic, block.as_ptr().cast(), size_of::<Block>() + weight);
}

/// Drops what a block notes, and the block.
///
/// # Safety
/// `header` is that of a block that was handed over.
unsafe fn drop_block(header: *mut Header) -> usize {
    let block = header.cast::<Block>();
    // SAFETY: the header is a block's first field, and the block is ours now.
    let (count, weight) = unsafe { ((*block).count, (*block).weight) };
    for index in 0..count {
        // SAFETY: the first `count` entries were written, and are dropped once, here.
        unsafe {
            let entry = (*block).entries[index].assume_init_read();
            (entry.drop)(entry.raw);
        }
    }
    // SAFETY: allocated in `ensure_open` with this layout.
    unsafe { alloc::alloc::dealloc(block.cast(), Layout::new::<Block>()) };
    // Callbacks run with preemption off on the CPU that queued them.
    let _interrupts = interrupt::disable();
    queue::bump(&LOCAL.this().dropped, count as u64);
    size_of::<Block>() + weight
}

/// Objects that wait in blocks on a CPU.
pub(super) fn waiting(cpu: CpuId) -> u64 {
    let dropped = dropped(cpu);
    put(cpu).saturating_sub(dropped)
}

/// Objects ever put into blocks on a CPU.
pub(super) fn put(cpu: CpuId) -> u64 {
    LOCAL.of(cpu).put.load(Ordering::Acquire)
}

/// Objects of blocks ever dropped on a CPU.
pub(super) fn dropped(cpu: CpuId) -> u64 {
    LOCAL.of(cpu).dropped.load(Ordering::Acquire)
}

/// Blocks handed over on a CPU, and values given back for want of memory.
pub(super) fn counts(cpu: CpuId) -> (u64, u64) {
    let local = LOCAL.of(cpu);
    (local.blocks.load(Ordering::Relaxed), local.refused.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rcu::counts_drop::CountsDrop;
    use std::sync::atomic::AtomicU32;

    #[test]
    fn many_drops_share_a_callback() {
        let drops = Arc::new(AtomicU32::new(0));
        let section = preempt::disable();
        let this = machine::cpu::current();
        // What a thread that was this CPU before has left in a block.
        flush();
        let (queued, blocks) = (queue::counts(this, Kind::Classic).queued, counts(this).0);
        for _ in 0..1000 {
            assert!(try_drop_later(Box::new(CountsDrop(drops.clone()))).is_ok());
        }
        flush();
        assert_eq!(counts(this).0 - blocks, 17);
        assert_eq!(queue::counts(this, Kind::Classic).queued - queued, 17);
        assert_eq!(drops.load(Ordering::Relaxed), 0);
        drop(section);
        queue::tests::run_all();
        assert_eq!(drops.load(Ordering::Relaxed), 1000);
        assert_eq!(waiting(this), 0);
    }

    /// What is being noted while an interrupt arrives, which notes something itself as soon as it can.
    struct Interrupted(Box<u32>);

    static INTERRUPTS: AtomicU32 = AtomicU32::new(0);
    static REFUSED: AtomicU32 = AtomicU32::new(0);

    impl Deferred for Interrupted {
        fn into_raw(self) -> *mut () {
            machine::ipi::send(machine::cpu::current(), machine::ipi::Ipi::Debugger);
            self.0.into_raw()
        }

        // SAFETY: that of the box.
        unsafe fn drop_raw(raw: *mut ()) -> usize {
            // SAFETY: the caller's promise.
            unsafe { Box::<u32>::drop_raw(raw) }
        }
    }

    #[test]
    fn an_interrupt_finds_room_whenever_it_comes() {
        machine::ipi::set_handler(machine::ipi::Ipi::Debugger, || {
            INTERRUPTS.fetch_add(1, Ordering::Relaxed);
            let is_refused = try_drop_later(Box::new(0_u32)).is_err();
            REFUSED.fetch_add(u32::from(is_refused), Ordering::Relaxed);
        });
        // They take turns. First the interrupt fills the blocks, then who is interrupted.
        for _ in 0..2 {
            for _ in 0..2 * ENTRIES {
                assert!(try_drop_later(Interrupted(Box::new(0))).is_ok());
            }
            assert!(try_drop_later(Box::new(0_u32)).is_ok());
        }
        queue::tests::run_all();
        assert_eq!(
            (INTERRUPTS.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed)),
            (4 * ENTRIES as u32, 0)
        );
    }

    #[test]
    fn block_may_be_taken_from_the_reserve() {
        assert!(size_of::<Block>() <= 1024);
    }
}
