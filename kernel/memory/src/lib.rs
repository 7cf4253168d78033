//! The memory layer: page frames, the kernel heap, kernel stacks, address spaces and the page cache.
//!
//! From the bottom up:
//!
//! - [`frame`]: physical memory in 4 KiB frames, a buddy allocator in sections of 128 MiB whose metadata is brought
//!   up only when the memory is first needed, per-CPU lists in front of it, counted handles behind it.
//! - [`per_cpu`]: objects with a copy for each CPU, on frames alone; counters, reference counts, free lists.
//! - [`heap`]: size-class slabs with per-CPU magazines behind `GlobalAlloc`; [`fallible`] wraps the allocations that
//!   user space can make large.
//! - [`kstack`]: kernel stacks of which only the used pages exist.
//! - [`page_index`]: the tree in which file caches find their pages.
//! - [`file_cache`], [`region`], [`address_space`], [`buffer`]: user memory.
//! - [`huge_pool`]: pages of 2 MiB that are kept for programs that ask for them.
//! - [`LazyTable`]: objects whose addresses follow from their numbers.
//! - [`charge`]: who pays for pages, and what happens at the limits of that.
//! - [`reclaim`], [`oom`], [`statistics`]: what happens when memory runs out, and what can be seen of it.
//!
//! Each mechanism states its locks and invariants at the top of its file.
#![cfg_attr(target_os = "none", no_std)]

extern crate alloc;

pub mod address_space;
pub mod buffer;
pub mod charge;
pub mod fallible;
pub mod file_cache;
pub mod frame;
pub mod heap;
pub mod huge_pool;
#[cfg(target_os = "none")]
mod kernel_map;
pub mod kstack;
mod lazy_table;
mod local;
mod number_stack;
pub mod oom;
pub mod page_index;
pub mod parking;
pub mod per_cpu;
pub mod reclaim;
pub mod region;
pub mod statistics;

pub use lazy_table::LazyTable;

/// An allocation could not be satisfied, even after reclaiming what can be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("out of memory")
    }
}

impl core::error::Error for OutOfMemory {}

/// Start-up on the boot processor: hands all memory to the frame allocator and prepares the kernel stacks. From here on
/// everything in this crate works. Later calls do nothing.
pub fn initialize() {
    static ONCE: sync::Once<()> = sync::Once::new();
    ONCE.call_once(|| {
        frame::initialize();
        #[cfg(target_os = "none")]
        heap::initialize_areas();
        per_cpu::initialize();
        per_cpu::register_local_tables();
        heap::initialize();
        kstack::initialize();
        file_cache::initialize();
    });
}

/// Prepares a processor that is about to start, on the boot processor; it may only be started on success.
///
/// # Errors
/// When there is not enough memory for another processor.
pub fn initialize_cpu(cpu: machine::cpu::CpuId) -> Result<(), OutOfMemory> {
    if local::of(cpu).is_some() {
        return Ok(());
    }
    let memory = local::make()?;
    if !kstack::prepare(&memory.stacks) {
        return Err(OutOfMemory);
    }
    local::publish(cpu, memory);
    Ok(())
}
