//! The stacks of each processor that traps and interrupts enter on.
//!
//! Every processor has a window of [`WINDOW_BYTES`] in the kernel's mapping area, with its seven trap stacks and the
//! interrupt stack, each above an unmapped page: an overflow faults instead of overwriting its neighbour. Until the
//! final page tables are in use, the boot processor takes all traps on the lower part of its boot stack.

use super::gdt::TaskState;
use super::per_cpu::PerCpu;
use super::trap::gates::{INTERRUPT_STACK_BYTES, STACK_BYTES};
use super::{boot, paging};
use crate::address::{DEVICE_MAP_BASE, PAGE_SIZE};
use crate::cpu::CpuId;
use core::sync::atomic::Ordering;

/// Where the processors' windows start: one GiB into the mapping area, behind the device window.
const BASE: usize = DEVICE_MAP_BASE + (1 << 30);
/// Virtual size of a processor's window.
const WINDOW_BYTES: usize = 128 * 1024;

/// Bytes that the boot processor's early trap stack takes from the low end of its boot stack.
const EARLY_TRAP_BYTES: u64 = 8192;

/// Tops of a processor's stacks.
pub(crate) struct Stacks {
    /// Interrupt stack table entries 1 to 7.
    traps: [u64; 7],
    /// The interrupt stack.
    interrupt: u64,
    /// What the processor starts on, until the scheduler gives it a thread.
    pub(crate) boot: u64,
}

/// Bytes of the stack that an application processor starts on.
const BOOT_STACK_BYTES: usize = 16 * 1024;

const fn window_use() -> usize {
    let mut bytes = 2 * PAGE_SIZE + INTERRUPT_STACK_BYTES + BOOT_STACK_BYTES;
    let mut index = 0;
    while index < STACK_BYTES.len() {
        bytes += PAGE_SIZE + STACK_BYTES[index];
        index += 1;
    }
    bytes
}
const _: () = assert!(window_use() <= WINDOW_BYTES);

/// Allocates and maps a processor's stacks. None when early memory is exhausted.
///
/// # Safety
/// Once for each processor, on the boot processor while it is alone, after the final page tables were built.
pub(crate) unsafe fn allocate(cpu: CpuId) -> Option<Stacks> {
    let mut next = BASE + cpu.index() * WINDOW_BYTES;
    let mut map = |bytes: usize| {
        let start = next + PAGE_SIZE;
        let memory = boot::early_allocate_dirty(bytes, PAGE_SIZE)?;
        for offset in (0..bytes).step_by(PAGE_SIZE) {
            // SAFETY: the window belongs to this processor and the pages to this stack; we are alone.
            unsafe { paging::map_early(start + offset, memory.as_u64() + offset as u64) };
        }
        next = start + bytes;
        Some(next as u64)
    };
    let mut traps = [0; 7];
    for (top, bytes) in traps.iter_mut().zip(STACK_BYTES) {
        *top = map(bytes)?;
    }
    let interrupt = map(INTERRUPT_STACK_BYTES)?;
    // The boot processor has its boot stack in the image.
    let boot = if cpu == CpuId::BOOT { 0 } else { map(BOOT_STACK_BYTES)? };
    Some(Stacks { traps, interrupt, boot })
}

/// Puts the stacks into a processor's area.
///
/// # Safety
/// The area is this processor's own, or that of one which has not started; no trap is in progress there.
pub(crate) unsafe fn install(area: *mut PerCpu, stacks: &Stacks) {
    // SAFETY: see the function's contract.
    unsafe {
        set_traps((*area).task_state.get(), stacks.traps);
        // Used only by page faults from user mode when they have no stack of their own.
        (&raw mut (*(*area).task_state.get()).privilege_stacks[0]).write_unaligned(stacks.traps[4]);
        (&raw mut (*area).interrupt_stack_top).write(stacks.interrupt);
        (*area).page_fault_stack_top.store(stacks.traps[4], Ordering::Relaxed);
    }
}

/// Lets the boot processor take traps before it has its own stacks.
///
/// # Safety
/// As for [`install`]; `boot_stack_bottom` is the low end of the boot stack.
pub(crate) unsafe fn install_early(area: *mut PerCpu, boot_stack_bottom: u64) {
    let top = boot_stack_bottom + EARLY_TRAP_BYTES;
    // SAFETY: see the function's contract.
    unsafe { install(area, &Stacks { traps: [top; 7], interrupt: top, boot: 0 }) };
}

/// # Safety
/// As for [`install`].
unsafe fn set_traps(task_state: *mut TaskState, tops: [u64; 7]) {
    // SAFETY: the field is written through a raw pointer because it may be unaligned.
    unsafe { (&raw mut (*task_state).interrupt_stacks).write_unaligned(tops) };
}
