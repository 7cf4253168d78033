//! How deep a stack was, in bytes: found by what is not zero (specs/kernel-stacks.md §M12, `kstack_1k` and so on).
//!
//! The stack of one in [`set_measured_share`] threads is zeroed before the thread gets it, and pages come zeroed; so the lowest word that
//! is not zero when it ends is the deepest that was used, give or take words that happen to be zero. That costs a write of
//! the top page and a read of its unused part, about 1500 instructions, a fifth of what a thread's start and end cost
//! otherwise: that is why not all are measured. In mode `fixed`, where there are many unused pages, none is.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::super::geometry::{PAGE_BYTES, Window};
use super::super::parameters::{Mode, mode};
use super::super::per_cpu::CpuStacks;
use super::grow;

/// Stacks with more pages than this are known by pages only: clearing them would keep interrupts off for too long.
const MEASURED_PAGES_MAX: u32 = 4;

/// Of so many new threads on a processor one is measured.
static MEASURED_SHARE: AtomicU32 = AtomicU32::new(16);

/// Bytes beneath the caller that [`forget_own`] leaves alone: what it may use itself.
const OWN_MARGIN_BYTES: u64 = 512;

/// Words that are looked at and cleared at a time.
const BLOCK_WORDS: u64 = 8;
const WORD: u64 = size_of::<u64>() as u64;
const BLOCK: u64 = BLOCK_WORDS * WORD;

/// The word at an address.
///
/// # Safety
/// It is mapped. Racing writes, if any, do not matter: any value tells something true.
#[inline(always)]
unsafe fn word_at(address: u64) -> u64 {
    // SAFETY: see the function's contract.
    unsafe { core::ptr::with_exposed_provenance::<u64>(address as usize).read_volatile() }
}

/// The first word from `start`, a multiple of a block, on that is not zero; `end` if there is none.
///
/// # Safety
/// The blocks from `start` to `end`, another multiple, are mapped.
unsafe fn first_used(start: u64, end: u64) -> u64 {
    let mut block = start;
    while block < end {
        let mut any = 0;
        for index in 0..BLOCK_WORDS {
            // SAFETY: within the range (caller).
            any |= unsafe { word_at(block + index * WORD) };
        }
        if any != 0 {
            break;
        }
        block += BLOCK;
    }
    // SAFETY: within the range (caller).
    while block < end && unsafe { word_at(block) } == 0 {
        block += WORD;
    }
    block
}

/// Zeroes the blocks from the one of `start` to `end`, a multiple of a block.
///
/// # Safety
/// They are mapped, and nobody uses them.
unsafe fn clear(start: u64, end: u64) {
    let mut block = start & !(BLOCK - 1);
    while block < end {
        for index in 0..BLOCK_WORDS {
            let word = core::ptr::with_exposed_provenance_mut::<u64>((block + index * WORD) as usize);
            // SAFETY: see the function's contract.
            unsafe { word.write_volatile(0) };
        }
        block += BLOCK;
    }
}

/// Sets of how many new threads on a processor one is measured; the count begins anew.
pub fn set_measured_share(threads: u32) {
    MEASURED_SHARE.store(threads.max(1), Relaxed);
    for memory in crate::local::all() {
        memory.stacks.until_measured.store(0, Relaxed);
    }
}

/// Whether the next new thread of this CPU is to be measured.
#[inline]
pub(crate) fn is_next_measured(stacks: &CpuStacks) -> bool {
    let left = stacks.until_measured.load(Relaxed);
    let share = MEASURED_SHARE.load(Relaxed);
    stacks.until_measured.store(if left == 0 { share - 1 } else { left - 1 }, Relaxed);
    left == 0 && mode() != Mode::Fixed
}

/// Prepares the stack of a new thread for [`of_ended`].
#[inline(never)]
pub(crate) fn prepare(window: &Window) {
    if window.mapped <= MEASURED_PAGES_MAX {
        // SAFETY: the pages are mapped, and nobody has the stack yet.
        unsafe { clear(lowest_of(window), window.top()) };
    }
}

fn lowest_of(window: &Window) -> u64 {
    window.top() - u64::from(window.mapped) * PAGE_BYTES
}

/// How deep the stack of a thread that has ended was, which had been prepared.
#[inline(never)]
pub(crate) fn of_ended(window: &Window) -> u64 {
    let lowest = lowest_of(window);
    if window.mapped > MEASURED_PAGES_MAX {
        return window.top() - lowest;
    }
    // SAFETY: the pages are mapped, and the thread that used them is no more.
    window.top() - unsafe { first_used(lowest, window.top()) }
}

/// Makes the calling thread's stack look unused below the caller, for [`own`].
#[inline(never)]
pub fn forget_own() {
    let marker = 0u64;
    let _preemption_off = machine::preempt::disable();
    if let Some(lowest) = grow::lowest_mapped() {
        let end = ((&raw const marker).addr() as u64 - OWN_MARGIN_BYTES) & !(BLOCK - 1);
        // SAFETY: the words lie in the mapped part of this stack beneath all that is in use; nobody else runs on it.
        unsafe { clear(lowest, end) };
    }
}

/// How deep the calling thread's stack was, in bytes from its top, since [`forget_own`]; None on other stacks.
#[inline(never)]
pub fn own() -> Option<u64> {
    let _preemption_off = machine::preempt::disable();
    let window = grow::own_window()?;
    let lowest = grow::lowest_mapped()?;
    // SAFETY: the pages are mapped and belong to this thread.
    Some(window.top() - unsafe { first_used(lowest, window.top()) })
}
