//! The kernel heap.
//!
//! On the bare machine `KernelHeap` is the global allocator: `class` tells which size class serves a request,
//! `magazine` what each CPU has at hand of it, `slab` where that comes from; `large` and `area` serve what is larger
//! than 8 KiB. Failures return null. A hosted machine uses the standard library's allocator; its tests call the parts
//! directly.
//!
//! Costs: allocating and freeing a small object take about twenty instructions with interrupts off, no lock and no
//! atomic operation, and touch memory of this CPU only; a batch of objects in between takes one lock.

#[cfg(target_os = "none")]
pub(crate) mod area;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "the hosted machine has the standard library's heap; tests call the parts")
)]
mod class;
#[cfg(target_os = "none")]
mod large;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "the hosted machine has the standard library's heap; tests call the parts")
)]
mod magazine;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "the hosted machine has the standard library's heap; tests call the parts")
)]
mod poison;
#[cfg_attr(
    not(target_os = "none"),
    allow(dead_code, reason = "the hosted machine has the standard library's heap; tests call the parts")
)]
mod slab;
#[cfg(test)]
mod tests;

use core::alloc::Layout;
use core::fmt;

use crate::local;

#[cfg(target_os = "none")]
pub(crate) use area::{map_reserved, reserve_addresses};
pub(crate) use class::MAX_SLAB_OBJECT;
pub(crate) use magazine::CpuHeap;

/// The kernel's global allocator.
#[cfg(target_os = "none")]
pub struct KernelHeap;

#[cfg(target_os = "none")]
#[global_allocator]
static HEAP: KernelHeap = KernelHeap;

#[cfg(target_os = "none")]
// SAFETY: objects come from slabs, blocks or areas that nobody else uses until they are freed with the same layout, and
// have at least the layout's size and alignment: `class::index_of_layout` and `large` see to that. Nothing unwinds.
unsafe impl core::alloc::GlobalAlloc for KernelHeap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        sync::classes::may_allocate();
        let object = match class::index_of_layout(layout) {
            Some(index) => magazine::allocate(index, slab::Refusal::Fatal),
            None => large::allocate(layout, crate::frame::Zeroed::No),
        };
        object.map_or(core::ptr::null_mut(), core::ptr::NonNull::as_ptr)
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let Some(object) = core::ptr::NonNull::new(pointer) else { return };
        match class::index_of_layout(layout) {
            // SAFETY: the caller frees what was allocated with this layout, and so in this class.
            Some(index) => unsafe { magazine::free(index, object) },
            // SAFETY: likewise.
            None => unsafe { large::free(object, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if class::index_of_layout(layout).is_none() {
            return large::allocate(layout, crate::frame::Zeroed::Yes)
                .map_or(core::ptr::null_mut(), core::ptr::NonNull::as_ptr);
        }
        // SAFETY: forwarded; what `alloc` returned has the layout's size.
        unsafe {
            let pointer = self.alloc(layout);
            if !pointer.is_null() {
                pointer.write_bytes(0, layout.size());
            }
            pointer
        }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for the new size with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        let class = class::index_of_layout(layout);
        if class.is_some() && class == class::index_of_layout(new_layout) {
            return pointer;
        }
        // SAFETY: both objects have at least the bytes copied, and are different objects.
        unsafe {
            let new = self.alloc(new_layout);
            if !new.is_null() {
                new.copy_from_nonoverlapping(pointer, layout.size().min(new_size));
                self.dealloc(pointer, layout);
            }
            new
        }
    }
}

/// Start-up: prepares the region of areas.
#[cfg(target_os = "none")]
pub(crate) fn initialize_areas() {
    area::initialize();
}

/// Start-up: makes the magazines of all CPUs. Without them objects come from the slabs one by one.
pub(crate) fn initialize() {
    if let Err(error) = magazine::initialize() {
        log::error!("no room for the heap's magazines: {error:?}");
    }
}

/// Gives memory back that the heap keeps without need; the number of frames is returned. The caller may wait.
pub(crate) fn shrink() -> usize {
    sync::remote::call(machine::cpu::online(), |_| magazine::drain_this_cpu(), 0);
    let frames = slab::free_empty();
    #[cfg(target_os = "none")]
    let frames = frames + area::purge();
    frames
}

/// Whether the next allocation of this layout on this CPU cannot fail. Interrupts are off.
#[cfg(target_os = "none")]
#[inline(always)]
pub(crate) fn is_at_hand(layout: Layout) -> bool {
    class::index_of_layout(layout).is_some_and(magazine::is_at_hand)
}

/// Fills this CPU's magazine for the layout, if it has one, without using the reserve.
///
/// # Errors
/// When there is no memory.
#[inline(always)]
pub(crate) fn prepare(layout: Layout) -> Result<(), crate::OutOfMemory> {
    let serves_itself = layout.size() == 0 || layout.size() > MAX_SLAB_OBJECT;
    if serves_itself || is_at_hand(layout) { Ok(()) } else { put_at_hand(layout) }
}

/// Fills this CPU's magazine for the layout.
///
/// # Errors
/// When there is no memory.
#[cfg(target_os = "none")]
pub(crate) fn put_at_hand(layout: Layout) -> Result<(), crate::OutOfMemory> {
    let index = class::index_of_layout(layout).ok_or(crate::OutOfMemory)?;
    let object = magazine::allocate(index, slab::Refusal::Error).ok_or(crate::OutOfMemory)?;
    // SAFETY: allocated just now from this class.
    unsafe { magazine::free(index, object) };
    Ok(())
}

/// The standard library's allocator of a hosted machine does not fail.
///
/// # Errors
/// None.
#[cfg(not(target_os = "none"))]
pub(crate) fn put_at_hand(_layout: Layout) -> Result<(), crate::OutOfMemory> {
    Ok(())
}

/// The standard library's allocator of a hosted machine does not fail.
#[cfg(not(target_os = "none"))]
pub(crate) fn is_at_hand(_layout: Layout) -> bool {
    true
}

/// The numbers of one size class, as a line of `/proc/slabinfo` shows them.
#[derive(Clone, Copy, Debug)]
pub struct ClassStatistics {
    /// Bytes of an object.
    pub object_bytes: usize,
    /// Objects in use.
    pub active_objects: u64,
    /// Objects that the slabs have room for.
    pub objects: u64,
    /// Objects of a slab.
    pub objects_in_slab: u32,
    /// Pages of a slab.
    pub pages_in_slab: u32,
    /// Slabs.
    pub slabs: u64,
    /// Objects in magazines.
    pub cached_objects: u64,
}

/// The numbers of all size classes.
pub fn class_statistics() -> impl Iterator<Item = ClassStatistics> {
    class::TABLE.iter().enumerate().map(|(index, class)| {
        let counts = slab::counts(index);
        let cached: u64 =
            machine::cpu::online().iter().map(|cpu| u64::from(magazine::length_on(index, cpu))).sum();
        ClassStatistics {
            object_bytes: class.size as usize,
            active_objects: counts.in_use.saturating_sub(cached),
            objects: counts.slabs * u64::from(class.objects),
            objects_in_slab: u32::from(class.objects),
            pages_in_slab: 1 << class.order,
            slabs: counts.slabs,
            cached_objects: cached,
        }
    })
}

/// Bytes that are kept but not in use: in magazines, in slabs, and in freed areas.
pub(crate) fn slack_bytes() -> u64 {
    #[cfg(target_os = "none")]
    let areas = area::waiting_frames() * machine::address::PAGE_SIZE as u64;
    #[cfg(not(target_os = "none"))]
    let areas = 0;
    let slabs: u64 = class_statistics()
        .map(|class| class.objects.saturating_sub(class.active_objects) * class.object_bytes as u64)
        .sum();
    slabs + areas
}

/// Batches that moved between magazines and slabs: fetched, given back.
pub fn traffic() -> (u64, u64) {
    local::all().map(|memory| memory.heap.traffic()).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// Objects larger than the largest size class, and their bytes.
pub fn large_objects() -> (u64, u64) {
    #[cfg(target_os = "none")]
    return large::counts();
    #[cfg(not(target_os = "none"))]
    (0, 0)
}

/// Bytes of non-contiguous kernel memory (`VmallocUsed`).
pub fn area_bytes() -> u64 {
    #[cfg(target_os = "none")]
    return area::mapped_frames() * machine::address::PAGE_SIZE as u64;
    #[cfg(not(target_os = "none"))]
    0
}

/// The text of `/proc/slabinfo`.
///
/// # Errors
/// Those of the writer.
pub fn write_slabinfo(out: &mut dyn fmt::Write) -> fmt::Result {
    writeln!(out, "slabinfo - version: 2.1")?;
    writeln!(
        out,
        "# name            <active_objs> <num_objs> <objsize> <objperslab> <pagesperslab> : tunables <limit> \
         <batchcount> <sharedfactor> : slabdata <active_slabs> <num_slabs> <sharedavail>"
    )?;
    for (class, numbers) in class::TABLE.iter().zip(class_statistics()) {
        writeln!(
            out,
            "kmalloc-{:<9} {:6} {:6} {:6} {:4} {:4} : tunables {:4} {:4}    0 : slabdata {:6} {:6} {:6}",
            numbers.object_bytes,
            numbers.active_objects,
            numbers.objects,
            numbers.object_bytes,
            numbers.objects_in_slab,
            numbers.pages_in_slab,
            class.magazine_limit(),
            class.batch,
            numbers.slabs,
            numbers.slabs,
            numbers.cached_objects,
        )?;
    }
    Ok(())
}
