//! The per-CPU allocator: objects that have a copy for each CPU.
//!
//! An allocation returns a *cookie*, the address of CPU 0's copy; that of CPU n is `cookie + (n << 13)`. Memory is zeroed
//! for every CPU that exists. The allocator stands on page frames and on addresses of the kernel's own, not on the slab
//! heap, whose per-CPU heads are its clients.
//!
//! It is made for close packing, not for speed: an allocation looks at the free regions of a block or a few, sorts them,
//! and zeroes a copy per CPU. If it finds no room it makes a block; a block without objects is unmapped at once, its
//! frames and addresses go back when the translations have been flushed.
//!
//! Locking: one spin lock for all blocks, held while a place is looked for. Blocks are made, objects zeroed and blocks
//! given back without it. Not for interrupt handlers.

use core::alloc::Layout;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sync::SpinLock;

use super::backing;
use super::descriptor::{Descriptor, Fit, NO_REGIONS, Regions};
use super::geometry::{
    ALIGN_MAX, BLOCK_BYTES, CHUNK_BYTES, MANAGEMENT_OFFSET, UNIT_BYTES, existing_cpus, offset_of,
};
use super::list::List;
use crate::{OutOfMemory, fallible};

/// Why there is no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PerCpuError {
    /// An object of no size.
    Empty,
    /// An object larger than a chunk.
    TooLarge,
    /// An alignment above that of a cache line.
    Alignment,
    /// No memory for another block.
    OutOfMemory,
}

impl From<PerCpuError> for OutOfMemory {
    fn from(_: PerCpuError) -> Self {
        Self
    }
}

impl From<OutOfMemory> for PerCpuError {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

pub(super) struct Blocks {
    pub(super) list: List,
    /// Where the free regions of the block in question are collected.
    regions: Regions,
}

pub(super) static BLOCKS: SpinLock<Blocks> = SpinLock::new(Blocks { list: List::new(), regions: NO_REGIONS });

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static FREES: AtomicU64 = AtomicU64::new(0);
static MADE: AtomicU64 = AtomicU64::new(0);
static DESTROYED: AtomicU64 = AtomicU64::new(0);

/// What is in use, and what happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Blocks.
    pub blocks: u64,
    /// Objects.
    pub objects: u64,
    /// Bytes of objects in one CPU's chunks.
    pub used_bytes: u64,
    /// Objects allocated so far.
    pub allocations: u64,
    /// Objects freed so far.
    pub frees: u64,
    /// Blocks made so far.
    pub made: u64,
    /// Blocks given back so far.
    pub destroyed: u64,
}

/// What is in use, and what happened so far.
pub fn usage() -> Usage {
    let mut usage = Usage {
        allocations: ALLOCATIONS.load(Relaxed),
        frees: FREES.load(Relaxed),
        made: MADE.load(Relaxed),
        destroyed: DESTROYED.load(Relaxed),
        ..Usage::default()
    };
    for (_, block) in BLOCKS.lock().list.iter() {
        usage.blocks += 1;
        usage.objects += block.objects().count() as u64;
        usage.used_bytes += block.used_bytes() as u64;
    }
    usage
}

/// Start-up: the first block, before there is a slab heap.
pub(crate) fn initialize() {
    match backing::make() {
        Ok(block) => {
            // SAFETY: made just now, and destroyed only after it was taken out.
            unsafe { BLOCKS.lock().list.insert(block) };
            MADE.fetch_add(1, Relaxed);
            log::info!(
                "per-CPU objects: chunks of {CHUNK_BYTES} bytes for {} processors",
                existing_cpus().count()
            );
        }
        Err(OutOfMemory) => log::error!("no memory for per-CPU objects"),
    }
}

/// The first address of the block that a descriptor describes.
pub(super) fn base_of(block: NonNull<Descriptor>) -> NonNull<u8> {
    // SAFETY: the descriptor lies this far behind the block's first address.
    unsafe { block.cast::<u8>().byte_sub(MANAGEMENT_OFFSET) }
}

/// The descriptor of the block that an object lies in.
fn block_of(cookie: NonNull<u8>) -> NonNull<Descriptor> {
    let base = cookie.as_ptr().map_addr(|address| address & !(BLOCK_BYTES - 1));
    // SAFETY: the cookie is in CPU 0's chunk of a block, whose first address is a multiple of its size and not 0; the
    // descriptor lies behind the chunks.
    unsafe { NonNull::new_unchecked(base.byte_add(MANAGEMENT_OFFSET)).cast() }
}

fn check_layout(layout: Layout) -> Result<(), PerCpuError> {
    match layout.size() {
        0 => Err(PerCpuError::Empty),
        size if size > CHUNK_BYTES => {
            log::warn!("a per-CPU object of {size} bytes is larger than a chunk");
            Err(PerCpuError::TooLarge)
        }
        _ if layout.align() > ALIGN_MAX => Err(PerCpuError::Alignment),
        _ => Ok(()),
    }
}

/// Allocates an object of this layout for every CPU, zeroed; returns the cookie. May sleep if the caller may.
///
/// # Errors
/// See [`PerCpuError`].
#[track_caller]
pub(crate) fn allocate(layout: Layout) -> Result<NonNull<u8>, PerCpuError> {
    check_layout(layout)?;
    fallible::fail_point()?;
    let units = layout.size().div_ceil(UNIT_BYTES);
    let align_units = layout.align().div_ceil(UNIT_BYTES);
    // Its own statement: the lock is released before a block is made.
    let found = take(&mut BLOCKS.lock(), units, align_units);
    let (block, unit) = match found {
        Some(found) => found,
        None => take_from_new_block(units, align_units)?,
    };
    // SAFETY: the unit is one of CPU 0's chunk, which the block begins with.
    let cookie = unsafe { base_of(block).byte_add(unit * UNIT_BYTES) };
    for cpu in existing_cpus().iter() {
        // SAFETY: the units of the object are ours in every chunk, and have memory in those of CPUs that exist.
        unsafe { cookie.byte_add(offset_of(cpu)).write_bytes(0, units * UNIT_BYTES) };
    }
    ALLOCATIONS.fetch_add(1, Relaxed);
    Ok(cookie)
}

fn take(blocks: &mut Blocks, units: usize, align_units: usize) -> Option<(NonNull<Descriptor>, usize)> {
    let Blocks { list, regions } = blocks;
    // A hole that an object fills to the last unit is the best of all, in whatever block: it costs no other object room.
    // In a simulation that lifts the share of memory in use by five hundredths.
    [Fit::Exact, Fit::Any]
        .into_iter()
        .find_map(|fit| list.allocate(|block| block.take(units, align_units, fit, regions)))
}

#[cold]
#[inline(never)]
fn take_from_new_block(
    units: usize,
    align_units: usize,
) -> Result<(NonNull<Descriptor>, usize), PerCpuError> {
    let block = backing::make()?;
    MADE.fetch_add(1, Relaxed);
    let mut blocks = BLOCKS.lock();
    // Somebody may have made room meanwhile.
    let found = take(&mut blocks, units, align_units);
    if found.is_none() {
        // SAFETY: made just now, and destroyed only after it was taken out.
        unsafe { blocks.list.insert(block) };
        return Ok(take(&mut blocks, units, align_units).expect("an empty block holds any object"));
    }
    drop(blocks);
    destroy(block);
    found.ok_or(PerCpuError::OutOfMemory)
}

fn destroy(block: NonNull<Descriptor>) {
    DESTROYED.fetch_add(1, Relaxed);
    // SAFETY: the block is on no list, and has no objects.
    unsafe { backing::destroy(block) };
}

/// Frees an object.
///
/// # Safety
/// The cookie came from [`allocate`], and no CPU uses its copy any more.
pub(crate) unsafe fn free(cookie: NonNull<u8>) {
    let block = block_of(cookie);
    let unit = (cookie.addr().get() & (BLOCK_BYTES - 1)) / UNIT_BYTES;
    // SAFETY: an object lies in a block of the list.
    let (given, empty) = unsafe { BLOCKS.lock().list.free(block, |block| block.give(unit)) };
    assert!(given.is_some(), "per-CPU object {cookie:?} is freed twice");
    FREES.fetch_add(1, Relaxed);
    if empty {
        destroy(block);
    }
}

/// The copy of a CPU.
///
/// # Safety
/// The cookie came from [`allocate`], and the CPU exists.
#[inline(always)]
pub(super) unsafe fn copy_of(cookie: NonNull<u8>, cpu: machine::cpu::CpuId) -> NonNull<u8> {
    // SAFETY: every chunk has the object's units, at the same place as CPU 0's.
    unsafe { cookie.byte_add(offset_of(cpu)) }
}
