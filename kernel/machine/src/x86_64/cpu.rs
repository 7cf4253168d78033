//! Processors: who is running, how many there are, and what each needs before it can run kernel code.

use super::per_cpu::{CPU_ID, CURRENT_THREAD, PerCpu, STATIC_CELLS};
use crate::cpu::{AtomicCpuSet, CpuId, CpuSet};
use core::arch::asm;
use core::sync::atomic::{AtomicI64, AtomicPtr, AtomicUsize, Ordering};

/// Number of processors in the firmware's tables (capped at [`crate::cpu::MAX_CPUS`]).
static COUNT: AtomicUsize = AtomicUsize::new(1);
static ONLINE: AtomicCpuSet = AtomicCpuSet::new(CpuSet::only(CpuId::BOOT));
/// A `fn(CpuId) -> !`, null until it is set.
static AP_ENTRY: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

#[inline(always)]
pub(crate) fn current_index() -> u32 {
    let index: u32;
    // SAFETY: reads a constant field of this processor's own area.
    unsafe {
        asm!("mov {:e}, gs:[{offset}]", out(reg) index, offset = const CPU_ID,
            options(nostack, preserves_flags, readonly));
    }
    index
}

#[inline(always)]
pub(crate) fn add_to_own(cell: &AtomicI64, amount: i64) {
    // SAFETY: changes the cell as a load and a store of the whole word would, which other processors may see one by one;
    // none of them stores to it, and an interrupt of this processor comes before or after the instruction.
    unsafe { asm!("add qword ptr [{}], {}", in(reg) cell.as_ptr(), in(reg) amount, options(nostack)) };
}

#[inline(always)]
pub(crate) fn add_to_static(cell: usize, amount: i64) {
    debug_assert!(cell < crate::cpu::STATIC_CELLS);
    // SAFETY: changes a cell of this processor's own area, as `add_to_own` does; the caller keeps the index in range.
    unsafe {
        asm!("add qword ptr gs:[{cell} * 8 + {offset}], {amount}", cell = in(reg) cell, amount = in(reg) amount,
            offset = const STATIC_CELLS, options(nostack));
    }
}

pub(crate) fn static_cell(cpu: CpuId, cell: usize) -> i64 {
    PerCpu::of(cpu).map_or(0, |area| area.static_cells[cell].load(Ordering::Relaxed))
}

pub(crate) fn count() -> usize {
    COUNT.load(Ordering::Relaxed)
}

pub(crate) fn online() -> CpuSet {
    ONLINE.load(Ordering::Acquire)
}

#[inline(always)]
pub(crate) fn online_beside(_cpu: CpuId) -> CpuSet {
    online()
}

#[inline(always)]
pub(crate) fn thread_word() -> usize {
    let word: usize;
    // SAFETY: reads a field of this processor's own area.
    unsafe {
        asm!("mov {}, gs:[{offset}]", out(reg) word, offset = const CURRENT_THREAD,
            options(nostack, preserves_flags, readonly));
    }
    word
}

#[inline(always)]
pub(crate) fn set_thread_word(word: usize) {
    // SAFETY: writes a field of this processor's own area, which only the scheduler gives a meaning.
    unsafe {
        asm!("mov gs:[{offset}], {}", in(reg) word, offset = const CURRENT_THREAD, options(nostack, preserves_flags));
    }
}

pub(crate) fn set_ap_entry(entry: fn(CpuId) -> !) {
    // Release: what was set up before is seen by the processors that enter.
    AP_ENTRY.store(entry as *mut (), Ordering::Release);
}

pub(crate) fn start_application_processors() {
    super::processors::start();
}

pub(crate) fn set_count(count: usize) {
    COUNT.store(count, Ordering::Relaxed);
}

/// The end of an application processor's start-up: it is online, and enters the upper layers.
pub(crate) fn set_online_and_enter(cpu: CpuId) -> ! {
    let entry = AP_ENTRY.load(Ordering::Acquire);
    ONLINE.insert(cpu, Ordering::AcqRel);
    if entry.is_null() {
        halt_forever();
    }
    // SAFETY: a non-null pointer was made from a `fn(CpuId) -> !` in `set_ap_entry`, the only writer.
    let entry = unsafe { core::mem::transmute::<*mut (), fn(CpuId) -> !>(entry) };
    entry(cpu)
}

#[inline(always)]
pub(crate) fn flush_line(place: *const u8) {
    // SAFETY: writes a cache line back and drops it; the instruction exists on every x86-64 processor.
    unsafe { asm!("clflush [{}]", "mfence", in(reg) place, options(nostack, preserves_flags)) };
}

pub(crate) fn halt_forever() -> ! {
    loop {
        // SAFETY: stops this processor; nothing is expected of it any more.
        unsafe { asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
