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

const WORD: usize = size_of::<u64>();

/// The first word from `start` on that is not zero; `end` if there is none.
///
/// # Safety
/// The words from `start` to `end` are mapped.
unsafe fn first_used(start: u64, end: u64) -> u64 {
    let used = |address: &u64| {
        // SAFETY: within the range (caller). Racing writes, if any, do not matter: any value tells something true.
        unsafe { core::ptr::with_exposed_provenance::<u64>(*address as usize).read_volatile() != 0 }
    };
    (start..end).step_by(WORD).find(used).unwrap_or(end)
}

/// Zeroes the words from `start` to `end`.
///
/// # Safety
/// They are mapped, and nobody uses them.
unsafe fn clear(start: u64, end: u64) {
    for address in (start..end).step_by(WORD) {
        // SAFETY: see the function's contract.
        unsafe { core::ptr::with_exposed_provenance_mut::<u64>(address as usize).write_volatile(0) };
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
        let end = ((&raw const marker).addr() as u64 - OWN_MARGIN_BYTES) & !(WORD as u64 - 1);
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
