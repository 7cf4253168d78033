//! How deep a stack was, in bytes: found by what is not zero (specs/kernel-stacks.md §M12, `kstack_1k` and so on).
//!
//! Pages come zeroed and are zeroed again, as far as they were used, when a thread ends; so the lowest word that is not
//! zero is the deepest that was used, give or take words that happen to be zero. That costs a read of the unused
//! part of the top page and a write of the used part, together less than a page, at a thread's end; and the next thread
//! finds nothing of the last one's. In mode `fixed`, where there are many unused pages, nothing is measured.

use super::super::geometry::{PAGE_BYTES, Window};
use super::super::parameters::{Mode, mode};
use super::grow;

/// Stacks with more pages than this are known by pages only: clearing them would keep interrupts off for too long.
const MEASURED_PAGES_MAX: u32 = 4;

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

/// How deep the stack of a thread that has ended was; it is clear afterwards.
pub(crate) fn take(window: &Window) -> u64 {
    let lowest = window.top() - u64::from(window.mapped) * PAGE_BYTES;
    if window.mapped > MEASURED_PAGES_MAX || mode() == Mode::Fixed {
        return window.top() - lowest;
    }
    // SAFETY: the pages are mapped, and the thread that used them is no more.
    unsafe {
        let used = first_used(lowest, window.top());
        clear(used, window.top());
        window.top() - used
    }
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
